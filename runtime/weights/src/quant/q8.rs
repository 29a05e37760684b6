//! Q8_0, Q8_1 and Q8_K: elements of 8 bits. The last two are made of activations while computing; files rarely hold them.
//!
//! ```text
//! Q8_0   d 2 | codes 32                        32 elements
//! Q8_1   d 2 | d * sum of codes 2 | codes 32   32 elements
//! Q8_K   d 4 | codes 256 | sums of 16 codes 2 x 16   256 elements, d is f32
//! ```
//! All: x = d * q, with q signed. The sums serve dot products.

use super::fields::{f16_at, f32_at};

pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    scale(&block[2..], f16_at(block, 0), out);
}

pub(super) fn q8_1(block: &[u8; 36], out: &mut [f32; 32]) {
    scale(&block[4..], f16_at(block, 0), out);
}

pub(super) fn q8_k(block: &[u8; 292], out: &mut [f32; 256]) {
    scale(&block[4..260], f32_at(block, 0), out);
}

#[inline]
fn scale(codes: &[u8], d: f32, out: &mut [f32]) {
    for (&code, out) in codes.iter().zip(out) {
        *out = d * f32::from(code as i8);
    }
}
