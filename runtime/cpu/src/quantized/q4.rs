//! Q4_0 and Q4_1.
//!
//! ```text
//! Q4_0   d 2 x 16             x = d * (q - 8)
//! Q4_1   d 2 x 16 | m 2 x 16  x = d * q + m
//! ```

use super::{
    activations::GROUP,
    scheme::{Form, Lanes, Panel, Scheme, copy_f16, f16_lanes},
};

pub(super) struct Q4_0;
pub(super) struct Q4_1;

impl Scheme for Q4_0 {
    const BITS: usize = 4;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 18;
    const HEADER_BYTES: usize = 32;
    const FORM: Form = Form::Offset(8);

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        nibbles(&block[2..])
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

impl Scheme for Q4_1 {
    const BITS: usize = 4;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 20;
    const HEADER_BYTES: usize = 64;
    const FORM: Form = Form::Minimum;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        nibbles(&block[4..])
    }

    fn pack_header(block: &[u8], row: usize, header: &mut [u8]) {
        copy_f16(block, 0, row, header, 0);
        copy_f16(block, 2, row, header, 32);
    }

    type Fields = [Lanes; 2];

    #[inline(always)]
    fn fields(header: &[u8]) -> [Lanes; 2] {
        [f16_lanes(header, 0), f16_lanes(header, 32)]
    }

    #[inline(always)]
    fn unpack_header(_header: &[u8], [d, m]: &[Lanes; 2], _group: usize, panel: &mut Panel) {
        (panel.scales[0], panel.minima) = (*d, *m);
    }
}

/// Sixteen low halves, then sixteen high halves.
pub(super) fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}
