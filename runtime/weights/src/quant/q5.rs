//! Q5_0 and Q5_1: 32 elements of 5 bits, the fifth apart.
//!
//! ```text
//! Q5_0   d 2 | high bits 4 | codes 16           x = d * (q - 16)
//! Q5_1   d 2 | m 2 | high bits 4 | codes 16     x = d * q + m
//! ```
//! Byte `i` of the codes holds the low four bits of elements `i` and `i + 16`; bit `i` of the u32 of high bits is element `i`'s fifth.

use super::fields::{f16_at, u32_at};

pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    unpack(&block[6..], u32_at(block, 2), out, |q| d * (f32::from(q) - 16.0));
}

pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    unpack(&block[8..], u32_at(block, 4), out, |q| d * f32::from(q) + m);
}

#[inline]
fn unpack(codes: &[u8], high_bits: u32, out: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let fifth = |i: usize| ((high_bits >> i & 1) << 4) as u8;
    let (low, high) = out.split_at_mut(16);
    for (i, ((code, low), high)) in codes.iter().zip(low).zip(high).enumerate() {
        *low = value(code & 15 | fifth(i));
        *high = value(code >> 4 | fifth(i + 16));
    }
}
