//! The inputs of projections.

use crate::{dense, quantized};

/// The inputs of one or several projections, quantised or laid out anew once when first asked for.
pub(crate) struct Activations<'a, 't> {
    /// `[tokens, n_cols]`
    pub x: &'a [f32],
    /// As products in integers read them.
    pub codes: quantized::Codes<'t>,
    /// As products in floats read them.
    pub floats: dense::Inputs<'a, 't>,
}

impl<'a> Activations<'a, '_> {
    pub fn new(x: &'a [f32]) -> Self {
        Activations { x, codes: quantized::Codes::default(), floats: dense::Inputs::default() }
    }
}
