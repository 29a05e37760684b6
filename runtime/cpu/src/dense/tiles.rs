//! A matrix in strips of 32 rows.
//!
//! ```text
//! rows 0..32:  columns 0 and 1 | columns 2 and 3 | …      rows 32..64:  …
//! ```
//! A thread that computes a run of rows reads one contiguous run of memory. The last strip has the rows that are left, and an odd number of
//! columns is filled up with another one of zeros.

use std::{cell::RefCell, ops::Range};

use half::{bf16, f16};
use kinfolk_decoder::LoadError;
use kinfolk_weights::Dtype;

use super::{
    kernel::{
        self, Line, Pairs, ROWS, Stored, Sums,
        matrix::{self, Step},
    },
    tokens::{Tokens, WIDTHS},
    unit::N_STEPS,
};
use crate::{
    activations::Activations,
    arena::{Arena, Bytes},
    columns::Columns,
    level::Level,
    rows::StoredRows,
    team::Team,
};

/// Columns summed by themselves: an f32 panel of them takes half of a first-level cache, beside the activations of a block of tokens.
pub(super) const RUN: usize = 128;

/// Tokens computed before the next strip is: their activations stay in the second-level cache.
const CHUNK: usize = 8 * WIDTHS[0];

/// A matrix of 16- or 32-bit floats in the kernels' layout.
#[derive(Debug)]
pub(crate) struct Tiles {
    pub(super) stored: Stored,
    pub(super) level: Level,
    pub(super) n_rows: usize,
    pub(super) n_cols: usize,
    /// `[strips, pairs of columns, bytes of a pair]`, and what kernels read behind the last strip.
    bytes: Bytes,
}

/// Bytes that a matrix of `dtype` takes in tiles; `None` for types that have no kernel.
pub(crate) fn tile_bytes(dtype: Dtype, n_rows: usize, n_cols: usize) -> Option<usize> {
    n_rows.checked_mul(n_cols.div_ceil(2))?.checked_mul(stored(dtype)?.pair_bytes(1))
}

pub(super) fn stored(dtype: Dtype) -> Option<Stored> {
    match dtype {
        Dtype::BF16 => Some(Stored::Bf16),
        Dtype::F16 => Some(Stored::F16),
        Dtype::F32 => Some(Stored::F32),
        _ => None,
    }
}

impl Tiles {
    /// Lays a matrix out anew, given its rows. `None` if there is no kernel for its type.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn of_rows(team: &Team, arena: &Arena, rows: &StoredRows<'_>) -> Result<Option<Tiles>, LoadError> {
        let StoredRows { dtype, n_rows, n_cols, row } = *rows;
        let Some(stored) = stored(dtype) else { return Ok(None) };
        let needed_bytes = tile_bytes(dtype, n_rows, n_cols).unwrap_or(usize::MAX);
        let out_of_memory = || LoadError::OutOfMemory { needed_bytes: needed_bytes as u64 };
        let of_strip = |rows| Pairs::readable_bytes(stored, rows, n_cols.div_ceil(2)).div_ceil(size_of::<Line>());
        let rest = if n_rows.is_multiple_of(ROWS) { 0 } else { of_strip(n_rows % ROWS) };
        let n_lines = (n_rows / ROWS).checked_mul(of_strip(ROWS)).and_then(|n| n.checked_add(rest));
        let n_bytes = n_lines.and_then(|n| n.checked_mul(size_of::<Line>())).ok_or_else(out_of_memory)?;
        let mut bytes = arena.take(n_bytes)?;
        // Pages are first touched by the thread that fills them.
        team.for_each_chunk(bytes.as_mut(), of_strip(ROWS) * size_of::<Line>(), |strip, out| {
            let first = strip * ROWS;
            let n_rows = ROWS.min(n_rows - first);
            let mut rows: [&[u8]; ROWS] = [&[]; ROWS];
            rows[..n_rows].iter_mut().zip(first..).for_each(|(to, r)| *to = row(r));
            pack(stored, &rows[..n_rows], out);
        });
        Ok(Some(Tiles { stored, level: Level::current(), n_rows, n_cols, bytes }))
    }

    /// Bytes in memory, less the at most four lines behind a last strip.
    pub fn n_bytes(&self) -> usize {
        self.n_rows * self.n_cols.div_ceil(2) * self.stored.pair_bytes(1)
    }

    pub(super) fn n_strips(&self) -> usize {
        self.n_rows.div_ceil(ROWS)
    }

    pub(super) fn strip_rows(&self, strip: usize) -> Range<usize> {
        strip * ROWS..((strip + 1) * ROWS).min(self.n_rows)
    }

    /// `n_pairs` pairs of columns of `strip` from the `first` on.
    pub(super) fn pairs(&self, strip: usize, first: usize, n_pairs: usize) -> Pairs<'_> {
        let (stored, n_rows) = (self.stored, self.strip_rows(strip).len());
        let start = strip * self.n_cols.div_ceil(2) * stored.pair_bytes(ROWS) + first * stored.pair_bytes(n_rows);
        let n_bytes = Pairs::readable_bytes(stored, n_rows, n_pairs);
        Pairs { stored, n_rows, n_pairs, bytes: &self.bytes[start..][..n_bytes] }
    }

    /// Decodes row `r` into `out`, `[n_cols]`.
    pub fn decode_row(&self, r: usize, out: &mut [f32]) {
        let Pairs { stored, n_rows, bytes, .. } = self.pairs(r / ROWS, 0, self.n_cols.div_ceil(2));
        for (pair, out) in bytes.chunks(stored.pair_bytes(n_rows)).zip(out.chunks_mut(2)) {
            for (i, out) in out.iter_mut().enumerate() {
                let at = position(stored, n_rows, r % ROWS, i);
                *out = match stored {
                    Stored::Bf16 => bf16::from_le_bytes([pair[at], pair[at + 1]]).to_f32(),
                    Stored::F16 => f16::from_le_bytes([pair[at], pair[at + 1]]).to_f32(),
                    Stored::F32 => f32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]),
                };
            }
        }
    }

    /// `[tokens, n_cols]` to `out`, `[tokens, n_rows]`, to which `bias` (`[n_rows]`) is added.
    ///
    /// # Cost
    /// Reads every weight once for each [`CHUNK`] of tokens, or once on a matrix unit.
    pub fn forward<'t>(&self, team: &'t Team, x: &Activations<'_, 't>, bias: Option<&[f32]>, out: &mut [f32]) {
        if self.stored != Stored::F32 && matrix::is_for(self.level, x.x.len() / self.n_cols) {
            return self.forward_on_unit(team, x.floats.planes(team, x.x, self.n_cols), bias, out);
        }
        let x = x.floats.tokens(team, x.x, self.n_cols);
        let out = Columns::new(out, self.n_rows);
        for first in (0..x.len()).step_by(CHUNK) {
            let tokens = first..(first + CHUNK).min(x.len());
            team.for_each_index(self.n_strips(), |strips| {
                SCRATCH.with_borrow_mut(|scratch| {
                    scratch.fit(tokens.len());
                    for strip in strips {
                        let sums = &mut scratch.sums[..tokens.len()];
                        self.products(strip, x, tokens.clone(), bias, &mut scratch.panel, sums);
                        let rows = self.strip_rows(strip);
                        for (token, sums) in tokens.clone().zip(sums) {
                            // SAFETY: each strip is given to one thread, so their rows are distinct.
                            let out = unsafe { out.part(token, rows.clone()) };
                            out.copy_from_slice(&sums[..rows.len()]);
                        }
                    }
                });
            });
        }
    }

    /// The products of a strip with `tokens`, to `sums`.
    fn products(
        &self,
        strip: usize,
        x: &Tokens<'_, '_>,
        tokens: Range<usize>,
        bias: Option<&[f32]>,
        panel: &mut [Line],
        sums: &mut [Sums],
    ) {
        let mut start = [0.0; ROWS];
        if let Some(bias) = bias {
            let bias = &bias[self.strip_rows(strip)];
            start[..bias.len()].copy_from_slice(bias);
        }
        sums.fill(start);
        // Once for all tokens if there are many, and not in the registers for each block of them.
        let many = self.stored != Stored::F32 && tokens.len() > WIDTHS[0];
        for column in (0..self.n_cols).step_by(RUN) {
            let n_pairs = (self.n_cols - column).min(RUN).div_ceil(2);
            let mut weights = self.pairs(strip, column / 2, n_pairs);
            if many || weights.n_rows < ROWS {
                kernel::convert(self.level, weights, panel);
                weights = Pairs { stored: Stored::F32, n_rows: ROWS, n_pairs, bytes: Line::bytes(panel) };
            }
            let mut token = tokens.start;
            while token < tokens.end {
                let block = x.block(token);
                let sums = &mut sums[token - tokens.start..][..block.width];
                kernel::accumulate(self.level, weights, block.columns(column, 2 * n_pairs), sums);
                token += block.width;
            }
        }
    }
}

/// Lays out stored rows as a strip, which must be zero.
fn pack(stored: Stored, rows: &[&[u8]], strip: &mut [u8]) {
    match stored {
        // Pairs of columns are pairs in the rows.
        Stored::Bf16 | Stored::F32 => transpose::<4>(rows, strip),
        Stored::F16 => transpose::<2>(rows, strip),
    }
}

/// Puts the elements of `N` bytes that rows have at one place side by side, and at the end the bytes that are no whole one.
fn transpose<const N: usize>(rows: &[&[u8]], out: &mut [u8]) {
    let row_bytes = rows[0].len();
    for (at, out) in (0..row_bytes).step_by(LINE).zip(out.chunks_mut(LINE * rows.len())) {
        let out = out.as_chunks_mut::<N>().0;
        for (r, row) in rows.iter().enumerate() {
            let (elements, rest) = row[at..row_bytes.min(at + LINE)].as_chunks::<N>();
            let mut to = out[r..].iter_mut().step_by(rows.len());
            elements.iter().zip(&mut to).for_each(|(element, to)| *to = *element);
            if let Some(to) = to.next() {
                to[..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Bytes of a row that are laid out before those of the next row are: a line of the cache.
const LINE: usize = size_of::<Line>();

/// Where in a pair of columns of `n_rows` a row has its weight of column `i` of the two.
fn position(stored: Stored, n_rows: usize, row: usize, i: usize) -> usize {
    match stored {
        Stored::Bf16 => 4 * row + 2 * i,
        Stored::F16 => 2 * (n_rows * i + row),
        Stored::F32 => 4 * (n_rows * i + row),
    }
}

thread_local! {
    /// One per thread for the life of the thread, so that no product allocates.
    pub(super) static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { panel: Vec::new(), sums: Vec::new(), steps: Vec::new() }) };
}

/// Bytes that a thread works in, at most.
pub(crate) const SCRATCH_BYTES: u64 = (RUN / 2 * Stored::F32.pair_bytes(ROWS) + CHUNK * size_of::<Sums>()) as u64;

/// What a thread works in.
pub(super) struct Scratch {
    /// A run of columns of a strip as f32.
    pub panel: Vec<Line>,
    /// Of a chunk of tokens.
    sums: Vec<Sums>,
    /// Of some strips, for the matrix unit.
    pub steps: Vec<Step>,
}

impl Scratch {
    /// Makes room for products with so many tokens.
    fn fit(&mut self, n_tokens: usize) {
        if self.sums.len() < n_tokens {
            self.sums.resize(n_tokens, [0.0; ROWS]);
        }
        self.fit_panel();
    }

    /// Makes room for what a matrix unit reads.
    pub fn fit_unit(&mut self) {
        self.fit_panel();
        self.steps.resize(N_STEPS, Step::ZERO);
    }

    fn fit_panel(&mut self) {
        self.panel.resize(RUN / 2 * Stored::F32.pair_bytes(ROWS) / size_of::<Line>(), Line::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use kinfolk_weights::quant;

    use super::*;

    const TYPES: [Dtype; 3] = [Dtype::BF16, Dtype::F16, Dtype::F32];

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.713).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    fn stored(dtype: Dtype, numbers: &[f32]) -> Vec<u8> {
        match dtype {
            Dtype::BF16 => numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            Dtype::F16 => numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    fn tiles(team: &Team, dtype: Dtype, bytes: &[u8], n_rows: usize, n_cols: usize) -> Tiles {
        let arena = Arena::new(bytes.len());
        let tiles = StoredRows::of_bytes(dtype, n_rows, n_cols, bytes, |rows| Tiles::of_rows(team, &arena, rows));
        tiles.unwrap().unwrap()
    }

    fn decoded(dtype: Dtype, bytes: &[u8], n: usize) -> Vec<f32> {
        let mut out = vec![0.0; n];
        quant::dequantize(dtype, bytes, &mut out).unwrap();
        out
    }

    #[test]
    fn a_row_decodes_to_the_bits_of_the_dequantiser() {
        let team = Team::new(2);
        for dtype in TYPES {
            for (n_rows, n_cols) in [(1, 1), (32, 6), (35, 129), (70, 300)] {
                let bytes = stored(dtype, &numbers(n_rows * n_cols));
                let tiles = tiles(&team, dtype, &bytes, n_rows, n_cols);
                assert_eq!(Some(tiles.n_bytes()), tile_bytes(dtype, n_rows, n_cols));
                let expected = decoded(dtype, &bytes, n_rows * n_cols);
                let mut found = vec![f32::NAN; n_rows * n_cols];
                found.chunks_mut(n_cols).enumerate().for_each(|(r, out)| tiles.decode_row(r, out));
                assert_eq!(found, expected, "{dtype}");
            }
        }
    }

    #[test]
    fn an_even_number_of_columns_takes_what_the_file_takes() {
        for dtype in TYPES {
            for n_rows in [1, 33, 64] {
                assert_eq!(tile_bytes(dtype, n_rows, 1026), dtype.bytes_for(n_rows * 1026), "{dtype}");
            }
        }
        for dtype in [Dtype::Q4_0, Dtype::IQ4_NL, Dtype::I32] {
            assert_eq!(tile_bytes(dtype, 64, 1024), None, "{dtype}");
        }
        assert_eq!(tile_bytes(Dtype::F32, usize::MAX, usize::MAX), None, "more than can be counted");
    }

    #[test]
    fn products_are_those_of_the_stored_weights() {
        let team = Team::new(2);
        for dtype in TYPES {
            for (n_rows, n_cols, n_tokens) in
                [(1, 1, 1), (1, 257, 3), (35, 129, 13), (64, 128, 7), (96, 300, 100), (33, 64, 1000)]
            {
                let bytes = stored(dtype, &numbers(n_rows * n_cols));
                let tiles = tiles(&team, dtype, &bytes, n_rows, n_cols);
                let weights = decoded(dtype, &bytes, n_rows * n_cols);
                let (x, bias) = (numbers(n_tokens * n_cols), numbers(n_rows));
                let mut found = vec![f32::NAN; n_tokens * n_rows];
                tiles.forward(&team, &Activations::new(&x), Some(&bias), &mut found);
                for (x, found) in x.chunks(n_cols).zip(found.chunks(n_rows)) {
                    for ((w, found), bias) in weights.chunks(n_cols).zip(found).zip(&bias) {
                        let products = || w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                        let expected = f64::from(*bias) + products().sum::<f64>();
                        // With as many tokens it may be a matrix unit that multiplies.
                        let step = if n_tokens < 32 { 1e-6 } else { 3e-5 };
                        let bound = step * (f64::from(bias.abs()) + products().map(f64::abs).sum::<f64>());
                        let off = (f64::from(*found) - expected).abs();
                        assert!(off <= bound, "{dtype}, {n_rows} by {n_cols}: {found} for {expected}, bound {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_token_s_products_do_not_depend_on_other_tokens_or_threads() {
        let (one, three) = (Team::new(1), Team::new(3));
        for dtype in TYPES {
            // From 32 on it may be a matrix unit that multiplies.
            let counts = if dtype == Dtype::F32 { [2, 9, 31, 200] } else { [2, 9, 30, 31] };
            for n_tokens in counts {
                let (n_rows, n_cols) = (83, 300);
                let bytes = stored(dtype, &numbers(n_rows * n_cols));
                let tiles = tiles(&one, dtype, &bytes, n_rows, n_cols);
                let x = numbers(n_tokens * n_cols);
                let mut together = vec![0.0; n_tokens * n_rows];
                tiles.forward(&three, &Activations::new(&x), None, &mut together);
                for (x, together) in x.chunks(n_cols).zip(together.chunks(n_rows)) {
                    let mut alone = vec![0.0; n_rows];
                    tiles.forward(&one, &Activations::new(x), None, &mut alone);
                    assert_eq!(alone, together, "{dtype}");
                }
            }
        }
    }
}
