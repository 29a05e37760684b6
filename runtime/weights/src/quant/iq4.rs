//! IQ4_NL and IQ4_XS: 4-bit codes for sixteen uneven levels ([`grids::IQ4`]).
//!
//! ```text
//! IQ4_NL   d 2 | codes 16                                           32 elements,  x = d * level
//! IQ4_XS   d 2 | high scale bits 2 | low scale bits 4 | codes 128  256 elements,  x = d * (scale - 32) * level
//! ```
//! Codes lie as in Q4_0. The 6-bit scale of group `g` of 32 elements: low four bits are half `g % 2` of byte `g / 2`, high two bits
//! pair `g` of the u16.

use super::{
    fields::{f16_at, u16_at},
    grids, q4,
};

pub(super) fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    q4::unpack(&block[2..], out, |q| d * level(q));
}

pub(super) fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let high = u16_at(block, 2);
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = block[4 + g / 2] >> (g % 2 * 4) & 15 | ((high >> (2 * g) & 3) << 4) as u8;
        let scale = d * (f32::from(scale) - 32.0);
        q4::unpack(&block[8 + 16 * g..][..16], out, |q| scale * level(q));
    }
}

#[inline]
fn level(q: u8) -> f32 {
    f32::from(grids::IQ4[usize::from(q & 15)])
}
