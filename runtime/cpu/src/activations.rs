//! The inputs of projections.

use std::cell::OnceCell;

use crate::{dense, quantized, team::Team};

/// The inputs of one or several projections, quantised or laid out anew once when first asked for.
pub(crate) struct Activations<'a, 't> {
    /// `[tokens, n_cols]`
    pub x: &'a [f32],
    /// As products in integers read them.
    pub codes: quantized::Codes<'t>,
    tokens: OnceCell<dense::Tokens<'a>>,
}

impl<'a> Activations<'a, '_> {
    pub fn new(x: &'a [f32]) -> Self {
        Activations { x, codes: quantized::Codes::default(), tokens: OnceCell::new() }
    }

    /// As products in f32 read them, of rows of `n_cols`.
    pub fn tokens(&self, team: &Team, n_cols: usize) -> &dense::Tokens<'a> {
        self.tokens.get_or_init(|| dense::Tokens::new(team, self.x, n_cols))
    }
}
