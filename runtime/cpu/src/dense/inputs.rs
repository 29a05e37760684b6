//! The inputs of projections in the layouts of the kernels.

use std::cell::OnceCell;

use super::{planes::Planes, tokens::Tokens};
use crate::team::Team;

/// The layouts of one input, each made when it is first asked for.
#[derive(Default)]
pub(crate) struct Inputs<'a, 't> {
    tokens: OnceCell<Tokens<'a, 't>>,
    planes: OnceCell<Planes<'t>>,
}

impl<'a, 't> Inputs<'a, 't> {
    /// `x`, of rows of `n_cols`, as products in f32 read it.
    pub fn tokens(&self, team: &'t Team, x: &'a [f32], n_cols: usize) -> &Tokens<'a, 't> {
        self.tokens.get_or_init(|| Tokens::new(team, x, n_cols))
    }

    /// The same as a matrix unit reads it.
    pub fn planes(&self, team: &'t Team, x: &[f32], n_cols: usize) -> &Planes<'t> {
        self.planes.get_or_init(|| Planes::new(team, x, n_cols))
    }
}
