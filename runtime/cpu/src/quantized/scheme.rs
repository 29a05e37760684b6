//! What a quantisation scheme tells the kernels.

use std::array;

#[cfg(target_arch = "x86_64")]
use super::activations::OFFSETS;
use super::{activations::GROUP, header::Portable};
use crate::{
    prefetch::{LINE, first_level, second_level},
    team::share,
};

/// Rows of a tile, one per lane of a 512-bit register.
pub(super) const ROWS: usize = 16;

/// A value per row of a tile.
pub(super) type Lanes = [f32; ROWS];

/// 32 columns of 16 rows, unpacked: what the kernels read.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Panel {
    /// Byte `4 r + c` of vector `k` is row `r`, column `4 k + c`.
    pub codes: [[u8; 64]; 8],
    pub scaling: Scaling,
}

impl Panel {
    pub const EMPTY: Panel = Panel { codes: [[0; 64]; 8], scaling: Scaling::NONE };
}

/// What codes of 32 columns of 16 rows stand for.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Scaling {
    /// Scales of the columns, or of each half of them.
    pub scales: [Lanes; 2],
    /// What is added to every weight.
    pub minima: Lanes,
}

impl Scaling {
    pub const NONE: Scaling = Scaling { scales: [[0.0; ROWS]; 2], minima: [0.0; ROWS] };
}

/// How codes stand for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `scale · (code - offset)`
    Offset(u8),
    /// `scale · (code - offset)`, with a scale for each 16 columns.
    OffsetOfHalves(u8),
    /// `scale · code + minimum`
    Minimum,
}

impl Form {
    pub fn offset(self) -> u8 {
        match self {
            Form::Offset(offset) | Form::OffsetOfHalves(offset) => offset,
            Form::Minimum => 0,
        }
    }

    /// Which of the [offsets of bytes](super::activations::OFFSETS) this form has, the first one if none.
    #[cfg(target_arch = "x86_64")]
    pub fn start(self) -> usize {
        OFFSETS.iter().position(|offset| *offset == self.offset()).unwrap_or(0)
    }
}

/// A scheme: where things are in a stored block.
///
/// A tile of 16 rows and one block of columns is
/// ```text
/// header | per 32 columns: high bits 64 x (BITS - 4) | low bits 256
/// ```
/// Byte `i` of the four vectors of low bits holds vector `j`'s code in its low half and vector `j + 4`'s in its high half, as in
/// [`Panel::codes`]. With 5 bits, bit `k` of byte `i` of the high bits is vector `k`'s; with 6 bits, a pair of bits of the first 64 bytes is
/// one of vectors 0 to 3, and of the second of vectors 4 to 7. Codes of 8 bits are 512 bytes as they are.
pub(super) trait Scheme {
    /// Bits of a code.
    const BITS: usize;
    /// Columns of a stored block.
    const BLOCK_LEN: usize;
    /// Bytes of a stored block.
    const BLOCK_BYTES: usize;
    const FORM: Form;
    /// Scales and minima.
    type Header: Header;
    /// Bytes of a tile.
    const TILE_BYTES: usize = Self::Header::BYTES + Self::BLOCK_LEN / GROUP * Self::GROUP_BYTES;
    /// Bytes of a tile for 32 columns, their share of the header included.
    #[cfg(target_arch = "x86_64")]
    const BYTES_PER_GROUP: usize = Self::TILE_BYTES * GROUP / Self::BLOCK_LEN;
    /// Bytes of a tile's codes for 32 columns.
    const GROUP_BYTES: usize = 64 * Self::BITS;

    /// The codes of 32 columns of a stored block, none negative.
    fn codes(block: &[u8], group: usize) -> [u8; GROUP];
}

/// How scales and minima are stored in a block, and laid out in a tile.
pub(super) trait Header {
    /// Bytes of 16 rows.
    const BYTES: usize;
    /// What all groups of a block have in common.
    type Fields;

    /// Puts the scales and minima of a stored block at `row` of a tile's header.
    fn pack(block: &[u8], row: usize, header: &mut [u8]);

    /// Reads the fields in front of the groups' own.
    fn fields(header: &[u8], read: impl Read) -> Self::Fields;

    /// Scales and minima of 32 columns, in the arithmetic of the dequantiser.
    fn unpack(header: &[u8], fields: &Self::Fields, group: usize, scaling: &mut Scaling, read: impl Read);
}

/// How numbers of a header become f32.
pub(super) trait Read: Copy {
    /// Of f16. NaN stays some NaN.
    fn halves(self, field: &[u8; 2 * ROWS]) -> Lanes;

    /// Of u8.
    fn bytes(self, field: &[u8; ROWS]) -> Lanes;

    /// Of i8.
    fn signed_bytes(self, field: &[u8; ROWS]) -> Lanes;
}

/// Lays out the stored `block` as row `row` of `tile`.
pub(super) fn pack<S: Scheme>(block: &[u8], row: usize, tile: &mut [u8]) {
    let (header, groups) = tile.split_at_mut(S::Header::BYTES);
    S::Header::pack(block, row, header);
    for (g, out) in groups.chunks_exact_mut(S::GROUP_BYTES).enumerate() {
        let codes = S::codes(block, g);
        let codes = codes.as_chunks::<4>().0;
        let vectors = out.as_chunks_mut::<64>().0;
        let mut put = |vector: usize, bytes: [u8; 4]| vectors[vector].as_chunks_mut().0[row] = bytes;
        if S::BITS == 8 {
            codes.iter().enumerate().for_each(|(k, codes)| put(k, *codes));
            continue;
        }
        for j in 0..4 {
            put(S::BITS - 4 + j, array::from_fn(|i| codes[j][i] & 15 | codes[j + 4][i] << 4));
        }
        // What is above four bits, of all vectors or of one half and the other.
        let high = |k: usize, i: usize| codes[k][i] >> 4;
        match S::BITS {
            5 => put(0, array::from_fn(|i| (0..8).fold(0, |bits, k| bits | high(k, i) << k))),
            6 => (0..2).for_each(|half| {
                put(half, array::from_fn(|i| (0..4).fold(0, |bits, k| bits | high(4 * half + k, i) << (2 * k))));
            }),
            _ => {}
        }
    }
}

/// The `N` bytes of a block from `at` on.
#[inline(always)]
pub(super) fn bytes<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a whole block")
}

/// Unpacks group `group` of `tile`: gives the vectors of codes to `put`, with their number.
#[inline(always)]
pub(super) fn unpack<S: Scheme>(
    tile: &[u8],
    fields: &<S::Header as Header>::Fields,
    group: usize,
    scaling: &mut Scaling,
    mut put: impl FnMut(usize, [u8; 64]),
) {
    let (header, groups) = tile.split_at(S::Header::BYTES);
    S::Header::unpack(header, fields, group, scaling, Portable);
    let vectors = groups[group * S::GROUP_BYTES..][..S::GROUP_BYTES].as_chunks::<64>().0;
    if S::BITS == 8 {
        vectors.iter().enumerate().for_each(|(k, codes)| put(k, *codes));
        return;
    }
    let (high, low) = vectors.split_at(S::BITS - 4);
    for (j, low) in low.iter().enumerate() {
        for (k, shift) in [(j, 0), (j + 4, 4)] {
            // Into an array of its own, which the compiler knows not to overlap with the tile.
            let mut codes = [0; 64];
            for i in 0..64 {
                let high = match S::BITS {
                    5 => (high[0][i] >> k & 1) << 4,
                    6 => (high[k / 4][i] >> (2 * (k % 4)) & 3) << 4,
                    _ => 0,
                };
                codes[i] = low[i] >> shift & 15 | high;
            }
            put(k, codes);
        }
    }
}

/// How far ahead weights are asked for: into the second-level cache, which can wait for three times as many lines at once as the first, and
/// from there into the first.
pub(super) const FAR_BYTES: usize = 16 * 1024;
const NEAR_BYTES: usize = 1024;

/// Asks for the `part`-th of `n_parts` of the lines of the `n` bytes that lie `far_bytes` and [`NEAR_BYTES`] behind the start of `at`. Tiles follow
/// one another in the order in which they are read. Lines asked for all at once take every buffer there is for lines on their way,
/// and then what the kernel loads next waits behind them; between multiplications they are asked for as fast as they come.
#[inline(always)]
pub(super) fn prefetch_part(at: &[u8], n: usize, far_bytes: usize, part: usize, n_parts: usize) {
    for line in share(n.div_ceil(LINE), part, n_parts) {
        let at = at.as_ptr().wrapping_add(LINE * line);
        second_level(at.wrapping_add(far_bytes));
        first_level(at.wrapping_add(NEAR_BYTES));
    }
}
