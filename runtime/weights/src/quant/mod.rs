//! Quantisation schemes: one file each, each with the scalar dequantiser that is its specification.
//!
//! A file of a scheme draws its block in bytes, gives the formula, and has one function from a block to its elements. Scales `d` and
//! minima `m` are f16 unless said otherwise, everything is little-endian, and arithmetic is f32.

mod fields;
mod fp4;
pub mod grids;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod plain;
mod q1;
mod q2_k;
mod q3_k;
mod q4;
mod q4_k;
mod q5;
mod q5_k;
mod q6_k;
mod q8;
mod tq;

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
        Dtype::Q4_0 => each_block(bytes, out, q4::q4_0),
        Dtype::Q4_1 => each_block(bytes, out, q4::q4_1),
        Dtype::Q5_0 => each_block(bytes, out, q5::q5_0),
        Dtype::Q5_1 => each_block(bytes, out, q5::q5_1),
        Dtype::Q8_0 => each_block(bytes, out, q8::q8_0),
        Dtype::Q8_1 => each_block(bytes, out, q8::q8_1),
        Dtype::Q8_K => each_block(bytes, out, q8::q8_k),
        Dtype::Q2_K => each_block(bytes, out, q2_k::decode),
        Dtype::Q3_K => each_block(bytes, out, q3_k::decode),
        Dtype::Q4_K => each_block(bytes, out, q4_k::decode),
        Dtype::Q5_K => each_block(bytes, out, q5_k::decode),
        Dtype::Q6_K => each_block(bytes, out, q6_k::decode),
        Dtype::IQ4_NL => each_block(bytes, out, iq4::iq4_nl),
        Dtype::IQ4_XS => each_block(bytes, out, iq4::iq4_xs),
        Dtype::IQ3_XXS => each_block(bytes, out, iq3::iq3_xxs),
        Dtype::IQ3_S => each_block(bytes, out, iq3::iq3_s),
        Dtype::IQ2_XXS => each_block(bytes, out, iq2::iq2_xxs),
        Dtype::IQ2_XS => each_block(bytes, out, iq2::iq2_xs),
        Dtype::IQ2_S => each_block(bytes, out, iq2::iq2_s),
        Dtype::IQ1_S => each_block(bytes, out, iq1::iq1_s),
        Dtype::IQ1_M => each_block(bytes, out, iq1::iq1_m),
        Dtype::TQ1_0 => each_block(bytes, out, tq::tq1_0),
        Dtype::TQ2_0 => each_block(bytes, out, tq::tq2_0),
        Dtype::MXFP4 => each_block(bytes, out, fp4::mxfp4),
        Dtype::NVFP4 => each_block(bytes, out, fp4::nvfp4),
        Dtype::Q1_0 => each_block(bytes, out, q1::q1_0),
        Dtype::Q2_0 => each_block(bytes, out, q1::q2_0),
        Dtype::F8_E4M3 | Dtype::F8_E5M2 | Dtype::F8_E8M0 => return Err(WeightsError::NotDecodable { dtype }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_row_decodes_like_the_whole_row() {
        for &dtype in Dtype::ALL.iter().filter(|dtype| is_decodable(**dtype)) {
            let n = 3 * dtype.block_len();
            let bytes: Vec<u8> = (0..3 * dtype.block_bytes()).map(|i| (i * 37 % 61) as u8).collect();
            let (mut whole, mut parts) = (vec![0.0; n], vec![0.0; n]);
            dequantize(dtype, &bytes, &mut whole).unwrap();
            for (bytes, out) in bytes.chunks(dtype.block_bytes()).zip(parts.chunks_mut(dtype.block_len())) {
                dequantize(dtype, bytes, out).unwrap();
            }
            assert_eq!(bits(&whole), bits(&parts), "{dtype}");
        }
    }

    #[test]
    #[should_panic(expected = "64 elements of Q4_0 do not take 18 bytes")]
    fn lengths_that_disagree_panic() {
        let _ = dequantize(Dtype::Q4_0, &[0; 18], &mut [0.0; 64]);
    }

    /// Values by their bits, so that NaNs compare.
    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|x| x.to_bits()).collect()
    }
}
