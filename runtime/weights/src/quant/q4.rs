//! Q4_0 and Q4_1: 32 elements of 4 bits.
//!
//! ```text
//! Q4_0   d 2 | codes 16           x = d * (q - 8)
//! Q4_1   d 2 | m 2 | codes 16     x = d * q + m
//! ```
//! Byte `i` of the codes holds element `i` in its low half and element `i + 16` in its high half.

use super::fields::f16_at;

pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    unpack(&block[2..], out, |q| d * (f32::from(q) - 8.0));
}

pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    unpack(&block[4..], out, |q| d * f32::from(q) + m);
}

/// Low halves, then high halves, of 16 bytes of codes.
#[inline]
pub(super) fn unpack(codes: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(codes.len());
    for ((code, low), high) in codes.iter().zip(low).zip(high) {
        *low = value(code & 15);
        *high = value(code >> 4);
    }
}
