//! IQ3_XXS and IQ3_S: 256 elements, four at a time from a codebook of magnitudes, with signs.
//!
//! ```text
//! IQ3_XXS   d 2 | codes 64 | signs and scales 4 x 8                             98 bytes
//! IQ3_S     d 2 | codes 64 | ninth code bits 8 | signs 32 | scales 4           110 bytes
//! ```
//! Eight groups of 32 elements, eight codes each. IQ3_XXS: a u32 per group holds four times seven sign bits (the eighth follows,
//! [`grids::even_signs`]) and on top a 4-bit scale: x = d * (1/2 + scale) / 2 * sign * magnitude. IQ3_S: a sign bit per element, a
//! ninth bit per code, half a byte of scale per group: x = d * (1 + 2 scale) * sign * magnitude.

use super::{
    fields::{f16_at, sign, u32_at},
    grids,
};

pub(super) fn iq3_xxs(block: &[u8; 98], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let word = u32_at(block, 66 + 4 * g);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        for (k, out) in group.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let signs = grids::even_signs(word >> (7 * k));
            let codes = &block[2 + 8 * g + 2 * k..][..2];
            let vectors = [codes[0], codes[1]].map(|code| &grids::IQ3_XXS[usize::from(code)]);
            eight(out, scale, vectors, signs);
        }
    }
}

pub(super) fn iq3_s(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = d * (1.0 + 2.0 * f32::from(block[106 + g / 2] >> (g % 2 * 4) & 15));
        let ninth = block[66 + g];
        for (k, out) in group.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let vectors = [2 * k, 2 * k + 1].map(|i| {
                let code = usize::from(block[2 + 8 * g + i]) | usize::from(ninth >> i & 1) << 8;
                &grids::IQ3_S[code]
            });
            eight(out, scale, vectors, block[74 + 4 * g + k]);
        }
    }
}

/// Two vectors of four with their eight signs.
#[inline]
fn eight(out: &mut [f32; 8], scale: f32, vectors: [&[i8; 4]; 2], signs: u8) {
    for (half, vector) in vectors.into_iter().enumerate() {
        for (i, magnitude) in vector.iter().enumerate() {
            out[4 * half + i] = scale * f32::from(*magnitude) * sign(signs, 4 * half + i);
        }
    }
}
