//! Quantisation schemes: one file each, each with the scalar dequantiser that is its specification.
//!
//! A file of a scheme draws its block in bytes, gives the formula, and has one function from a block to its elements. Scales `d` and
//! minima `m` are f16 unless said otherwise, everything is little-endian, and arithmetic is f32.

mod plain;

use crate::{Dtype, Result, WeightsError};

/// Writes the elements stored in `bytes` to `out` as f32.
///
/// # Errors
/// `NotDecodable` if the scheme has no dequantiser.
///
/// # Panics
/// If `bytes` and `out` do not describe the same number of whole blocks: callers hold validated tensors.
pub fn dequantize(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    assert_eq!(
        dtype.bytes_for(out.len()),
        Some(bytes.len()),
        "dequantize: {} elements of {dtype} do not take {} bytes",
        out.len(),
        bytes.len()
    );
    match dtype {
        Dtype::F32 => each_block(bytes, out, plain::f32),
        Dtype::F16 => each_block(bytes, out, plain::f16),
        Dtype::BF16 => each_block(bytes, out, plain::bf16),
        Dtype::F64 => each_block(bytes, out, plain::f64),
        Dtype::I8 => each_block(bytes, out, plain::i8),
        Dtype::I16 => each_block(bytes, out, plain::i16),
        Dtype::I32 => each_block(bytes, out, plain::i32),
        Dtype::I64 => each_block(bytes, out, plain::i64),
        Dtype::U8 | Dtype::Bool => each_block(bytes, out, plain::u8),
        Dtype::U16 => each_block(bytes, out, plain::u16),
        Dtype::U32 => each_block(bytes, out, plain::u32),
        Dtype::U64 => each_block(bytes, out, plain::u64),
        _ => return Err(WeightsError::NotDecodable { dtype }),
    }
    Ok(())
}

/// Whether [`dequantize`] knows this type. Eight-bit floats are not known: without the scales that lie in tensors of their own their
/// values are not the weights.
pub fn is_decodable(dtype: Dtype) -> bool {
    dequantize(dtype, &[], &mut []).is_ok()
}

/// Runs `decode` over the blocks of a row.
fn each_block<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, elements) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        decode(block, elements);
    }
}
