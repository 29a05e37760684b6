//! IQ1_S and IQ1_M: 256 elements, eight at a time from a codebook of ternary vectors, shifted up or down by an eighth.
//!
//! ```text
//! IQ1_S   d 2 | codes 32 | (high code bits, scale, shift) 2 x 8     50 bytes
//! IQ1_M   codes 32 | high code bits and shifts 16 | scales 2 x 4    56 bytes
//! ```
//! x = d * (1 + 2 scale) * (ternary +- 1/8). IQ1_S: per 32 elements a u16 of four times three high code bits, a 3-bit scale, and on top
//! the shift's sign. IQ1_M: half a byte per code of three high bits and the sign; 3-bit scales per 16 elements, four to a u16,
//! whose top four bits together are the f16 `d`, lowest part first.

use half::f16;

use super::{
    fields::{f16_at, u16_at},
    grids,
};

/// What every element is shifted by.
const SHIFT: f32 = 0.125;

pub(super) fn iq1_s(block: &[u8; 50], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (g, group) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let word = u16_at(block, 34 + 2 * g);
        let scale = d * (2.0 * f32::from(word >> 12 & 7) + 1.0);
        let shift = if word & 0x8000 == 0 { SHIFT } else { -SHIFT };
        for (k, out) in group.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            eight(out, scale, block[2 + 4 * g + k], word >> (3 * k) & 7, shift);
        }
    }
}

pub(super) fn iq1_m(block: &[u8; 56], out: &mut [f32; 256]) {
    let words = [48, 50, 52, 54].map(|at| u16_at(block, at));
    let [a, b, c, e] = words.map(|word| word >> 12);
    let d = f16::from_bits(a | b << 4 | c << 8 | e << 12).to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = words[i / 8] >> (i / 2 % 4 * 3) & 7;
        let scale = d * (2.0 * f32::from(scale) + 1.0);
        let nibble = block[32 + i / 2] >> (i % 2 * 4) & 15;
        let shift = if nibble & 8 == 0 { SHIFT } else { -SHIFT };
        eight(out, scale, block[i], u16::from(nibble & 7), shift);
    }
}

#[inline]
fn eight(out: &mut [f32; 8], scale: f32, code: u8, high: u16, shift: f32) {
    let vector = &grids::IQ1[usize::from(code) | usize::from(high & 7) << 8];
    for (ternary, out) in vector.iter().zip(out) {
        *out = scale * (f32::from(*ternary) + shift);
    }
}
