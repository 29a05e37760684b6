//! Q8_0.
//!
//! ```text
//! d 2 x 16      x = d * (q - 128), where q is the stored code plus 128
//! ```

use super::{
    activations::GROUP,
    header::Scale,
    scheme::{Form, Scheme, bytes},
};

pub(super) struct Q8_0;

impl Scheme for Q8_0 {
    const BITS: usize = 8;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 34;
    const FORM: Form = Form::Offset(128);
    type Header = Scale;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        bytes(block, 2).map(|code| code ^ 128)
    }
}
