//! Q5_K: Q4_K with a fifth bit per element.
//!
//! ```text
//! d 2 | m 2 | scales and minima 12 | fifth bits 32 | codes 128      176 bytes
//! ```
//! Bit `g` of byte `i` of the fifth bits is that of element `i` of group `g`; the rest is as in Q4_K.

use super::{fields::f16_at, q4_k::scale_and_minimum};

pub(super) fn decode(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(&block[4..16], g);
        let (scale, minimum) = (d * f32::from(scale), m * f32::from(minimum));
        let codes = &block[48 + g / 2 * 32..][..32];
        for ((code, fifth), out) in codes.iter().zip(&block[16..48]).zip(group) {
            let q = code >> (g % 2 * 4) & 15 | (fifth >> g & 1) << 4;
            *out = scale * f32::from(q) - minimum;
        }
    }
}
