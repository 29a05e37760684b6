//! Scales and minima that several schemes lay out alike, and the fields they are made of: each holds a value of all 16 rows.

use super::scheme::{Header, Lanes, Panel, ROWS};
use crate::f16::f16_to_f32;

/// `d 2 x 16`, from the first two bytes of a block.
pub(super) struct Scale;

/// `d 2 x 16 | m 2 x 16`, from the first four bytes of a block.
pub(super) struct ScaleAndMinimum;

impl Header for Scale {
    const BYTES: usize = 2 * ROWS;
    type Fields = Lanes;

    fn pack(block: &[u8], row: usize, header: &mut [u8]) {
        copy_f16(block, 0, row, header, 0);
    }

    #[inline(always)]
    fn fields(header: &[u8]) -> Lanes {
        f16_lanes(header, 0)
    }

    #[inline(always)]
    fn unpack(_header: &[u8], d: &Lanes, _group: usize, panel: &mut Panel) {
        panel.scales[0] = *d;
    }
}

impl Header for ScaleAndMinimum {
    const BYTES: usize = 4 * ROWS;
    type Fields = [Lanes; 2];

    fn pack(block: &[u8], row: usize, header: &mut [u8]) {
        copy_f16(block, 0, row, header, 0);
        copy_f16(block, 2, row, header, 2 * ROWS);
    }

    #[inline(always)]
    fn fields(header: &[u8]) -> [Lanes; 2] {
        [f16_lanes(header, 0), f16_lanes(header, 2 * ROWS)]
    }

    #[inline(always)]
    fn unpack(_header: &[u8], [d, m]: &[Lanes; 2], _group: usize, panel: &mut Panel) {
        (panel.scales[0], panel.minima) = (*d, *m);
    }
}

/// Copies `row`'s two bytes of an f16 from `block` to the field at `at`.
pub(super) fn copy_f16(block: &[u8], from: usize, row: usize, header: &mut [u8], at: usize) {
    header[at + 2 * row..][..2].copy_from_slice(&block[from..from + 2]);
}

/// The f16 field at `at`.
#[inline(always)]
pub(super) fn f16_lanes(header: &[u8], at: usize) -> Lanes {
    let field = header[at..at + 2 * ROWS].as_chunks::<2>().0;
    let mut lanes = [0.0; ROWS];
    for (lane, bytes) in lanes.iter_mut().zip(field) {
        *lane = f16_to_f32(u16::from_le_bytes(*bytes));
    }
    lanes
}

/// The byte field at `at`, each through `value`.
#[inline(always)]
pub(super) fn byte_lanes(header: &[u8], at: usize, value: impl Fn(u8) -> f32) -> Lanes {
    let field = &header[at..at + ROWS];
    let mut lanes = [0.0; ROWS];
    for (lane, byte) in lanes.iter_mut().zip(field) {
        *lane = value(*byte);
    }
    lanes
}
