//! IQ2_XXS, IQ2_XS and IQ2_S: 256 elements, eight at a time from a codebook of magnitudes, with signs.
//!
//! ```text
//! IQ2_XXS   d 2 | (codes 4, signs and scale 4) x 8                            66 bytes
//! IQ2_XS    d 2 | (code 9 bits, signs 7 bits) x 32 | scales 8                 74 bytes
//! IQ2_S     d 2 | codes 32 | signs 32 | high code bits 8 | scales 8           82 bytes
//! ```
//! Eight groups of 32 elements, four codes each. x = d * (1/2 + scale) / 4 * sign * magnitude. IQ2_XXS: a u32 per group holds four times
//! seven sign bits (the eighth follows, [`grids::even_signs`]) and on top a 4-bit scale. IQ2_XS and IQ2_S: a 4-bit scale per 16
//! elements, the low half of byte `g` for the first of group `g`. IQ2_S: two more bits per code, lowest first.

use super::{
    fields::{f16_at, sign, u16_at, u32_at},
    grids,
};

pub(super) fn iq2_xxs(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let at = 2 + 8 * g;
        let word = u32_at(block, at + 4);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (k, out) in group.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let vector = &grids::IQ2_XXS[usize::from(block[at + k])];
            eight(out, scale, vector, grids::even_signs(word >> (7 * k)));
        }
    }
}

pub(super) fn iq2_xs(block: &[u8; 74], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u16_at(block, 2 + 2 * i);
        let vector = &grids::IQ2_XS[usize::from(word & 511)];
        eight(out, scale(d, &block[66..], i), vector, grids::even_signs(u32::from(word >> 9)));
    }
}

pub(super) fn iq2_s(block: &[u8; 82], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = block[66 + i / 4] >> (i % 4 * 2) & 3;
        let vector = &grids::IQ2_S[usize::from(block[2 + i]) | usize::from(high) << 8];
        eight(out, scale(d, &block[74..], i), vector, block[34 + i]);
    }
}

/// The scale of the `i`-th eight elements: half a byte for every 16.
#[inline]
fn scale(d: f32, scales: &[u8], i: usize) -> f32 {
    let scale = scales[i / 4] >> (i / 2 % 2 * 4) & 15;
    d * (0.5 + f32::from(scale)) * 0.25
}

#[inline]
fn eight(out: &mut [f32; 8], scale: f32, vector: &[i8; 8], signs: u8) {
    for (i, (magnitude, out)) in vector.iter().zip(out).enumerate() {
        *out = scale * f32::from(*magnitude) * sign(signs, i);
    }
}
