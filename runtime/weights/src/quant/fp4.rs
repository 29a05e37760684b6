//! MXFP4 and NVFP4: 4-bit floats ([`grids::FP4_DOUBLED`]) under 8-bit scales.
//!
//! ```text
//! MXFP4   scale 1 | codes 16               32 elements,  x = 2^(scale - 127) * fp4
//! NVFP4   scales 4 | codes 4 x 8           64 elements,  x = scale * fp4, one scale of 16 elements
//! ```
//! MXFP4 codes lie as in Q4_0; of NVFP4 each 8 bytes do, for 16 elements. Its scales are floats of 4 exponent bits (bias 7) and 3 mantissa
//! bits, without sign; 0x7f stands for none and counts as 0, as in llama.cpp. A scale for the whole tensor is a tensor of its own.

use super::{grids, q4};

pub(super) fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let half_scale = half_power_of_two(block[0]);
    q4::unpack(&block[1..], out, |q| half_scale * fp4_doubled(q));
}

pub(super) fn nvfp4(block: &[u8; 36], out: &mut [f32; 64]) {
    for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let half_scale = half_unsigned_e4m3(block[g]);
        q4::unpack(&block[4 + 8 * g..][..8], out, |q| half_scale * fp4_doubled(q));
    }
}

#[inline]
fn fp4_doubled(q: u8) -> f32 {
    f32::from(grids::FP4_DOUBLED[usize::from(q & 15)])
}

/// `2^(exponent - 128)`, subnormal for the two smallest.
#[inline]
fn half_power_of_two(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}

/// Half the value of an unsigned float of 4 exponent and 3 mantissa bits.
#[inline]
fn half_unsigned_e4m3(byte: u8) -> f32 {
    const SMALLEST: f32 = 1.0 / 1024.0;
    if byte == 0x7f {
        return 0.0;
    }
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    match exponent {
        0 => mantissa * SMALLEST,
        // Bias 7, one more for the half: exponent 1 is 2^-7.
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 119) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mxfp4_scales_are_powers_of_two_down_to_the_smallest() {
        for (exponent, power) in [(0, -128), (1, -127), (2, -126), (127, -1), (255, 127)] {
            assert_eq!(f64::from(half_power_of_two(exponent)), 2f64.powi(power), "{exponent}");
        }
    }

    #[test]
    fn nvfp4_scales_cover_subnormals_one_the_largest_and_none() {
        for (byte, value) in
            [(0, 0.0), (1, 1.0 / 512.0), (8, 1.0 / 64.0), (0x38, 1.0), (0x39, 1.125), (0x7e, 448.0), (0x7f, 0.0)]
        {
            assert_eq!(2.0 * half_unsigned_e4m3(byte), value, "{byte:#x}");
        }
    }
}
