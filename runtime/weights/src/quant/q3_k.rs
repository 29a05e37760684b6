//! Q3_K: 256 elements of 3 bits in 16 groups, each with a 6-bit scale.
//!
//! ```text
//! third bits 32 | codes 64 | scales 12 | d 2      110 bytes
//! ```
//! Codes lie as in Q2_K. Bit `k` of byte `i` of the third bits is that of element `32 k + i`; where it is *clear*, 4 is
//! subtracted. x = d * (scale - 32) * q.

use super::fields::f16_at;

pub(super) fn decode(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(block, 108);
    for (g, group) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * (f32::from(scale(&block[96..108], g)) - 32.0);
        let (start, shift) = (32 + g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2);
        let codes = &block[start..start + 16];
        let thirds = &block[g % 2 * 16..][..16];
        for ((code, third), out) in codes.iter().zip(thirds).zip(group) {
            let offset = if third >> (g / 2) & 1 == 0 { 4.0 } else { 0.0 };
            *out = scale * (f32::from(code >> shift & 3) - offset);
        }
    }
}

/// Scale `g` of 16: its low four bits are half `g / 8` of byte `g % 8`, its high two bits pair `g / 4` of byte `8 + g % 4`.
#[inline]
fn scale(packed: &[u8], g: usize) -> u8 {
    let low = packed[g % 8] >> (g / 8 * 4) & 15;
    let high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    low | high << 4
}
