//! Activations and weights as sums of BF16, as a matrix unit reads them.
//!
//! An f32 has 24 significant bits and a BF16 has 8: the sum of two is within 2⁻¹⁷ of the activation's magnitude. A weight in F16, of 11 bits, is the
//! sum of two, and one in BF16 is one.
//!
//! ```text
//! tokens 0..16:  columns 0..32: high 1 KiB | low 1 KiB || columns 32..64: …      tokens 16..32:  …
//! ```
//! Tokens and columns that are not there are zeros.

use std::ops::Range;

use super::kernel::{
    ROWS,
    matrix::{COLUMNS, PLANES, Step, TOKENS, Tile},
};
use crate::{
    buffers::{Buffer, Buffers},
    level::{Level, compiled_per_level},
    team::Team,
};

/// The inputs of a projection in planes.
pub(crate) struct Planes<'t> {
    n_tokens: usize,
    n_steps: usize,
    /// `[tokens / 16, columns / 32]`
    tiles: Buffer<'t, Tile>,
}

/// Memory for them.
pub(crate) type PlaneBuffers = Buffers<Tile>;

impl<'t> Planes<'t> {
    /// Of `x`, `[tokens, n_cols]`.
    pub fn new(team: &'t Team, x: &[f32], n_cols: usize) -> Planes<'t> {
        let (n_tokens, n_steps) = (x.len() / n_cols, n_cols.div_ceil(COLUMNS));
        let mut tiles = team.planes.take(n_tokens.div_ceil(TOKENS) * n_steps, Tile::ZERO);
        team.for_each_chunk(&mut tiles, n_steps, |i, tiles| {
            let first = i * TOKENS;
            let last = (first + TOKENS).min(n_tokens);
            split_tokens(Level::current(), &x[first * n_cols..last * n_cols], n_cols, tiles);
        });
        Planes { n_tokens, n_steps, tiles }
    }

    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Runs of 32 columns.
    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// Some steps of the `i`-th 16 tokens.
    pub fn tile(&self, i: usize, steps: Range<usize>) -> &[Tile] {
        &self.tiles[i * self.n_steps..][steps]
    }
}

compiled_per_level!(split_tokens = split_each_token [] (x: &[f32], n_cols: usize, tiles: &mut [Tile]));

/// Up to 16 tokens to their tiles.
#[inline(always)]
fn split_each_token(x: &[f32], n_cols: usize, tiles: &mut [Tile]) {
    let n_tokens = x.len() / n_cols;
    for (i, tile) in tiles.iter_mut().enumerate() {
        for token in 0..TOKENS {
            let mut columns = [0.0; COLUMNS];
            if token < n_tokens {
                let x = &x[token * n_cols..][..n_cols][i * COLUMNS..];
                match x.first_chunk() {
                    Some(x) => columns = *x,
                    None => columns[..x.len()].copy_from_slice(x),
                }
            }
            [tile.0[0][token], tile.0[1][token]] = split(columns);
        }
    }
}

/// The high and the low parts of some numbers, each rounded. What is not finite is its own high part.
#[inline(always)]
fn split<const N: usize>(x: [f32; N]) -> [[u16; N]; PLANES] {
    let mut planes = [[0; N]; PLANES];
    for i in 0..N {
        let high = rounded(x[i]);
        let rest = if x[i].abs() < f32::INFINITY { x[i] - f32::from_bits(high) } else { 0.0 };
        planes[0][i] = (high >> 16) as u16;
        planes[1][i] = (rounded(rest) >> 16) as u16;
    }
    planes
}

/// The BF16 next to `x`, as f32, but for infinity, which only comes from itself.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let (sign, magnitude, infinity) = (bits & 0x8000_0000, bits & 0x7fff_ffff, 0x7f80_0000);
    let nearest = magnitude + 0x7fff + (magnitude >> 16 & 1);
    let magnitude = match nearest < infinity {
        true => nearest,
        // One of the bits that a NaN keeps.
        false if magnitude > infinity => magnitude | 0x0040_0000,
        false => magnitude,
    };
    (sign | magnitude) & 0xffff_0000
}

/// Pairs of columns of a strip to steps of so many planes; columns that are not there are zeros.
pub(super) fn split_weights(level: Level, pairs: &[[[f32; ROWS]; 2]], n_planes: usize, steps: &mut [Step]) {
    split(level, pairs, n_planes, steps);
    compiled_per_level!(split = split_each_pair [] (pairs: &[[[f32; ROWS]; 2]], n_planes: usize, steps: &mut [Step]));
}

#[inline(always)]
fn split_each_pair(pairs: &[[[f32; ROWS]; 2]], n_planes: usize, steps: &mut [Step]) {
    for (i, step) in steps.chunks_exact_mut(n_planes).enumerate() {
        for p in 0..COLUMNS / 2 {
            let pair = pairs.get(i * COLUMNS / 2 + p).unwrap_or(&[[0.0; ROWS]; 2]);
            let (first, second) = (split(pair[0]), split(pair[1]));
            for (plane, step) in step.iter_mut().enumerate() {
                let mut words = [[0; 2]; ROWS];
                for row in 0..ROWS {
                    words[row] = [first[plane][row], second[plane][row]];
                }
                step.0[p] = words;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    fn sum(planes: [u16; PLANES]) -> f64 {
        planes.into_iter().map(|plane| bf16::from_bits(plane).to_f64()).sum()
    }

    #[test]
    fn every_activation_is_where_its_planes_say() {
        let team = Team::new(2);
        for (n_tokens, n_cols) in [(1usize, 1usize), (16, 32), (17, 31), (47, 100), (33, 1024)] {
            let x: Vec<f32> =
                (0..n_tokens * n_cols).map(|i| (i as f32 * 0.713).sin() * (1.0 + (i % 7) as f32)).collect();
            // Memory that was used before is not zero.
            let n_tiles = n_tokens.div_ceil(TOKENS) * n_cols.div_ceil(COLUMNS);
            team.planes.take(n_tiles, Tile::ZERO).fill(Tile([[[0x3f80; COLUMNS]; TOKENS]; PLANES]));
            let planes = Planes::new(&team, &x, n_cols);
            assert_eq!((planes.n_tokens(), planes.n_steps()), (n_tokens, n_cols.div_ceil(COLUMNS)));
            for token in 0..n_tokens.next_multiple_of(TOKENS) {
                for column in 0..n_cols.next_multiple_of(COLUMNS) {
                    let step = column / COLUMNS;
                    let tile = &planes.tile(token / TOKENS, step..step + 1)[0];
                    let found = sum([0, 1].map(|plane| tile.0[plane][token % TOKENS][column % COLUMNS]));
                    let there = token < n_tokens && column < n_cols;
                    let expected = if there { f64::from(x[token * n_cols + column]) } else { 0.0 };
                    assert!((found - expected).abs() <= expected.abs() / 131_072.0, "{found} for {expected}");
                }
            }
        }
    }

    #[test]
    fn a_number_is_the_sum_of_its_planes() {
        let mut state = 9u32;
        let random = (0..10_000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(state)
        });
        let chosen =
            [0.0, -0.0, 1.0, 1.0 + f32::EPSILON, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-40, 3.0e38, 65504.0];
        for x in random.chain(chosen).filter(|x| x.is_finite()) {
            let planes = split([x]).map(|plane| plane[0]);
            // What a unit takes for zero is the least that a subnormal number can be off.
            let (x, least) = (f64::from(x), f64::from(f32::MIN_POSITIVE));
            let bound = (x.abs() / 131_072.0).max(least);
            assert!((sum(planes) - x).abs() <= bound, "{planes:x?} for {x}");
        }
        for half in (0..=u16::MAX).map(half::f16::from_bits).filter(|half| half.is_finite()) {
            assert_eq!(sum(split([half.to_f32()]).map(|plane| plane[0])), half.to_f64());
        }
    }

    #[test]
    fn what_is_not_finite_is_its_own_high_part() {
        for x in [f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(split([x]).map(|plane| plane[0]), [bf16::from_f32(x).to_bits(), 0]);
        }
        for bits in [0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff, 0xff80_0001, 0xffff_ffff] {
            let [high, low] = split([f32::from_bits(bits)]).map(|plane| bf16::from_bits(plane[0]));
            assert!(high.is_nan() && low == bf16::ZERO, "{bits:x}");
        }
    }
}
