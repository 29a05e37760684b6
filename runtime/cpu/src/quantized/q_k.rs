//! Q4_K and Q5_K.
//!
//! ```text
//! d 2 x 16 | m 2 x 16 | scales 1 x 16, for each of 8 groups | minima 1 x 16, for each of 8 groups
//! x = d * scale * q - m * minimum
//! ```
//! Scales and minima take a byte instead of six bits: 4 bytes more per row and block, 2.8 and 2.3 percent.

use std::array;

use super::{
    activations::GROUP,
    header::ScaleAndMinimum,
    scheme::{Form, Header, Lanes, ROWS, Read, Scaling, Scheme, bytes},
};

pub(super) struct Q4K;
pub(super) struct Q5K;

/// Scales and minima of groups, behind the factors that all share.
pub(super) struct OfGroups;

/// Where the groups' scales and minima are in the header.
const SCALES: usize = ScaleAndMinimum::BYTES;
const MINIMA: usize = SCALES + 8 * ROWS;

impl Scheme for Q4K {
    const BITS: usize = 4;
    const BLOCK_LEN: usize = 256;
    const BLOCK_BYTES: usize = 144;
    const FORM: Form = Form::Minimum;
    type Header = OfGroups;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        half_bytes(bytes(block, 16), group)
    }
}

impl Scheme for Q5K {
    const BITS: usize = 5;
    const BLOCK_LEN: usize = 256;
    const BLOCK_BYTES: usize = 176;
    const FORM: Form = Form::Minimum;
    type Header = OfGroups;

    fn codes(block: &[u8], group: usize) -> [u8; GROUP] {
        let (low, fifth) = (half_bytes(bytes(block, 48), group), bytes::<GROUP>(block, 16));
        array::from_fn(|i| low[i] | (fifth[i] >> group & 1) << 4)
    }
}

/// 32 bytes serve two groups, by their halves.
#[inline(always)]
fn half_bytes(bytes: &[u8; 4 * GROUP], group: usize) -> [u8; GROUP] {
    let (bytes, shift) = (bytes.as_chunks::<GROUP>().0[group / 2], group % 2 * 4);
    array::from_fn(|i| bytes[i] >> shift & 15)
}

impl Header for OfGroups {
    const BYTES: usize = MINIMA + 8 * ROWS;
    type Fields = [Lanes; 2];

    fn pack(block: &[u8], row: usize, header: &mut [u8]) {
        ScaleAndMinimum::pack(block, row, header);
        for group in 0..8 {
            let (scale, minimum) = scale_and_minimum(&block[4..16], group);
            header[SCALES + group * ROWS + row] = scale;
            header[MINIMA + group * ROWS + row] = minimum;
        }
    }

    #[inline(always)]
    fn fields(header: &[u8], read: impl Read) -> [Lanes; 2] {
        ScaleAndMinimum::fields(header, read)
    }

    #[inline(always)]
    fn unpack(header: &[u8], [d, m]: &[Lanes; 2], group: usize, scaling: &mut Scaling, read: impl Read) {
        let scales = read.bytes(bytes(header, SCALES + group * ROWS));
        let minima = read.bytes(bytes(header, MINIMA + group * ROWS));
        for row in 0..ROWS {
            scaling.scales[0][row] = d[row] * scales[row];
            scaling.minima[row] = -(m[row] * minima[row]);
        }
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
