//! Q4_K: 256 elements of 4 bits in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum.
//!
//! ```text
//! d 2 | m 2 | scales and minima 12 | codes 128      144 bytes
//! ```
//! 32 bytes of codes serve two groups: the low halves one, the high halves the next. x = d * scale * q - m * minimum.

use super::fields::f16_at;

pub(super) fn decode(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (pair, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let codes = &block[16 + 32 * pair..][..32];
        let (low, high) = out.split_at_mut(32);
        for (half, out) in [low, high].into_iter().enumerate() {
            let (scale, minimum) = scale_and_minimum(&block[4..16], 2 * pair + half);
            let (scale, minimum) = (d * f32::from(scale), m * f32::from(minimum));
            for (code, out) in codes.iter().zip(out) {
                *out = scale * f32::from(code >> (4 * half) & 15) - minimum;
            }
        }
    }
}

/// Six-bit scale and minimum of group `g` of 8, from 12 bytes.
///
/// Groups 0 to 3: low six bits of byte `g` and of byte `g + 4`. Groups 4 to 7: low four bits in the halves of byte `g + 4`, high two
/// bits at the top of bytes `g - 4` and `g`.
#[inline]
pub(super) fn scale_and_minimum(packed: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        return (packed[g] & 63, packed[g + 4] & 63);
    }
    let low = packed[g + 4];
    (low & 15 | packed[g - 4] >> 6 << 4, low >> 4 | packed[g] >> 6 << 4)
}
