//! Scales and minima that several schemes lay out alike, and the fields they are made of: each holds a value of all 16 rows.

use super::scheme::{Header, Lanes, ROWS, Read, Scaling, bytes};
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
    fn fields(header: &[u8], read: impl Read) -> Lanes {
        read.halves(bytes(header, 0))
    }

    #[inline(always)]
    fn unpack(_header: &[u8], d: &Lanes, _group: usize, scaling: &mut Scaling, _read: impl Read) {
        scaling.scales[0] = *d;
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
    fn fields(header: &[u8], read: impl Read) -> [Lanes; 2] {
        [read.halves(bytes(header, 0)), read.halves(bytes(header, 2 * ROWS))]
    }

    #[inline(always)]
    fn unpack(_header: &[u8], [d, m]: &[Lanes; 2], _group: usize, scaling: &mut Scaling, _read: impl Read) {
        (scaling.scales[0], scaling.minima) = (*d, *m);
    }
}

/// Copies `row`'s two bytes of an f16 from `block` to the field at `at`.
pub(super) fn copy_f16(block: &[u8], from: usize, row: usize, header: &mut [u8], at: usize) {
    header[at + 2 * row..][..2].copy_from_slice(&block[from..from + 2]);
}

/// On every processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Read for Portable {
    #[inline(always)]
    fn halves(self, field: &[u8; 2 * ROWS]) -> Lanes {
        let mut lanes = [0.0; ROWS];
        for (lane, bytes) in lanes.iter_mut().zip(field.as_chunks::<2>().0) {
            *lane = f16_to_f32(u16::from_le_bytes(*bytes));
        }
        lanes
    }

    #[inline(always)]
    fn bytes(self, field: &[u8; ROWS]) -> Lanes {
        let mut lanes = [0.0; ROWS];
        for (lane, byte) in lanes.iter_mut().zip(field) {
            *lane = f32::from(*byte);
        }
        lanes
    }

    #[inline(always)]
    fn signed_bytes(self, field: &[u8; ROWS]) -> Lanes {
        let mut lanes = [0.0; ROWS];
        for (lane, byte) in lanes.iter_mut().zip(field) {
            *lane = f32::from(*byte as i8);
        }
        lanes
    }
}
