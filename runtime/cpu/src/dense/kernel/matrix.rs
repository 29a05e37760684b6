//! The product of a strip of 32 rows with 16 or 32 tokens on a matrix unit, where every number is the sum of one in BF16 of each of its planes.
//!
//! ```text
//! for each 32 columns and pair of planes:   sum += Σ even columns w · x  +  Σ odd columns w · x
//!
//! weights in one plane     w x.low | w x.high
//! weights in two planes    w.high x.low | w.high x.high | w.low x.high           w.low x.low is at most 2⁻¹⁶ w x
//! ```
//! Each of the two inner sums starts at zero and takes fused multiply-adds in f32, in the order of the columns. Subnormal numbers count as
//! zero throughout.

use super::ROWS;
#[cfg(target_arch = "x86_64")]
use super::amx;
use crate::level::{Level, MANY_TOKENS};

/// Tokens of a tile.
pub const TOKENS: usize = 16;

/// Columns of a tile.
pub const COLUMNS: usize = 32;

/// Planes of activations: high and low.
pub const PLANES: usize = 2;

/// The activations of 16 tokens in 32 columns: `[plane][token][column]`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Tile(pub [[[u16; COLUMNS]; TOKENS]; PLANES]);

impl Tile {
    pub const ZERO: Tile = Tile([[[0; COLUMNS]; TOKENS]; PLANES]);
}

/// One plane of a strip's weights in 32 columns: `[pair of columns][row][column of the pair]`, as strips of BF16 are stored.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Step(pub [[[u16; 2]; ROWS]; COLUMNS / 2]);

impl Step {
    pub const ZERO: Step = Step([[[0; 2]; ROWS]; COLUMNS / 2]);

    /// Bytes of a strip as steps.
    ///
    /// # Panics
    /// If they do not start and end with one.
    pub fn all(bytes: &[u8]) -> &[Step] {
        // SAFETY: steps are arrays of numbers of which every bit may be anything.
        let (before, steps, behind) = unsafe { bytes.align_to() };
        assert!(before.is_empty() && behind.is_empty(), "whole steps");
        steps
    }
}

/// Where the sums of some tokens and [`ROWS`] are.
#[derive(Clone, Copy)]
pub struct SumsAt {
    pub first: *mut f32,
    /// Numbers from one token to the next.
    pub stride: usize,
}

/// Whether `level` has a unit for BF16, and `n_tokens` are enough for it.
pub fn is_for(level: Level, n_tokens: usize) -> bool {
    n_tokens >= MANY_TOKENS && has_unit(level)
}

#[cfg(target_arch = "x86_64")]
fn has_unit(level: Level) -> bool {
    level == Level::Amx && crate::amx::multiplies_bf16()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_unit(_level: Level) -> bool {
    false
}

/// What multiplies on this thread.
pub struct Unit {
    #[cfg(target_arch = "x86_64")]
    amx: Option<amx::Unit>,
}

impl Unit {
    /// The unit of `level`, or the definition in plain Rust.
    pub fn new(level: Level) -> Unit {
        let _ = level;
        Unit {
            #[cfg(target_arch = "x86_64")]
            amx: (level == Level::Amx).then(amx::Unit::new).flatten(),
        }
    }

    /// Writes the products of `weights` with `x`, one or two tiles of tokens, to `sums`, or adds them if `add`.
    ///
    /// A step has one or two planes, the high one first.
    ///
    /// # Safety
    /// `sums` are of as many tokens as the tiles hold, and nobody else's.
    ///
    /// # Panics
    /// If there are no tiles or more than two, or of other numbers of columns than each other or the weights.
    pub unsafe fn accumulate(&self, weights: &[Step], x: &[&[Tile]], sums: SumsAt, add: bool) {
        let n_steps = x[0].len();
        assert!(x.len() <= 2 && x.iter().all(|x| x.len() == n_steps), "one or two tiles of tokens");
        assert!(weights.len() == n_steps || weights.len() == 2 * n_steps, "as many columns");
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = &self.amx {
            // SAFETY: the numbers of columns agree, and the caller's promises.
            return unsafe { unit.accumulate(weights, x, sums, add) };
        }
        // SAFETY: the caller's promises.
        unsafe { defined(weights, x, sums, add) }
    }
}

/// Which plane of weights is multiplied with which of activations in a step of so many planes of weights.
pub fn terms(weight_planes: usize) -> &'static [(usize, usize)] {
    match weight_planes {
        1 => &[(0, 1), (0, 0)],
        _ => &[(0, 1), (0, 0), (1, 0)],
    }
}

/// The definition.
///
/// # Safety
/// As of [`Unit::accumulate`].
unsafe fn defined(weights: &[Step], x: &[&[Tile]], sums: SumsAt, add: bool) {
    let n_planes = if weights.len() == x[0].len() { 1 } else { 2 };
    for (i, token) in (0..x.len()).flat_map(|i| (0..TOKENS).map(move |t| (i, t))) {
        for row in 0..ROWS {
            // SAFETY: the caller's promise.
            let out = unsafe { &mut *sums.first.add((TOKENS * i + token) * sums.stride + row) };
            let mut sum = if add { *out } else { 0.0 };
            for (step, tile) in weights.chunks_exact(n_planes).zip(x[i]) {
                for &(w, x) in terms(n_planes) {
                    sum = normal(sum + product(&step[w], row, &tile.0[x][token]));
                }
            }
            *out = sum;
        }
    }
}

/// The sum over the columns of a step.
fn product(weights: &Step, row: usize, x: &[u16; COLUMNS]) -> f32 {
    let mut sums = [0f32; 2];
    for (w, x) in weights.0.iter().zip(x.as_chunks::<2>().0) {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = normal(widen(w[row][i]).mul_add(widen(x[i]), *sum));
        }
    }
    normal(sums[0] + sums[1])
}

/// A BF16 as f32.
fn widen(bits: u16) -> f32 {
    normal(f32::from_bits(u32::from(bits) << 16))
}

/// Zero instead of a subnormal number.
fn normal(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BF16 of both signs and different exponents, none of them subnormal.
    fn numbers(n: usize) -> impl Iterator<Item = u16> {
        let mut state = 5u32;
        (0..n).map(move |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) as u16 & 0x83ff) + 0x3c00
        })
    }

    fn steps(n: usize) -> Vec<Step> {
        let mut numbers = numbers(n * size_of::<Step>());
        let mut steps = vec![Step::ZERO; n];
        steps
            .iter_mut()
            .for_each(|step| step.0.as_flattened_mut().as_flattened_mut().fill_with(|| numbers.next().unwrap()));
        steps
    }

    fn tiles(n: usize) -> Vec<Tile> {
        let mut numbers = numbers(n * size_of::<Tile>() + 7).skip(7);
        let mut tiles = vec![Tile::ZERO; n];
        tiles
            .iter_mut()
            .for_each(|tile| tile.0.as_flattened_mut().as_flattened_mut().fill_with(|| numbers.next().unwrap()));
        tiles
    }

    #[test]
    fn every_unit_gives_the_bits_of_the_definition() {
        const STRIDE: usize = ROWS + 5;
        for (n_steps, n_planes, n_tiles) in
            [0, 1, 3].into_iter().flat_map(|n| [(n, 1, 1), (n, 1, 2), (n, 2, 1), (n, 2, 2)])
        {
            let (weights, x) = (steps(n_steps * n_planes), tiles(2 * n_steps));
            let x = &[&x[..n_steps], &x[n_steps..]][..n_tiles];
            for add in [false, true] {
                let of = |accumulate: &dyn Fn(SumsAt)| {
                    let mut sums: Vec<f32> = (0..2 * TOKENS * STRIDE).map(|i| i as f32).collect();
                    accumulate(SumsAt { first: sums.as_mut_ptr(), stride: STRIDE });
                    sums
                };
                // SAFETY: here and below there are sums of two tiles.
                let expected = of(&|sums| unsafe { defined(&weights, x, sums, add) });
                for level in Level::available() {
                    let found = of(&|sums| unsafe { Unit::new(level).accumulate(&weights, x, sums, add) });
                    assert_eq!(found, expected, "{level:?}: {n_steps} steps, {n_planes} planes, {n_tiles} tiles");
                }
            }
        }
    }

    #[test]
    fn subnormal_numbers_count_as_zero_and_what_is_not_finite_stays_so() {
        let number = |w: u16, x: u16| {
            let mut found = Vec::new();
            let (mut step, mut tile) = (Step::ZERO, Tile::ZERO);
            (step.0[0][0][0], tile.0[0][0][0]) = (w, x);
            for level in Level::available() {
                let mut sums = [[0.0; ROWS]; TOKENS];
                let at = SumsAt { first: sums.as_mut_ptr().cast(), stride: ROWS };
                // SAFETY: there are sums of one tile.
                unsafe { Unit::new(level).accumulate(&[step.clone()], &[&[tile.clone()]], at, false) };
                found.push(sums[0][0]);
            }
            found
        };
        let (one, large, infinity, nan, subnormal) = (0x3f80, 0x7f00, 0x7f80, 0x7fc0, 0x007f);
        assert!(number(subnormal, large).into_iter().chain(number(large, subnormal)).all(|x| x == 0.0));
        assert!(number(one, infinity).into_iter().all(|x| x == f32::INFINITY));
        assert!(number(infinity, one).into_iter().all(f32::is_nan), "times a low part of zero");
        assert!(number(nan, one).into_iter().chain(number(one, nan)).all(f32::is_nan));
    }
}
