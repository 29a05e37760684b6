//! Q1_0 and Q2_0: one and two bits under one scale.
//!
//! ```text
//! Q1_0   d 2 | codes 16      128 elements,  x = d if the bit is set, else -d
//! Q2_0   d 2 | codes 16       64 elements,  x = d * (q - 1)
//! ```
//! Elements follow each other from the lowest bits of the first byte on.

use super::fields::{f16_at, sign};

pub(super) fn q1_0(block: &[u8; 18], out: &mut [f32; 128]) {
    let d = f16_at(block, 0);
    for (code, out) in block[2..].iter().zip(out.as_chunks_mut::<8>().0) {
        for (k, out) in out.iter_mut().enumerate() {
            *out = -d * sign(*code, k);
        }
    }
}

pub(super) fn q2_0(block: &[u8; 18], out: &mut [f32; 64]) {
    let d = f16_at(block, 0);
    for (code, out) in block[2..].iter().zip(out.as_chunks_mut::<4>().0) {
        for (k, out) in out.iter_mut().enumerate() {
            *out = d * (f32::from(code >> (2 * k) & 3) - 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn block(codes: [u8; 16]) -> [u8; 18] {
        let mut block = [0; 18];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2..].copy_from_slice(&codes);
        block
    }

    #[test]
    fn q1_0_is_the_scale_with_a_sign_per_bit_lowest_first() {
        let mut codes = [0; 16];
        (codes[0], codes[15]) = (0b0000_0110, 0b1000_0000);
        let mut out = [f32::NAN; 128];
        q1_0(&block(codes), &mut out);
        let positive: Vec<usize> = (0..128).filter(|&i| out[i] == 0.5).collect();
        assert_eq!(positive, [1, 2, 127]);
        assert_eq!(out.iter().filter(|&&x| x == -0.5).count(), 125);
    }

    #[test]
    fn q2_0_has_four_levels_from_minus_one_to_two() {
        let mut codes = [0b01_01_01_01; 16];
        codes[1] = 0b11_10_01_00;
        let mut out = [f32::NAN; 64];
        q2_0(&block(codes), &mut out);
        assert_eq!(out[..10], [0.0, 0.0, 0.0, 0.0, -0.5, 0.0, 0.5, 1.0, 0.0, 0.0]);
    }
}
