//! Q5_0 and Q5_1.
//!
//! ```text
//! Q5_0   d 2 x 16             x = d * (q - 16)
//! Q5_1   d 2 x 16 | m 2 x 16  x = d * q + m
//! ```

use std::array;

use super::{
    activations::GROUP,
    header::{Scale, ScaleAndMinimum},
    q4::nibbles,
    scheme::{Form, Scheme, bytes},
};

pub(super) struct Q5_0;
pub(super) struct Q5_1;

impl Scheme for Q5_0 {
    const BITS: usize = 5;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 22;
    const FORM: Form = Form::Offset(16);
    type Header = Scale;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        with_fifth_bits(bytes(block, 6), bytes(block, 2))
    }
}

impl Scheme for Q5_1 {
    const BITS: usize = 5;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 24;
    const FORM: Form = Form::Minimum;
    type Header = ScaleAndMinimum;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        with_fifth_bits(bytes(block, 8), bytes(block, 4))
    }
}

/// Bit `i` of `fifth` is that of element `i`.
#[inline(always)]
fn with_fifth_bits(low: &[u8; GROUP / 2], fifth: &[u8; GROUP / 8]) -> [u8; GROUP] {
    let low = nibbles(low);
    array::from_fn(|i| low[i] | (fifth[i / 8] >> (i % 8) & 1) << 4)
}
