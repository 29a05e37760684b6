//! The product of unpacked tiles with quantised tokens, on processors that multiply words.
//!
//! A token's codes of 16 bits are one factor and a weight's codes, widened and with the offset taken off, are the other; an instruction adds the
//! products of two columns. That is as many multiplications as two planes of bytes take, and neither a shift between planes nor the offset
//! is left to do for each sum.

mod avx2;
mod avx512;

use super::{Sums, assert_fit};
use crate::{
    level::Level,
    quantized::{
        activations::{GROUP, Words},
        scheme::{Form, Lanes, ROWS, Scaling},
    },
};

/// Quads and pairs of columns in a group.
const QUADS: usize = GROUP / 4;
const PAIRS: usize = GROUP / 2;

/// 32 columns of 16 rows, unpacked to words.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    /// Of four columns at a time [two vectors](widened).
    pub codes: [[[i16; 2 * ROWS]; 2]; QUADS],
    pub scaling: Scaling,
}

impl Panel {
    pub const EMPTY: Panel = Panel { codes: [[[0; 2 * ROWS]; 2]; QUADS], scaling: Scaling::NONE };
}

/// Of the codes of four columns the first and third, side by side for each row, and the second and fourth.
#[inline(always)]
pub(in super::super) fn widened(form: Form, codes: &[u8; 64]) -> [[i16; 2 * ROWS]; 2] {
    let offset = i16::from(form.offset());
    let mut words = [[0; 2 * ROWS]; 2];
    for (i, pair) in codes.as_chunks::<2>().0.iter().enumerate() {
        let pair = u16::from_le_bytes(*pair);
        words[0][i] = (pair & 255) as i16 - offset;
        words[1][i] = (pair >> 8) as i16 - offset;
    }
    words
}

/// Whether a level has a kernel of this kind.
pub(in super::super) fn is_for(level: Level) -> bool {
    level != Level::Scalar
}

/// As [`accumulate`](super::accumulate).
///
/// # Panics
/// If there are more tiles, more tokens than sums, or the numbers of groups differ; or if the level has no kernel of this kind.
pub(in super::super) fn accumulate(level: Level, form: Form, tiles: &[&[Panel]], x: &[&[Words]], sums: &mut [Sums]) {
    assert_fit(tiles, x, sums);
    match level {
        Level::Scalar => unreachable!("a level with a kernel of this kind"),
        // SAFETY: a level is only made where the processor has its instruction sets.
        Level::Avx2 => unsafe { avx2::without_vnni::accumulate(form, tiles, x, sums) },
        // SAFETY: as above.
        Level::AvxVnni => unsafe { avx2::with_vnni::accumulate(form, tiles, x, sums) },
        // SAFETY: as above. The matrix unit has kernels of its own.
        Level::Avx512Vnni | Level::Amx => unsafe { avx512::accumulate(form, tiles, x, sums) },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::quantized::scheme;

    /// With panels and tokens yet to be made words.
    pub fn accumulate_unpacked(
        level: Level,
        form: Form,
        tiles: &[&[scheme::Panel]],
        x: &[Vec<f32>],
        sums: &mut [Sums],
    ) {
        let words = |panel: &scheme::Panel| Panel {
            codes: panel.codes.each_ref().map(|codes| widened(form, codes)),
            scaling: panel.scaling.clone(),
        };
        let tiles: Vec<Vec<Panel>> = tiles.iter().map(|tile| tile.iter().map(words).collect()).collect();
        let tiles: Vec<&[Panel]> = tiles.iter().map(Vec::as_slice).collect();
        let quantised = |x: &Vec<f32>| {
            let mut words = vec![Words::NONE; x.len() / GROUP];
            Words::fill(level, x, &mut words);
            words
        };
        let x: Vec<Vec<Words>> = x.iter().map(quantised).collect();
        let x: Vec<&[Words]> = x.iter().map(Vec::as_slice).collect();
        accumulate(level, form, &tiles, &x, sums);
    }
}
