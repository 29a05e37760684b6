//! A matrix in tiles of 16 rows.
//!
//! ```text
//! tile of rows 0..16:  columns of block 0 | block 1 | …      tile of rows 16..32:  …
//! ```
//! A thread that computes a run of rows reads one contiguous run of memory, and each tile's blocks hold what 16 lanes need side by side.
//! The last tile is filled up with rows of zeros.

use std::{cell::RefCell, ops::Range};

use kinfolk_decoder::LoadError;
use kinfolk_weights::Dtype;

use super::{
    activations::{GROUP, Group},
    header::Portable,
    kernel::{self, Sums, TILES, TOKENS},
    q_k::{Q4K, Q5K},
    q4::{Q4_0, Q4_1},
    q5::{Q5_0, Q5_1},
    q6_k::Q6K,
    q8::Q8_0,
    scheme::{self, Form, Header, Panel, ROWS, Scheme},
};
#[cfg(target_arch = "x86_64")]
use super::{
    kernel::{bytes, words},
    spans,
};
use crate::{
    activation::Gating,
    activations::Activations,
    arena::{Arena, Bytes},
    columns::Columns,
    level::{Level, compiled_per_level},
    rows::{StoredRows, TURN},
    team::{Team, share},
};

/// `$body` with `$S` the scheme of `$dtype`, `$none` for types without one.
macro_rules! with_scheme {
    ($dtype:expr, $S:ident => $body:expr, $none:expr) => {
        with_scheme!(@ $dtype, $S, $body, $none,
            Q4_0 Q4_0, Q4_1 Q4_1, Q5_0 Q5_0, Q5_1 Q5_1, Q8_0 Q8_0, Q4_K Q4K, Q5_K Q5K, Q6_K Q6K)
    };
    (@ $dtype:expr, $S:ident, $body:expr, $none:expr, $($variant:ident $scheme:ident),*) => {
        match $dtype {
            $(Dtype::$variant => {
                type $S = $scheme;
                $body
            })*
            _ => $none,
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod few;
mod many;

use many::Many;
pub(super) use many::Unpacked;

/// A quantised matrix in the kernels' layout.
#[derive(Debug)]
pub(crate) struct Tiles {
    dtype: Dtype,
    level: Level,
    /// Multiply by bytes, and what they leave in some groups, where there is a kernel for it.
    pub narrow_activations: bool,
    pub(super) n_rows: usize,
    n_cols: usize,
    /// `[n_rows / 16, n_cols / block, tile]`
    bytes: Bytes,
}

/// Bytes that a matrix of `dtype` takes in tiles; `None` for types that have no kernel.
pub(crate) fn tile_bytes(dtype: Dtype, n_rows: usize, n_cols: usize) -> Option<usize> {
    let (len, bytes) = with_scheme!(dtype, S => (S::BLOCK_LEN, S::TILE_BYTES), return None);
    n_rows.div_ceil(ROWS).checked_mul(n_cols / len)?.checked_mul(bytes)
}

impl Tiles {
    /// Lays a matrix out anew, given its rows. `None` if there is no kernel for its type.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn of_rows(team: &Team, arena: &Arena, rows: &StoredRows<'_>) -> Result<Option<Tiles>, LoadError> {
        let StoredRows { dtype, n_rows, n_cols, row } = *rows;
        let Some(needed_bytes) = tile_bytes(dtype, n_rows, n_cols) else { return Ok(None) };
        let mut bytes = arena.take(needed_bytes)?;
        let of_16_rows = needed_bytes / n_rows.div_ceil(ROWS).max(1);
        team.for_each_chunk(bytes.as_mut(), of_16_rows, |tile, out| {
            for lane in 0..ROWS.min(n_rows - tile * ROWS) {
                let stored = row(tile * ROWS + lane);
                with_scheme!(dtype, S => pack_row::<S>(stored, lane, out), ());
            }
        });
        Ok(Some(Tiles { dtype, level: Level::current(), narrow_activations: false, n_rows, n_cols, bytes }))
    }

    /// Bytes in memory.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn n_groups(&self) -> usize {
        self.n_cols / GROUP
    }

    pub(super) fn n_tiles(&self) -> usize {
        self.n_rows.div_ceil(ROWS)
    }

    /// Pairs of tiles, which kernels take side by side; the last may be a single one.
    fn n_pairs(&self) -> usize {
        self.n_tiles().div_ceil(TILES)
    }

    pub(super) fn rows_of_pair(&self, pair: usize) -> Range<usize> {
        pair * TILES * ROWS..((pair + 1) * TILES * ROWS).min(self.n_rows)
    }

    /// Rows of the output that a pair makes: with a gating one of its tiles opens for the other.
    pub(super) fn output_of_pair(&self, pair: usize, gating: Option<Gating>) -> Range<usize> {
        let rows = self.rows_of_pair(pair);
        if gating.is_some() { rows.start / 2..rows.end / 2 } else { rows }
    }

    fn n_tokens(&self, x: &Activations<'_, '_>) -> usize {
        x.x.len() / self.n_cols.max(1)
    }

    pub(super) fn form(&self) -> Form {
        with_scheme!(self.dtype, S => S::FORM, unreachable!("tiles are only made of types that have a scheme"))
    }

    /// Bits of a code.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn bits(&self) -> usize {
        with_scheme!(self.dtype, S => S::BITS, unreachable!("tiles are only made of types that have a scheme"))
    }

    pub(super) fn tile(&self, tile: usize) -> &[u8] {
        let len = self.bytes.len() / self.n_tiles().max(1);
        &self.bytes[tile * len..(tile + 1) * len]
    }

    /// Unpacks groups of a tile of rows from `first` on, as many as `panels` has.
    pub(super) fn unpack(&self, tile: usize, first: usize, panels: &mut [impl Unpacked]) {
        with_scheme!(self.dtype, S => many::unpack::<S, _>(self.level, self.tile(tile), first, panels), ());
    }

    /// Asks for what lies [as far](scheme::FAR_BYTES) behind a run of a tile's groups, for pairs of tiles that are unpacked in order.
    fn ask_ahead(&self, tile: usize, groups: &Range<usize>) {
        let tile = self.tile(tile);
        let [start, end] = [groups.start, groups.end].map(|group| group * tile.len() / self.n_groups());
        scheme::prefetch_part(&tile[start..], end - start, scheme::FAR_BYTES, 0, 1);
    }

    /// Decodes row `r` into `out`, `[n_cols]`: the same f32 as the dequantiser of the weights' type gives.
    pub fn decode_row(&self, r: usize, out: &mut [f32]) {
        let form = self.form();
        let mut panel = [Panel::EMPTY];
        for (g, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            self.unpack(r / ROWS, g, &mut panel);
            let (panel, row) = (&panel[0], r % ROWS);
            for (column, out) in out.iter_mut().enumerate() {
                let code = f32::from(panel.codes[column / 4][4 * row + column % 4]);
                *out = match form {
                    Form::Offset(offset) => panel.scaling.scales[0][row] * (code - f32::from(offset)),
                    Form::OffsetOfHalves(offset) => panel.scaling.scales[column / 16][row] * (code - f32::from(offset)),
                    Form::Minimum => panel.scaling.scales[0][row] * code + panel.scaling.minima[row],
                };
            }
        }
    }

    /// `[tokens, n_cols]` to `out`, `[tokens, n_rows]`, to which `bias` (`[n_rows]`) is added; or, of rows of two matrices [in
    /// turns](StoredRows::in_turns), to the `gating` of both products, `[tokens, n_rows / 2]`.
    ///
    /// # Cost
    /// Reads every weight once, whatever the number of tokens.
    pub fn forward<'t>(
        &self,
        team: &'t Team,
        x: &Activations<'_, 't>,
        bias: Option<&[f32]>,
        gating: Option<Gating>,
        out: &mut [f32],
    ) {
        const { assert!(TURN == ROWS && TILES == 2, "each pair of tiles has one of each matrix") };
        let n_tokens = self.n_tokens(x);
        let level = self.level.for_tokens(n_tokens);
        let n_rows = if gating.is_some() { self.n_rows / 2 } else { self.n_rows };
        let out = Columns::new(out, n_rows);
        #[cfg(target_arch = "x86_64")]
        if spans::is_for(level, n_tokens) {
            let x = x.codes.spans(team, x.x, self.n_cols);
            return self.forward_in_spans(team, &spans::Pass { x, bias, gating, out });
        }
        #[cfg(target_arch = "x86_64")]
        if few::has_kernel(self, n_tokens) {
            return few::forward(team, x, [few::Out { tiles: self, bias, gating, out }]);
        }
        let out = &out;
        #[cfg(target_arch = "x86_64")]
        if self.narrow_activations && bytes::is_for(level, n_tokens) {
            let x = x.codes.bytes(team, x.x, self.n_cols);
            return Many { tiles: self, level, x, bias, gating, out }.forward(team);
        }
        #[cfg(target_arch = "x86_64")]
        if words::is_for(level) {
            let x = x.codes.words(team, x.x);
            return Many { tiles: self, level, x, bias, gating, out }.forward(team);
        }
        let x = x.codes.groups(team, x.x);
        Many { tiles: self, level, x, bias, gating, out }.forward(team);
    }
}

/// One of several products with the same tokens.
pub(crate) struct Projection<'a> {
    pub tiles: &'a Tiles,
    /// `[n_rows]`
    pub bias: Option<&'a [f32]>,
    /// `[tokens, n_rows]`
    pub out: &'a mut [f32],
}

/// As [`Tiles::forward`], of all `projections`, which have the same columns. With few tokens they are one operation of the team.
pub(crate) fn forward_all<'t, const N: usize>(
    team: &'t Team,
    x: &Activations<'_, 't>,
    projections: [Projection<'_>; N],
) {
    #[cfg(target_arch = "x86_64")]
    if few::is_worth_joining(x, &projections) {
        return few::forward(team, x, projections.map(few::Out::from));
    }
    for Projection { tiles, bias, out } in projections {
        tiles.forward(team, x, bias, None, out);
    }
}

/// What a thread works with. One for the life of the thread, so that no product allocates.
pub(super) struct Scratch {
    panels: Vec<Panel>,
    #[cfg(target_arch = "x86_64")]
    words: Vec<words::Panel>,
    /// One for each token.
    sums: Vec<Sums>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            panels: Vec::new(),
            #[cfg(target_arch = "x86_64")]
            words: Vec::new(),
            sums: Vec::new(),
        })
    };
}

/// As much as both have. That of whole tiles is a few moves of registers and not a call.
#[inline(always)]
pub(super) fn copy(from: &[f32], to: &mut [f32]) {
    let n = from.len().min(to.len());
    let (from, to) = (&from[..n], &mut to[..n]);
    if let (Ok(from), Ok(to)) = (<&[f32; TILES * ROWS]>::try_from(from), <&mut [f32; TILES * ROWS]>::try_from(&mut *to))
    {
        *to = *from;
    } else if let (Ok(from), Ok(to)) = (<&[f32; ROWS]>::try_from(from), <&mut [f32; ROWS]>::try_from(&mut *to)) {
        *to = *from;
    } else {
        to.copy_from_slice(from);
    }
}

/// Lays out one stored row as row `row` of a tile.
fn pack_row<S: Scheme>(stored: &[u8], row: usize, tile: &mut [u8]) {
    for (block, out) in stored.chunks_exact(S::BLOCK_BYTES).zip(tile.chunks_exact_mut(S::TILE_BYTES)) {
        scheme::pack::<S>(block, row, out);
    }
}

#[cfg(test)]
mod tests {
    use kinfolk_weights::quant;

    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::quantized::activations::Bytes;
    use crate::rows::turn;

    const TYPES: [Dtype; 8] =
        [Dtype::Q4_0, Dtype::Q4_1, Dtype::Q5_0, Dtype::Q5_1, Dtype::Q8_0, Dtype::Q4_K, Dtype::Q5_K, Dtype::Q6_K];

    /// Stored rows with every bit in play but for exponents beyond what weights have.
    fn stored(dtype: Dtype, n_rows: usize, n_cols: usize) -> Vec<u8> {
        let mut state = 11u32;
        let mut bytes: Vec<u8> = (0..dtype.bytes_for(n_rows * n_cols).unwrap())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            let halves: &[usize] = match dtype {
                Dtype::Q6_K => &[208],
                Dtype::Q4_0 | Dtype::Q5_0 | Dtype::Q8_0 => &[0],
                _ => &[0, 2],
            };
            halves.iter().for_each(|at| block[at + 1] = block[at + 1] & 0x83 | 0x28);
        }
        bytes
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

    fn activations(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.713).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    #[test]
    fn a_row_decodes_to_the_bits_of_the_dequantiser() {
        let team = Team::new(2);
        for dtype in TYPES {
            for n_rows in [1, 16, 35] {
                let n_cols = 3 * 256;
                let bytes = stored(dtype, n_rows, n_cols);
                let tiles = tiles(&team, dtype, &bytes, n_rows, n_cols);
                assert_eq!(tiles.n_bytes(), tile_bytes(dtype, n_rows, n_cols).unwrap());
                let expected = decoded(dtype, &bytes, n_rows * n_cols);
                let mut found = vec![f32::NAN; n_rows * n_cols];
                found.chunks_mut(n_cols).enumerate().for_each(|(r, out)| tiles.decode_row(r, out));
                assert_eq!(found, expected, "{dtype}");
            }
        }
    }

    #[test]
    fn tiles_take_at_most_three_percent_more_than_the_file() {
        for dtype in TYPES {
            let (tiles, stored) = (tile_bytes(dtype, 64, 1024).unwrap(), dtype.bytes_for(64 * 1024).unwrap());
            assert!(tiles >= stored && tiles * 100 <= stored * 103, "{dtype}: {tiles} for {stored}");
        }
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::IQ4_NL, Dtype::Q8_K] {
            assert_eq!(tile_bytes(dtype, 64, 1024), None, "{dtype}");
        }
    }

    /// On a matrix unit from 32 tokens on, where 256 columns share the steps of weights and of activations and the least of the four
    /// products of their bytes is left out.
    #[test]
    fn products_in_spans_are_within_the_steps_of_weights_and_activations_of_the_exact_ones() {
        let team = Team::new(2);
        for dtype in TYPES {
            let block = dtype.block_len();
            for (n_rows, n_cols, n_tokens) in
                [(1, 1, 32), (17, 3, 33), (35, 9, 47), (100, 12, 64), (48, 24, 100), (32, 7, 300), (70, 9, 513)]
            {
                let n_cols = (n_cols * GROUP).next_multiple_of(block);
                let bytes = stored(dtype, n_rows, n_cols);
                let tiles = tiles(&team, dtype, &bytes, n_rows, n_cols);
                let weights = decoded(dtype, &bytes, n_rows * n_cols);
                let (x, bias) = (activations(n_tokens * n_cols), activations(n_rows));
                let mut found = vec![f32::NAN; n_tokens * n_rows];
                tiles.forward(&team, &Activations::new(&x), Some(&bias), None, &mut found);
                for (x, found) in x.chunks(n_cols).zip(found.chunks(n_rows)) {
                    for ((w, found), bias) in weights.chunks(n_cols).zip(found).zip(&bias) {
                        let (mut expected, mut bound) = (f64::from(*bias), 0.0);
                        for (w, x) in w.chunks(256).zip(x.chunks(256)) {
                            let [w, x] = [w, x].map(|v| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
                            let step = |v: &[f64]| v.iter().fold(0f64, |max, v| max.max(v.abs())) / 32512.0;
                            let sum = |v: &[f64]| v.iter().map(|v| v.abs()).sum::<f64>();
                            expected += w.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>();
                            // A scale can be that of a code which no weight has.
                            let (of_w, of_x) = (1.15 * step(&w), step(&x));
                            bound += 0.51 * sum(&w) * of_x + 1.6 * sum(&x) * of_w;
                            bound += (128 * 128 * w.len()) as f64 * of_w * of_x + 1e-6 * sum(&w) * 7.0;
                        }
                        let off = (f64::from(*found) - expected).abs();
                        assert!(
                            off <= bound + expected.abs() * 1e-6,
                            "{dtype}, {n_rows} by {n_cols}: {found} for {expected}, bound {bound}"
                        );
                    }
                }
            }
        }
    }

    /// From 32 tokens on without a matrix unit, where the groups of a run that are larger than most have rests.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn products_of_bytes_are_within_the_steps_of_the_activations_of_the_exact_ones() {
        let team = Team::new(2);
        let levels = Level::available().into_iter().filter(|level| bytes::is_for(*level, 32));
        for (dtype, level) in levels.flat_map(|level| TYPES.map(|dtype| (dtype, level))) {
            for (n_rows, n_groups, n_tokens) in
                [(1, 1, 32), (17, 3, 33), (35, 9, 47), (100, 12, 64), (48, 24, 100), (32, 7, 300), (70, 41, 513)]
            {
                let n_cols = (n_groups * GROUP).next_multiple_of(dtype.block_len());
                let n_groups = n_cols / GROUP;
                let bytes = stored(dtype, n_rows, n_cols);
                let mut tiles = tiles(&team, dtype, &bytes, n_rows, n_cols);
                (tiles.level, tiles.narrow_activations) = (level, true);
                let weights = decoded(dtype, &bytes, n_rows * n_cols);
                let (x, bias) = (activations(n_tokens * n_cols), activations(n_rows));
                let mut found = vec![f32::NAN; n_tokens * n_rows];
                tiles.forward(&team, &Activations::new(&x), Some(&bias), None, &mut found);
                for (x, found) in x.chunks(n_cols).zip(found.chunks(n_rows)) {
                    let largest = |g: usize| x[g * GROUP..][..GROUP].iter().fold(0f32, |max, x| max.max(x.abs()));
                    let n_runs = Bytes::n_runs(n_groups);
                    let mut steps = vec![0.0; n_groups];
                    for run in (0..n_runs).map(|run| share(n_groups, run, n_runs)) {
                        let mut by_size: Vec<usize> = run.clone().collect();
                        by_size.sort_by(|a, b| largest(*b).total_cmp(&largest(*a)));
                        for (i, g) in by_size.into_iter().enumerate() {
                            // Where two are nearly as large, either may have the rest.
                            let has_rest = (i + 1) * 8 <= run.len();
                            steps[g] = f64::from(largest(g)) / if has_rest { 32512.0 / 3.0 } else { 127.0 };
                        }
                    }
                    for ((w, found), bias) in weights.chunks(n_cols).zip(found).zip(&bias) {
                        let product: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                        let weight = |w: &[f32]| w.iter().map(|w| f64::from(w.abs())).sum::<f64>();
                        let expected = product + f64::from(*bias);
                        let steps = w.chunks(GROUP).zip(&steps).map(|(w, step)| 0.51 * step * weight(w)).sum::<f64>();
                        let bound = steps + expected.abs() * 1e-5 + weight(w) * 7.0 * 1e-6;
                        let off = (f64::from(*found) - expected).abs();
                        assert!(off <= bound, "{dtype}, {n_rows} by {n_cols}: {found} for {expected}, bound {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn of_32_tokens_and_more_none_depends_on_the_others_or_on_threads() {
        let teams = [Team::new(1), Team::new(2), Team::new(5)];
        for (dtype, narrow) in TYPES.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
            let (n_rows, n_cols, n_tokens) = (83, 1280, 600);
            let bytes = stored(dtype, n_rows, n_cols);
            let mut tiles = tiles(&teams[0], dtype, &bytes, n_rows, n_cols);
            tiles.narrow_activations = narrow;
            let mut x = activations(n_tokens * n_cols);
            x[40 * n_cols + 7] = f32::NAN;
            let of = |team: &Team, x: &[f32]| {
                let mut out = vec![0.0; x.len() / n_cols * n_rows];
                tiles.forward(team, &Activations::new(x), None, None, &mut out);
                out.iter().map(|y| y.to_bits()).collect::<Vec<_>>()
            };
            let together = of(&teams[0], &x);
            for team in &teams[1..] {
                assert_eq!(of(team, &x), together, "{dtype}, {} threads", team.n_threads());
            }
            for tokens in [0..32, 100..133, 559..600] {
                let alone = of(&teams[1], &x[tokens.start * n_cols..tokens.end * n_cols]);
                assert_eq!(alone, together[tokens.start * n_rows..tokens.end * n_rows], "{dtype}, tokens {tokens:?}");
            }
            let is_number =
                |token: usize| together[token * n_rows..][..n_rows].iter().all(|y| f32::from_bits(*y).is_finite());
            assert!(is_number(39) && !is_number(40) && is_number(41), "{dtype}");
        }
    }

    /// Sixteen-bit activations, each within a step and a half of 1/32512 of the group's largest.
    #[test]
    fn products_are_within_the_step_of_the_activations_of_the_exact_ones() {
        let team = Team::new(2);
        for dtype in TYPES {
            for (n_rows, n_cols, n_tokens) in [
                (1, 256, 1),
                (17, 512, 2),
                (35, 768, 3),
                (33, 256, 5),
                (16, 512, 8),
                (48, 512, 13),
                (19, 256, 31),
                (16, 256, 1000),
            ] {
                let bytes = stored(dtype, n_rows, n_cols);
                let mut tiles = tiles(&team, dtype, &bytes, n_rows, n_cols);
                let weights = decoded(dtype, &bytes, n_rows * n_cols);
                let (x, bias) = (activations(n_tokens * n_cols), activations(n_rows));
                let mut found = vec![f32::NAN; n_tokens * n_rows];
                tiles.forward(&team, &Activations::new(&x), Some(&bias), None, &mut found);
                if n_tokens < 32 {
                    for level in Level::available() {
                        tiles.level = level;
                        let mut again = vec![f32::NAN; n_tokens * n_rows];
                        tiles.forward(&team, &Activations::new(&x), Some(&bias), None, &mut again);
                        assert_eq!(again, found, "{dtype}, {n_rows} by {n_cols}, {n_tokens} tokens, {level:?}");
                    }
                }
                for (x, found) in x.chunks(n_cols).zip(found.chunks(n_rows)) {
                    for ((w, found), bias) in weights.chunks(n_cols).zip(found).zip(&bias) {
                        let product: f64 = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                        let weight: f64 = w.iter().map(|w| f64::from(w.abs())).sum();
                        let (expected, step) = (product + f64::from(*bias), 7.0 / 32512.0);
                        let bound = weight * step * 1.5 + expected.abs() * 1e-5 + weight * 7.0 * 1e-6;
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
            let (n_rows, n_cols) = (83, 1280);
            let bytes = stored(dtype, n_rows, n_cols);
            let tiles = tiles(&one, dtype, &bytes, n_rows, n_cols);
            let (x, bias) = (activations(31 * n_cols), activations(n_rows));
            let of = |team, x: &[f32]| {
                let mut out = vec![f32::NAN; x.len() / n_cols * n_rows];
                tiles.forward(team, &Activations::new(x), Some(&bias), None, &mut out);
                out
            };
            let alone: Vec<f32> = x.chunks(n_cols).flat_map(|x| of(&one, x)).collect();
            for n_tokens in [2, 3, 4, 5, 8, 9, 16, 17, 31] {
                assert_eq!(of(&three, &x[..n_tokens * n_cols]), alone[..n_tokens * n_rows], "{dtype}, {n_tokens}");
            }
        }
    }

    #[test]
    fn products_in_one_operation_have_the_bits_of_products_alone() {
        let (team, n_cols) = (Team::new(3), 512);
        let matrices = [(Dtype::Q4_K, 83), (Dtype::Q6_K, 16), (Dtype::Q4_0, 40)]
            .map(|(dtype, n_rows)| (tiles(&team, dtype, &stored(dtype, n_rows, n_cols), n_rows, n_cols), n_rows));
        let bias = activations(83);
        for n_tokens in [0, 1, 2, 9, 40] {
            let x = activations(n_tokens * n_cols);
            let out = |(_, n_rows): &(Tiles, usize)| vec![f32::NAN; n_tokens * n_rows];
            let (mut alone, mut together) = (matrices.each_ref().map(out), matrices.each_ref().map(out));
            for ((tiles, n_rows), out) in matrices.iter().zip(&mut alone) {
                tiles.forward(&team, &Activations::new(&x), Some(&bias[..*n_rows]), None, out);
            }
            let [a, b, c] = &mut together;
            let [of_a, of_b, of_c] = &matrices;
            let projections = [(of_a, a), (of_b, b), (of_c, c)].map(|((tiles, n_rows), out)| Projection {
                tiles,
                bias: Some(&bias[..*n_rows]),
                out,
            });
            forward_all(&team, &Activations::new(&x), projections);
            assert_eq!(together, alone, "{n_tokens} tokens");
        }
    }

    /// Also in spans, whose sums then never leave the kernel.
    #[test]
    fn a_gate_and_what_it_opens_for_have_the_bits_of_both_products() {
        let team = Team::new(3);
        for dtype in TYPES {
            let (n_rows, n_cols) = (80, 512);
            let bytes = stored(dtype, 2 * n_rows, n_cols);
            let (first, second) = bytes.split_at(bytes.len() / 2);
            let row_bytes = first.len() / n_rows;
            let (of_first, of_second) =
                (|r| &first[r * row_bytes..][..row_bytes], |r| &second[r * row_bytes..][..row_bytes]);
            let rows = [
                &StoredRows { dtype, n_rows, n_cols, row: &of_first },
                &StoredRows { dtype, n_rows, n_cols, row: &of_second },
            ];
            let in_tiles = |rows: &StoredRows<'_>| Tiles::of_rows(&team, &Arena::new(0), rows).unwrap().unwrap();
            let [mut gate, mut up] = rows.map(in_tiles);
            let mut joint = StoredRows::in_turns(rows, in_tiles).expect("matrices that are alike");
            let bias = activations(2 * n_rows);
            let of_joint: Vec<f32> = (0..2 * n_rows).map(|r| bias[turn(r).0 * n_rows + turn(r).1]).collect();
            for (level, (n_tokens, narrow)) in Level::available().into_iter().flat_map(|level| {
                let counts =
                    [1, 7, 8, 20, 31, 32, 77, 300].map(|n| (n, false)).into_iter().chain([(33, true), (300, true)]);
                counts.map(move |count| (level, count))
            }) {
                for tiles in [&mut gate, &mut up, &mut joint] {
                    (tiles.level, tiles.narrow_activations) = (level, narrow);
                }
                let x = activations(n_tokens * n_cols);
                let x = Activations::new(&x);
                for gating in [Gating::Silu, Gating::GeluTanh] {
                    let mut expected = vec![f32::NAN; n_tokens * n_rows];
                    let (mut opened, mut found) = (expected.clone(), expected.clone());
                    gate.forward(&team, &x, Some(&bias[..n_rows]), None, &mut expected);
                    up.forward(&team, &x, Some(&bias[n_rows..]), None, &mut opened);
                    gating.apply(level, &mut expected, &opened);
                    joint.forward(&team, &x, Some(&of_joint), Some(gating), &mut found);
                    assert_eq!(found, expected, "{dtype}, {n_tokens} tokens, {level:?}, narrow {narrow}");
                }
            }
        }
    }

    #[test]
    fn a_scale_that_is_no_number_makes_its_row_none_and_no_other() {
        let team = Team::new(1);
        for dtype in TYPES {
            let mut bytes = stored(dtype, 20, 1024);
            // The scale in the third row's first block, which others of its span follow.
            let row = &mut bytes[2 * dtype.bytes_for(1024).unwrap()..];
            let at = if dtype == Dtype::Q6_K { 208 } else { 0 };
            row[at..at + 2].copy_from_slice(&[0xff, 0x7f]);
            let tiles = tiles(&team, dtype, &bytes, 20, 1024);
            for n_tokens in [1, 8, 40] {
                let mut out = vec![0.0; n_tokens * 20];
                tiles.forward(&team, &Activations::new(&activations(n_tokens * 1024)), None, None, &mut out);
                let is_none = |(i, y): (usize, &f32)| y.is_nan() == (i % 20 == 2);
                assert!(out.iter().enumerate().all(is_none), "{dtype}, {n_tokens} tokens");
            }
        }
    }

    #[test]
    fn hostile_scales_and_activations_give_numbers_or_none_but_never_a_panic() {
        let team = Team::new(1);
        for dtype in TYPES {
            let bytes = vec![0xff; dtype.bytes_for(16 * 256).unwrap()];
            let tiles = tiles(&team, dtype, &bytes, 16, 256);
            for x in [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE] {
                let mut out = [0.0; 16];
                tiles.forward(&team, &Activations::new(&[x; 256]), None, None, &mut out);
                assert!(out.iter().all(|y| y.is_nan() || y.is_infinite() || *y == 0.0), "{dtype}, {x}: {out:?}");
            }
        }
    }
}
