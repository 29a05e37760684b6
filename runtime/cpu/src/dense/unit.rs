//! Products on a matrix unit.
//!
//! ```text
//! for each 8 strips and 1024 columns:   weights 512 KiB, in the second-level cache
//!     for each 32 tokens:               activations 128 KiB, there as well
//!         for each strip:               sums of 32 tokens and 32 rows, in registers
//! ```
//! Weights come from memory once, and the activations once for each 8 strips, from the last cache. Between runs of columns sums are where the
//! output has them.

use std::ops::Range;

use kinfolk_weights::Dtype;

use super::{
    kernel::{
        self, Line, ROWS, Stored,
        matrix::{self, COLUMNS, Step, SumsAt, TOKENS, Tile, Unit},
    },
    planes::{Planes, split_weights},
    tiles::{RUN, SCRATCH, Scratch, Tiles, stored},
};
use crate::{columns::Columns, level::Level, team::Team};

/// Strips whose weights are in the cache at once.
const STRIPS: usize = 8;

/// Steps of one plane of weights that a strip has in the cache at once.
const STEPS: usize = 32;

/// Tokens whose sums are in registers.
const BLOCK: usize = 2 * TOKENS;

/// Steps that a thread makes of weights that are not stored as the unit reads them.
pub(super) const N_STEPS: usize = STRIPS * STEPS;

/// Bytes that a thread works in for products with a matrix on a unit, if there is one.
pub(crate) fn panel_bytes(dtype: Dtype, n_rows: usize, n_cols: usize) -> u64 {
    let on_unit = stored(dtype).is_some_and(|stored| stored != Stored::F32 && !is_in_steps(stored, n_rows, n_cols));
    if on_unit && matrix::is_for(Level::current(), usize::MAX) { (N_STEPS * size_of::<Step>()) as u64 } else { 0 }
}

/// Whether all weights are stored as the unit reads them.
fn is_in_steps(stored: Stored, n_rows: usize, n_cols: usize) -> bool {
    stored == Stored::Bf16 && n_rows.is_multiple_of(ROWS) && n_cols.is_multiple_of(COLUMNS)
}

impl Tiles {
    /// As [`forward`](Tiles::forward).
    pub(super) fn forward_on_unit(&self, team: &Team, x: &Planes<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
        let out = &Columns::new(out, self.n_rows);
        team.for_each_index(self.n_strips().div_ceil(STRIPS), |groups| {
            let unit = &Unit::new(self.level);
            SCRATCH.with_borrow_mut(|scratch| {
                if !is_in_steps(self.stored, self.n_rows, self.n_cols) {
                    scratch.fit_unit();
                }
                for group in groups {
                    let strips = group * STRIPS..((group + 1) * STRIPS).min(self.n_strips());
                    // SAFETY: each group is given to one thread, so their rows are distinct.
                    unsafe { self.group_on_unit(unit, strips, x, bias, out, scratch) };
                }
            });
        });
    }

    /// # Safety
    /// Nobody else has the rows of these strips in the output.
    unsafe fn group_on_unit(
        &self,
        unit: &Unit,
        strips: Range<usize>,
        x: &Planes<'_>,
        bias: Option<&[f32]>,
        out: &Columns<'_>,
        scratch: &mut Scratch,
    ) {
        if let Some(bias) = bias {
            let rows = self.strip_rows(strips.start).start..self.strip_rows(strips.end - 1).end;
            for token in 0..x.n_tokens() {
                // SAFETY: the caller's promise.
                unsafe { out.part(token, rows.clone()) }.copy_from_slice(&bias[rows.clone()]);
            }
        }
        let run = STEPS / self.weight_planes();
        for first in (0..x.n_steps()).step_by(run) {
            let steps = first..(first + run).min(x.n_steps());
            let mut weights: [&[Step]; STRIPS] = [&[]; STRIPS];
            let mut panels = scratch.steps.chunks_exact_mut(STEPS);
            for (strip, weights) in strips.clone().zip(&mut weights) {
                *weights = match self.stored_steps(strip, steps.clone()) {
                    Some(stored) => stored,
                    None => {
                        let panel = panels.next().expect("a panel for each strip");
                        self.make_steps(strip, steps.clone(), &mut scratch.panel, panel)
                    }
                };
            }
            for token in (0..x.n_tokens()).step_by(BLOCK) {
                let tokens = token..(token + BLOCK).min(x.n_tokens());
                let tile = |token: usize| x.tile(token / TOKENS, steps.clone());
                let tiles = [tile(token), if tokens.len() > TOKENS { tile(token + TOKENS) } else { &[] }];
                for (strip, weights) in strips.clone().zip(weights) {
                    let add = first > 0 || bias.is_some();
                    // SAFETY: the caller's promise.
                    unsafe { block(unit, weights, &tiles, out, tokens.clone(), self.strip_rows(strip), add) };
                }
            }
        }
    }

    /// Planes that a weight is the sum of.
    fn weight_planes(&self) -> usize {
        if self.stored == Stored::F16 { 2 } else { 1 }
    }

    /// Steps of a strip where they are stored as the unit reads them.
    fn stored_steps(&self, strip: usize, steps: Range<usize>) -> Option<&[Step]> {
        let whole = self.strip_rows(strip).len() == ROWS && steps.end * COLUMNS <= self.n_cols;
        if self.stored != Stored::Bf16 || !whole {
            return None;
        }
        let n_pairs = steps.len() * COLUMNS / 2;
        Some(Step::all(self.pairs(strip, steps.start * COLUMNS / 2, n_pairs).bytes))
    }

    /// The same of what is stored in any other way, in `panel`.
    fn make_steps<'a>(
        &self,
        strip: usize,
        steps: Range<usize>,
        columns: &mut [Line],
        panel: &'a mut [Step],
    ) -> &'a [Step] {
        let n_planes = self.weight_planes();
        let panel = &mut panel[..steps.len() * n_planes];
        for (i, panel) in panel.chunks_mut(RUN / COLUMNS * n_planes).enumerate() {
            let first = steps.start * COLUMNS + i * RUN;
            let n_pairs = (self.n_cols - first).min(RUN).div_ceil(2);
            kernel::convert(self.level, self.pairs(strip, first / 2, n_pairs), columns);
            split_weights(self.level, &Line::pairs(columns)[..n_pairs], n_planes, panel);
        }
        panel
    }
}

/// The products of a strip with up to [`BLOCK`] tokens.
///
/// # Safety
/// Nobody else has these rows of the output.
unsafe fn block(
    unit: &Unit,
    weights: &[Step],
    tiles: &[&[Tile]],
    out: &Columns<'_>,
    tokens: Range<usize>,
    rows: Range<usize>,
    add: bool,
) {
    let tiles = &tiles[..tokens.len().div_ceil(TOKENS)];
    if tokens.len() == tiles.len() * TOKENS && rows.len() == ROWS {
        let sums = SumsAt { first: out.start(tokens, rows), stride: out.stride() };
        // SAFETY: the caller's promise, and as many tokens and rows as are written.
        return unsafe { unit.accumulate(weights, tiles, sums, add) };
    }
    // The output has no room for all that registers hold.
    let mut sums = [[0.0; ROWS]; BLOCK];
    if add {
        for (token, sums) in tokens.clone().zip(&mut sums) {
            // SAFETY: the caller's promise.
            sums[..rows.len()].copy_from_slice(unsafe { out.part(token, rows.clone()) });
        }
    }
    // SAFETY: as many tokens and rows as can be written.
    unsafe { unit.accumulate(weights, tiles, SumsAt { first: sums.as_mut_ptr().cast(), stride: ROWS }, add) };
    for (token, sums) in tokens.zip(&sums) {
        // SAFETY: the caller's promise.
        unsafe { out.part(token, rows.clone()) }.copy_from_slice(&sums[..rows.len()]);
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::{activations::Activations, arena::Arena, rows::StoredRows};

    const TYPES: [Dtype; 2] = [Dtype::BF16, Dtype::F16];

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.713).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    /// Numbers as they are stored, and what they are.
    fn stored(dtype: Dtype, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let stored = |x: &f32| match dtype {
            Dtype::BF16 => (bf16::from_f32(*x).to_le_bytes(), bf16::from_f32(*x).to_f32()),
            _ => (f16::from_f32(*x).to_le_bytes(), f16::from_f32(*x).to_f32()),
        };
        let (bytes, numbers): (Vec<_>, Vec<_>) = numbers.iter().map(stored).unzip();
        (bytes.concat(), numbers)
    }

    /// A matrix, and its weights.
    fn matrix(level: Level, dtype: Dtype, weights: &[f32], n_rows: usize, n_cols: usize) -> (Tiles, Vec<f32>) {
        let (bytes, weights) = stored(dtype, weights);
        let (team, arena) = (Team::new(1), Arena::new(bytes.len()));
        let tiles = StoredRows::of_bytes(dtype, n_rows, n_cols, &bytes, |rows| Tiles::of_rows(&team, &arena, rows));
        let mut tiles = tiles.unwrap().unwrap();
        tiles.level = level;
        (tiles, weights)
    }

    /// The products on a unit, or by its definition, whatever the number of tokens.
    fn products(tiles: &Tiles, team: &Team, x: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let mut out = vec![f32::NAN; x.len() / tiles.n_cols * tiles.n_rows];
        tiles.forward_on_unit(team, &Planes::new(team, x, tiles.n_cols), bias, &mut out);
        out
    }

    #[test]
    fn products_are_within_what_planes_leave_of_the_exact_ones() {
        let team = Team::new(2);
        for (dtype, step) in [(Dtype::BF16, 1.0), (Dtype::F16, 3.0)] {
            for (n_rows, n_cols, n_tokens) in
                [(1, 1, 32), (70, 31, 33), (35, 129, 47), (33, 600, 64), (64, 2080, 16), (96, 300, 100), (32, 64, 1000)]
            {
                let (x, bias) = (numbers(n_tokens * n_cols), numbers(n_rows));
                for bias in [None, Some(&bias[..])] {
                    let (tiles, weights) = matrix(Level::current(), dtype, &numbers(n_rows * n_cols), n_rows, n_cols);
                    let found = products(&tiles, &team, &x, bias);
                    for (x, found) in x.chunks(n_cols).zip(found.chunks(n_rows)) {
                        for (row, (w, found)) in weights.chunks(n_cols).zip(found).enumerate() {
                            let bias = f64::from(bias.map_or(0.0, |bias| bias[row]));
                            let products = || w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                            let (expected, magnitude) =
                                (bias + products().sum::<f64>(), products().map(f64::abs).sum::<f64>());
                            let bound = magnitude * step / 131_072.0 + 1e-6 * (bias.abs() + magnitude);
                            let off = (f64::from(*found) - expected).abs();
                            assert!(
                                off <= bound,
                                "{dtype}, {n_rows} by {n_cols}: {found} for {expected}, bound {bound}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_gives_the_bits_of_the_definition() {
        let team = Team::new(1);
        for (dtype, (n_rows, n_cols, n_tokens)) in
            TYPES.into_iter().flat_map(|dtype| [(33, 70, 17), (64, 96, 33)].map(|sizes| (dtype, sizes)))
        {
            let (x, weights) = (numbers(n_tokens * n_cols), numbers(n_rows * n_cols));
            let of = |level| products(&matrix(level, dtype, &weights, n_rows, n_cols).0, &team, &x, None);
            let expected = of(Level::Scalar);
            for level in Level::available() {
                assert_eq!(of(level), expected, "{level:?} {dtype}");
            }
        }
    }

    #[test]
    fn a_token_s_products_do_not_depend_on_other_tokens_or_threads() {
        let (one, three) = (Team::new(1), Team::new(3));
        for dtype in TYPES {
            // Two groups of strips, two runs of steps and two blocks of tokens, the last of each not whole.
            let (n_rows, n_cols, n_tokens) = (300, 1100, 45);
            let (tiles, _) = matrix(Level::current(), dtype, &numbers(n_rows * n_cols), n_rows, n_cols);
            let x = numbers(n_tokens * n_cols);
            let together = products(&tiles, &three, &x, None);
            for n in [7, 32, 37] {
                for (x, together) in x.chunks(n * n_cols).zip(together.chunks(n * n_rows)) {
                    assert_eq!(products(&tiles, &one, x, None), together, "{dtype}, {n} at a time");
                }
            }
        }
    }

    #[test]
    fn from_32_tokens_on_products_are_those_of_the_unit_where_there_is_one() {
        let team = Team::new(2);
        for (dtype, n_tokens) in TYPES.into_iter().flat_map(|dtype| [31, 32].map(|n| (dtype, n))) {
            let (n_rows, n_cols) = (64, 512);
            for level in Level::available() {
                let (tiles, _) = matrix(level, dtype, &numbers(n_rows * n_cols), n_rows, n_cols);
                let x = numbers(n_tokens * n_cols);
                let mut found = vec![0.0; n_tokens * n_rows];
                tiles.forward(&team, &Activations::new(&x), None, &mut found);
                let on_unit = found == products(&tiles, &team, &x, None);
                assert_eq!(on_unit, matrix::is_for(level, n_tokens), "{level:?} {dtype}, {n_tokens} tokens");
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_with_its_token_and_subnormal_halves_are_exact() {
        let team = Team::new(1);
        let (n_rows, n_cols) = (32, 64);
        for dtype in TYPES {
            let (tiles, _) = matrix(Level::current(), dtype, &vec![1.5; n_rows * n_cols], n_rows, n_cols);
            let mut x = vec![1.0; 3 * n_cols];
            (x[5], x[n_cols + 5]) = (f32::NAN, f32::NEG_INFINITY);
            let found = products(&tiles, &team, &x, None);
            assert!(found[..n_rows].iter().all(|y| y.is_nan()), "{dtype}");
            assert!(
                found[n_rows..2 * n_rows].iter().all(|y| *y == f32::NEG_INFINITY || dtype == Dtype::F16 && y.is_nan())
            );
            assert!(found[2 * n_rows..].iter().all(|y| *y == 96.0), "{dtype}");
        }
        let least = f16::from_bits(1).to_f32();
        let (tiles, _) = matrix(Level::current(), Dtype::F16, &vec![least; n_rows * n_cols], n_rows, n_cols);
        let found = products(&tiles, &team, &vec![1.0; n_cols], None);
        assert!(found.iter().all(|y| *y == 64.0 * least), "{found:?}");
    }
}
