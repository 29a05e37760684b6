//! Q4_K and Q5_K.
//!
//! ```text
//! d 2 x 16 | m 2 x 16 | scales 1 x 16, for each of 8 groups | minima 1 x 16, for each of 8 groups
//! x = d * scale * q - m * minimum
//! ```
//! Scales and minima take a byte instead of six bits: 4 bytes more per row and block, 2.8 and 2.3 percent.

use super::{
    activations::GROUP,
    scheme::{Form, Lanes, Panel, ROWS, Scheme, byte_lanes, copy_f16, f16_lanes},
};

pub(super) struct Q4K;
pub(super) struct Q5K;

/// Where the groups' scales and minima are in the header.
const SCALES: usize = 4 * ROWS;
const MINIMA: usize = SCALES + 8 * ROWS;
const HEADER_BYTES: usize = MINIMA + 8 * ROWS;

impl Scheme for Q4K {
    const BITS: usize = 4;
    const BLOCK_LEN: usize = 256;
    const BLOCK_BYTES: usize = 144;
    const HEADER_BYTES: usize = HEADER_BYTES;
    const FORM: Form = Form::Minimum;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        half_bytes(&block[16..], group)
    }

    fn pack_header(block: &[u8], row: usize, header: &mut [u8]) {
        pack_header(block, row, header);
    }

    type Fields = [Lanes; 2];

    #[inline(always)]
    fn fields(header: &[u8]) -> [Lanes; 2] {
        fields(header)
    }

    #[inline(always)]
    fn unpack_header(header: &[u8], fields: &[Lanes; 2], group: usize, panel: &mut Panel) {
        unpack_header(header, fields, group, panel);
    }
}

impl Scheme for Q5K {
    const BITS: usize = 5;
    const BLOCK_LEN: usize = 256;
    const BLOCK_BYTES: usize = 176;
    const HEADER_BYTES: usize = HEADER_BYTES;
    const FORM: Form = Form::Minimum;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        let (low, fifth) = (half_bytes(&block[48..], group), &block[16..48]);
        std::array::from_fn(|i| low[i] | (fifth[i] >> group & 1) << 4)
    }

    fn pack_header(block: &[u8], row: usize, header: &mut [u8]) {
        pack_header(block, row, header);
    }

    type Fields = [Lanes; 2];

    #[inline(always)]
    fn fields(header: &[u8]) -> [Lanes; 2] {
        fields(header)
    }

    #[inline(always)]
    fn unpack_header(header: &[u8], fields: &[Lanes; 2], group: usize, panel: &mut Panel) {
        unpack_header(header, fields, group, panel);
    }
}

/// 32 bytes serve two groups, by their halves.
fn half_bytes(bytes: &[u8], group: usize) -> [u8; GROUP] {
    std::array::from_fn(|i| bytes[group / 2 * 32 + i] >> (group % 2 * 4) & 15)
}

fn pack_header(block: &[u8], row: usize, header: &mut [u8]) {
    copy_f16(block, 0, row, header, 0);
    copy_f16(block, 2, row, header, 2 * ROWS);
    for group in 0..8 {
        let (scale, minimum) = scale_and_minimum(&block[4..16], group);
        header[SCALES + group * ROWS + row] = scale;
        header[MINIMA + group * ROWS + row] = minimum;
    }
}

#[inline(always)]
fn fields(header: &[u8]) -> [Lanes; 2] {
    [f16_lanes(header, 0), f16_lanes(header, 2 * ROWS)]
}

#[inline(always)]
fn unpack_header(header: &[u8], [d, m]: &[Lanes; 2], group: usize, panel: &mut Panel) {
    let scales = byte_lanes(header, SCALES + group * ROWS, f32::from);
    let minima = byte_lanes(header, MINIMA + group * ROWS, f32::from);
    for row in 0..ROWS {
        panel.scales[0][row] = d[row] * scales[row];
        panel.minima[row] = -(m[row] * minima[row]);
    }
}

/// Six bits each. Groups 0 to 3 have theirs at the bottom of bytes `g` and `g + 4`; groups 4 to 7 have four bits in the halves of byte
/// `g + 4` and two at the top of bytes `g - 4` and `g`.
fn scale_and_minimum(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let low = packed[group + 4];
    (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
}
