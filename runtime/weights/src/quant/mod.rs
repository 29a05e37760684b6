//! Quantisation schemes: one file each, each with the scalar dequantiser that is its specification.

use crate::{Dtype, Result};

/// Writes the elements stored in `bytes` to `out` as f32.
///
/// # Errors
/// `NotDecodable` if the scheme has no dequantiser.
///
/// # Panics
/// If `bytes` and `out` do not describe the same number of whole blocks: callers hold validated tensors.
pub fn dequantize(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    let _ = (dtype, bytes, out);
    unreachable!("under construction")
}

/// Whether [`dequantize`] knows this type.
pub fn is_decodable(dtype: Dtype) -> bool {
    let _ = dtype;
    true
}
