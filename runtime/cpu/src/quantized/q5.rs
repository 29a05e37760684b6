//! Q5_0 and Q5_1.
//!
//! ```text
//! Q5_0   d 2 x 16             x = d * (q - 16)
//! Q5_1   d 2 x 16 | m 2 x 16  x = d * q + m
//! ```

use super::{
    activations::GROUP,
    q4::nibbles,
    scheme::{Form, Lanes, Panel, Scheme, copy_f16, f16_lanes},
};

pub(super) struct Q5_0;
pub(super) struct Q5_1;

impl Scheme for Q5_0 {
    const BITS: usize = 5;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 22;
    const HEADER_BYTES: usize = 32;
    const FORM: Form = Form::Offset(16);

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        with_fifth_bits(&block[6..], &block[2..6])
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

impl Scheme for Q5_1 {
    const BITS: usize = 5;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 24;
    const HEADER_BYTES: usize = 64;
    const FORM: Form = Form::Minimum;

    fn codes(block: &[u8], _group: usize) -> [u8; GROUP] {
        with_fifth_bits(&block[8..], &block[4..8])
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

/// Bit `i` of `fifth` is that of element `i`.
fn with_fifth_bits(low: &[u8], fifth: &[u8]) -> [u8; GROUP] {
    let low = nibbles(low);
    std::array::from_fn(|i| low[i] | (fifth[i / 8] >> (i % 8) & 1) << 4)
}
