//! Q2_K: 256 elements of 2 bits in 16 groups, each with a 4-bit scale and a 4-bit minimum.
//!
//! ```text
//! scales 16 | codes 64 | d 2 | m 2      84 bytes
//! ```
//! Byte `g` of the scales is group `g`'s: scale in the low half, minimum in the high half. 32 bytes of codes serve 128 elements:
//! byte `i` holds elements `i`, `i + 32`, `i + 64`, `i + 96`, lowest bits first. x = d * scale * q - m * minimum.

use super::fields::f16_at;

pub(super) fn decode(block: &[u8; 84], out: &mut [f32; 256]) {
    let (d, m) = (f16_at(block, 80), f16_at(block, 82));
    for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (scale, minimum) = (d * f32::from(block[g] & 15), m * f32::from(block[g] >> 4));
        // Eight groups share 32 bytes, two groups for each pair of bits.
        let (start, shift) = (16 + g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2);
        for (code, out) in block[start..start + 16].iter().zip(group) {
            *out = scale * f32::from(code >> shift & 3) - minimum;
        }
    }
}
