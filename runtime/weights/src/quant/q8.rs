//! Q8_0, Q8_1 and Q8_K: elements of 8 bits. The last two are made of activations while computing; files rarely hold them.
//!
//! ```text
//! Q8_0   d 2 | codes 32                        32 elements
//! Q8_1   d 2 | d * sum of codes 2 | codes 32   32 elements
//! Q8_K   d 4 | codes 256 | sums of 16 codes 2 x 16   256 elements, d is f32
//! ```
//! All: x = d * q, with q signed. The sums serve dot products.

use super::fields::{f16_at, f32_at};

pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    scale(&block[2..], f16_at(block, 0), out);
}

pub(super) fn q8_1(block: &[u8; 36], out: &mut [f32; 32]) {
    scale(&block[4..], f16_at(block, 0), out);
}

pub(super) fn q8_k(block: &[u8; 292], out: &mut [f32; 256]) {
    scale(&block[4..260], f32_at(block, 0), out);
}

#[inline]
fn scale(codes: &[u8], d: f32, out: &mut [f32]) {
    for (&code, out) in codes.iter().zip(out) {
        *out = d * f32::from(code as i8);
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn q8_1_skips_the_sum_behind_its_scale() {
        let mut block = [0; 36];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(99.0).to_le_bytes());
        block[4] = 6;
        block[35] = -128i8 as u8;
        let mut out = [f32::NAN; 32];
        q8_1(&block, &mut out);
        assert_eq!((out[0], out[1], out[31]), (3.0, 0.0, -64.0));
    }

    #[test]
    fn q8_k_has_a_wide_scale_and_ignores_its_sums() {
        let mut block = [7; 292];
        block[..4].copy_from_slice(&1e-10f32.to_le_bytes());
        block[4..260].fill(3);
        let mut out = [f32::NAN; 256];
        q8_k(&block, &mut out);
        assert_eq!(out, [3.0 * 1e-10; 256]);
    }
}
