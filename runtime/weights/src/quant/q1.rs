//! Q1_0 and Q2_0: one and two bits under one scale.
//!
//! ```text
//! Q1_0   d 2 | codes 16      128 elements,  x = d if the bit is set, else -d
//! Q2_0   d 2 | codes 16       64 elements,  x = d * (q - 1)
//! ```
//! Elements follow each other from the lowest bits of the first byte on.

use super::fields::{f16_at, sign};

pub(super) fn q1_0(block: &[u8; 18], out: &mut [f32; 128]) {
    let d = f16_at(block, 0);
    for (code, out) in block[2..].iter().zip(out.as_chunks_mut::<8>().0) {
        for (k, out) in out.iter_mut().enumerate() {
            *out = -d * sign(*code, k);
        }
    }
}

pub(super) fn q2_0(block: &[u8; 18], out: &mut [f32; 64]) {
    let d = f16_at(block, 0);
    for (code, out) in block[2..].iter().zip(out.as_chunks_mut::<4>().0) {
        for (k, out) in out.iter_mut().enumerate() {
            *out = d * (f32::from(code >> (2 * k) & 3) - 1.0);
        }
    }
}
