//! Q8_0.
//!
//! ```text
//! d 2 x 16      x = d * (q - 128), where q is the stored code plus 128
//! ```

use super::{
    activations::GROUP,
    scheme::{Form, Lanes, Panel, Scheme, copy_f16, f16_lanes},
};

pub(super) struct Q8_0;

impl Scheme for Q8_0 {
    const BITS: usize = 8;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 34;
    const HEADER_BYTES: usize = 32;
    const FORM: Form = Form::Offset(128);

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        std::array::from_fn(|i| block[2 + i] ^ 128)
    }

    fn pack_header(block: &[u8], row: usize, header: &mut [u8]) {
        copy_f16(block, 0, row, header, 0);
    }

    type Fields = Lanes;

    #[inline(always)]
    fn fields(header: &[u8]) -> Lanes {
        f16_lanes(header, 0)
    }

    #[inline(always)]
    fn unpack_header(_header: &[u8], d: &Lanes, _group: usize, panel: &mut Panel) {
        panel.scales[0] = *d;
    }
}
