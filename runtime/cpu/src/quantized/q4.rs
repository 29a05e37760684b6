//! Q4_0 and Q4_1.
//!
//! ```text
//! Q4_0   d 2 x 16             x = d * (q - 8)
//! Q4_1   d 2 x 16 | m 2 x 16  x = d * q + m
//! ```

use std::array;

use super::{
    activations::GROUP,
    header::{Scale, ScaleAndMinimum},
    scheme::{Form, Scheme, bytes},
};

pub(super) struct Q4_0;
pub(super) struct Q4_1;

impl Scheme for Q4_0 {
    const BITS: usize = 4;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 18;
    const FORM: Form = Form::Offset(8);
    type Header = Scale;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        nibbles(bytes(block, 2))
    }
}

impl Scheme for Q4_1 {
    const BITS: usize = 4;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 20;
    const FORM: Form = Form::Minimum;
    type Header = ScaleAndMinimum;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        nibbles(bytes(block, 4))
    }
}

/// Sixteen low halves, then sixteen high halves.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8; GROUP / 2]) -> [u8; GROUP] {
    array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}
