//! 16 positions by 16 elements of a head's keys, either way round.

use super::LANES;
use crate::level::Level;

/// Each row is a line of the processor's cache: the elements of a position, or the positions of an element.
pub(crate) type Tile = [[f32; LANES]; LANES];

/// Makes rows of columns, and so undoes itself.
///
/// Every row of the upper half is interleaved with its like of the lower, four times. That moves the four bits of a number's row and the four of its
/// column by one place, round and round, so that in the end each is where the other was.
pub(crate) fn turn(level: Level, tiles: &mut [Tile]) {
    match level {
        // SAFETY: a level is only made where the processor has its instruction sets.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni | Level::Amx => unsafe { avx512::turn(tiles) },
        _ => turn_with_the_baseline(tiles),
    }
}

fn turn_with_the_baseline(tiles: &mut [Tile]) {
    for tile in tiles {
        for _ in 0..LANES.ilog2() {
            *tile = interleaved(tile);
        }
    }
}

fn interleaved(tile: &Tile) -> Tile {
    let mut out = [[0.0; LANES]; LANES];
    for r in 0..LANES / 2 {
        let (upper, lower) = (tile[r], tile[r + LANES / 2]);
        for i in 0..LANES / 2 {
            out[2 * r][2 * i] = upper[i];
            out[2 * r][2 * i + 1] = lower[i];
            out[2 * r + 1][2 * i] = upper[LANES / 2 + i];
            out[2 * r + 1][2 * i + 1] = lower[LANES / 2 + i];
        }
    }
    out
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{LANES, Tile};

    #[target_feature(enable = "avx512f")]
    pub(super) fn turn(tiles: &mut [Tile]) {
        for tile in tiles {
            let mut rows = [_mm512_setzero_ps(); LANES];
            for r in 0..LANES {
                // SAFETY: a row is as long as the register.
                rows[r] = unsafe { _mm512_loadu_ps(tile[r].as_ptr()) };
            }
            let rows = interleaved(interleaved(interleaved(interleaved(rows))));
            for r in 0..LANES {
                // SAFETY: a row is as long as the register.
                unsafe { _mm512_storeu_ps(tile[r].as_mut_ptr(), rows[r]) };
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn interleaved(rows: [__m512; LANES]) -> [__m512; LANES] {
        /// The lower half has 16 in its numbers.
        const FIRST: [i32; LANES] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
        let first = {
            // SAFETY: as long as the register.
            unsafe { _mm512_loadu_si512(FIRST.as_ptr().cast()) }
        };
        let second = _mm512_add_epi32(first, _mm512_set1_epi32(LANES as i32 / 2));
        let mut out = rows;
        for r in 0..LANES / 2 {
            out[2 * r] = _mm512_permutex2var_ps(rows[r], first, rows[r + LANES / 2]);
            out[2 * r + 1] = _mm512_permutex2var_ps(rows[r], second, rows[r + LANES / 2]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns_bit_by_bit_and_again_rows() {
        // None of them is a number.
        let bits = |r: usize, c: usize| 0x7fa0_0000 | (r << 8 | c) as u32;
        let tile: Tile = std::array::from_fn(|r| std::array::from_fn(|c| f32::from_bits(bits(r, c))));
        for level in Level::available() {
            let mut tiles = [[[0.0; LANES]; LANES], tile];
            turn(level, &mut tiles);
            let found = |r: usize, c: usize| tiles[1][r][c].to_bits();
            assert!((0..LANES).all(|r| (0..LANES).all(|c| found(r, c) == bits(c, r))), "{level:?}");
            turn(level, &mut tiles);
            assert!(tiles[0] == [[0.0; LANES]; LANES] && tiles[1][3][5].to_bits() == bits(3, 5), "{level:?}");
        }
    }
}
