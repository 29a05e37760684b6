//! Many queries of a sequence, on the matrix unit.
//!
//! ```text
//! for each block of 64 keys and values, split into planes once:       (panel)
//!     for each head of the group, for each 32 of its queries:
//!         scores 32 x 64   = queries · keysᵀ                           (unit)
//!         weights 32 x 64  = 2^(scores - reference)                    (softmax)
//!         mixture 32 x dim = mixture + weights · values                (unit)
//! ```
//! Queries are multiplied by the scale and by 1 / ln 2 beforehand. All of this stays in the first two levels of the cache, and blocks that no query of a
//! tile sees are left out. A query's result depends on nothing but its own and the keys and values that it sees, so neither on threads nor on
//! which queries it is computed with; from that of `segment` it differs by what two planes leave out of a number.

mod panel;
mod softmax;
mod unit;

use std::{array, f32::consts::LOG2_E, ops::Range};

use self::{
    softmax::{Rows, Visible},
    unit::{Panel, SIDE, Sums, Unit},
};
use super::segment::Scores;
use crate::{
    activation::capped,
    amx,
    cache::{BLOCK, KvShape, LANES, LayerCache, Tile},
    columns::Cell,
    level::{Level, MANY_TOKENS},
};

/// Whether this processor has what it takes, and may use it.
pub(super) fn is_available() -> bool {
    Level::current() == Level::Amx
        && amx::multiplies_bf16()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

/// How many of a sequence's `n_tokens` tokens to compute at once, whose queries that share keys have `width` elements each: as many as the cache
/// has room for, to use what is laid out often, about equally many each time, and no more than about `n_most`.
pub(super) fn n_tokens_of_cell(n_tokens: usize, width: usize, n_most: usize) -> usize {
    let fit = QUERY_BYTES / width.saturating_mul(2 * size_of::<f32>());
    let n_cells = n_tokens.div_ceil(fit.min(n_most).max(SIDE));
    n_tokens.div_ceil(n_cells).next_multiple_of(SIDE)
}

/// Bytes of a [`Workspace`] for heads in groups of `group`, `n_tokens` at once of sequences of up to `n_positions`. Saturating, as sizes are a
/// config's.
pub(super) fn n_bytes(group: usize, head_dim: usize, n_tokens: usize, n_positions: usize) -> u64 {
    if n_tokens < MANY_TOKENS {
        return 0;
    }
    let of_panels = head_dim.div_ceil(SIDE).saturating_mul(size_of::<Panel>());
    let of_tile = of_panels.saturating_mul(2).saturating_add(size_of::<Rows>());
    let n_tiles = n_tokens_of_cell(n_tokens, group.saturating_mul(head_dim).max(1), n_tokens).div_ceil(SIDE);
    let n_blocks = blocks_laid_out(head_dim).min(n_positions.div_ceil(BLOCK).saturating_add(1));
    let queries = of_tile.saturating_mul(group).saturating_mul(n_tiles);
    queries.saturating_add(of_panels.saturating_mul(4).saturating_mul(n_blocks)) as u64
}

/// How many blocks are laid out at a time.
fn blocks_laid_out(head_dim: usize) -> usize {
    (LAID_OUT_BYTES / head_dim.div_ceil(SIDE).saturating_mul(4 * size_of::<Panel>()).max(1)).max(1)
}

/// What queries look at.
pub(super) struct Keys<'a> {
    pub scores: Scores,
    pub cache: &'a LayerCache,
    pub head: usize,
    /// Most positions that a query sees.
    pub window: usize,
}

/// What one thread works in.
pub(super) struct Workspace {
    /// `[heads, tokens / 32, head_dim / 32]`
    queries: Vec<Panel>,
    /// `[heads, tokens / 32, head_dim / 32]`
    mixtures: Vec<Mixture>,
    /// `[heads, tokens / 32]`
    rows: Vec<Rows>,
    /// `[blocks, head_dim / 32, 2]`
    keys: Vec<Panel>,
    /// `[blocks, 2, head_dim / 32]`
    values: Vec<Panel>,
    /// Keys of the last positions where these are not a whole group.
    last: Vec<Tile>,
    scores: softmax::Block,
    weights: [Panel; 2],
}

/// 32 elements of what 32 queries mix.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Mixture([[f32; SIDE]; SIDE]);

/// Bytes of the queries that are computed at once, and of what they mix.
const QUERY_BYTES: usize = 256 << 10;

/// Bytes of the keys and values that are laid out at a time.
const LAID_OUT_BYTES: usize = 256 << 10;

impl Workspace {
    pub const fn new() -> Workspace {
        Workspace {
            queries: Vec::new(),
            mixtures: Vec::new(),
            rows: Vec::new(),
            keys: Vec::new(),
            values: Vec::new(),
            last: Vec::new(),
            scores: softmax::Block([[0.0; BLOCK]; SIDE]),
            weights: [Panel::EMPTY; 2],
        }
    }

    /// Replaces queries by what they mix: those of successive tokens, the first of which is at `position`, and of the heads that share keys and
    /// values.
    ///
    /// # Panics
    /// If it is not [available](is_available).
    pub fn attend(&mut self, keys: &Keys<'_>, position: usize, queries: &mut Cell<'_>) {
        assert!(is_available(), "a matrix unit");
        let unit = Unit::new().expect("just found");
        // SAFETY: the instruction sets were just found.
        unsafe { self.attend_with(&unit, keys, position, queries) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    fn attend_with(&mut self, unit: &Unit, keys: &Keys<'_>, position: usize, queries: &mut Cell<'_>) {
        let head_dim = keys.cache.shape().head_dim;
        self.take(queries, head_dim, keys.scores);
        keys.cache.close(Level::current(), keys.head, &mut self.last);
        let n_tiles = queries.n_tokens().div_ceil(SIDE);
        let seen = (position + 1).saturating_sub(keys.window)..position + queries.n_tokens();
        let n_blocks = blocks_laid_out(head_dim);
        for start in (seen.start - seen.start % BLOCK..seen.end).step_by(n_blocks * BLOCK) {
            let blocks = (start..seen.end.min(start + n_blocks * BLOCK)).step_by(BLOCK);
            self.lay_out(keys, blocks.clone(), &seen);
            for tile in 0..self.rows.len() {
                let position = position + tile % n_tiles * SIDE;
                for (i, first) in blocks.clone().enumerate() {
                    match Sight::new(position, keys.window, first) {
                        Sight::Nothing => {}
                        Sight::Some(visible) => self.look(unit, keys.scores.softcap, tile, i, Some(&visible)),
                        Sight::All => self.look(unit, keys.scores.softcap, tile, i, None),
                    }
                }
            }
        }
        self.give(queries, head_dim);
    }

    /// Adds what the queries of a tile see of a block to what they mix.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    fn look(&mut self, unit: &Unit, softcap: Option<f32>, tile: usize, block: usize, visible: Option<&Visible>) {
        let n_parts = self.queries.len() / self.rows.len();
        let queries = &self.queries[tile * n_parts..][..n_parts];
        let keys = &self.keys[2 * n_parts * block..][..2 * n_parts];
        for half in 0..2 {
            unit.clear();
            for (part, query) in queries.iter().enumerate() {
                unit.add_product(query, &keys[2 * part + half]);
            }
            unit.put_down(Sums::within(&mut self.scores.0, half * SIDE));
        }
        if let Some(cap) = softcap {
            for score in self.scores.0.as_flattened_mut() {
                *score = capped(*score, cap) * LOG2_E;
            }
        }
        let rows = &mut self.rows[tile];
        let are_new = rows.are_new();
        let mixtures = &mut self.mixtures[tile * n_parts..][..n_parts];
        let values = &self.values[2 * n_parts * block..][..2 * n_parts];
        if let Some(factors) = rows.weigh(&self.scores, visible, &mut self.weights, values) {
            mixtures.iter_mut().for_each(|mixture| mixture.scale(&factors));
        }
        for (part, mixture) in mixtures.iter_mut().enumerate() {
            let sums = Sums::within(&mut mixture.0, 0);
            if are_new {
                unit.clear();
            } else {
                unit.take_up(sums);
            }
            for (i, weights) in self.weights.iter().enumerate() {
                unit.add_product(weights, &values[i * n_parts + part]);
            }
            unit.put_down(sums);
        }
    }

    /// Lays out queries, and makes room.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn take(&mut self, queries: &mut Cell<'_>, head_dim: usize, scores: Scores) {
        let n_tokens = queries.n_tokens();
        let (n_parts, n_tiles) = (head_dim.div_ceil(SIDE), n_tokens.div_ceil(SIDE));
        let n_heads = queries.of_token(0).len() / head_dim;
        self.queries.resize(n_heads * n_tiles * n_parts, Panel::EMPTY);
        self.mixtures.resize(n_heads * n_tiles * n_parts, Mixture([[0.0; SIDE]; SIDE]));
        self.rows.clear();
        self.rows.resize(n_heads * n_tiles, Rows::EMPTY);
        let factor = if scores.softcap.is_some() { scores.scale } else { scores.scale * LOG2_E };
        for token in 0..n_tiles * SIDE {
            let of_token: &[f32] = if token < n_tokens { queries.of_token(token) } else { &[] };
            for head in 0..n_heads {
                let panels = &mut self.queries[(head * n_tiles + token / SIDE) * n_parts..][..n_parts];
                let query = of_token.get(head * head_dim..(head + 1) * head_dim).unwrap_or_default();
                panel::put_query(query, factor, token % SIDE, panels);
            }
        }
    }

    /// Lays out the blocks that start at positions `blocks`, values only where they are `seen`.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn lay_out(&mut self, keys: &Keys<'_>, blocks: impl ExactSizeIterator<Item = usize>, seen: &Range<usize>) {
        let shape @ KvShape { head_dim, .. } = keys.cache.shape();
        let of_block = 2 * head_dim.div_ceil(SIDE);
        self.keys.resize(blocks.len() * of_block, Panel::EMPTY);
        self.values.resize(blocks.len() * of_block, Panel::EMPTY);
        for (i, first) in blocks.enumerate() {
            let block = keys.cache.block(first);
            let own = i * of_block..(i + 1) * of_block;
            let places = seen.start.max(first) - first..seen.end.min(first + BLOCK) - first;
            for group in 0..BLOCK / LANES {
                let tiles = match keys.cache.open_group() {
                    Some(last) if last == first + group * LANES => &self.last,
                    _ => block.group(shape, keys.head, group),
                };
                panel::put_keys(tiles.as_flattened(), group, &mut self.keys[own.clone()]);
            }
            let n_vectors = shape.width() / LANES;
            panel::put_values(block.values(shape, keys.head), n_vectors, places, &mut self.values[own]);
        }
    }

    /// Writes what was mixed in place of the queries.
    #[target_feature(enable = "avx512f")]
    fn give(&self, queries: &mut Cell<'_>, head_dim: usize) {
        let n_tokens = queries.n_tokens();
        let (n_parts, n_tiles) = (head_dim.div_ceil(SIDE), n_tokens.div_ceil(SIDE));
        for token in 0..n_tokens {
            for (head, out) in queries.of_token(token).chunks_exact_mut(head_dim).enumerate() {
                let tile = head * n_tiles + token / SIDE;
                let factor = 1.0 / self.rows[tile].sum(token % SIDE);
                for (part, out) in out.chunks_mut(SIDE).enumerate() {
                    let mixed = &self.mixtures[tile * n_parts + part].0[token % SIDE];
                    panel::put_scaled(mixed, factor, out);
                }
            }
        }
    }
}

impl Mixture {
    fn scale(&mut self, factors: &[f32; SIDE]) {
        for (row, factor) in self.0.iter_mut().zip(factors) {
            row.iter_mut().for_each(|v| *v *= factor);
        }
    }
}

/// What the queries of a tile see of a block.
#[expect(clippy::large_enum_variant, reason = "it is looked at at once and not kept")]
enum Sight {
    Nothing,
    Some(Visible),
    All,
}

impl Sight {
    /// Of queries from `position` on that see up to `window` positions, and the block at `first`.
    fn new(position: usize, window: usize, first: usize) -> Sight {
        let seen = |r: usize| -> Range<usize> {
            let end = position + r + 1;
            let place = |p: usize| p.clamp(first, first + BLOCK) - first;
            place(end.saturating_sub(window))..place(end)
        };
        if seen(SIDE - 1).end == 0 || seen(0).start == BLOCK {
            return Sight::Nothing;
        }
        if seen(0).end == BLOCK && seen(SIDE - 1).start == 0 {
            return Sight::All;
        }
        let up_to = |n: usize| if n == BLOCK { u64::MAX } else { (1 << n) - 1 };
        Sight::Some(array::from_fn(|r| up_to(seen(r).end) & !up_to(seen(r).start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attention::{
            sample::{cached, filled, plain, value},
            segment,
        },
        team::Team,
    };

    /// What `n_tokens` tokens from `position` on see, as cells of so many tokens, or as `segment` computes it where there is no matrix unit.
    fn attended(keys: &Keys<'_>, position: usize, q: &[f32], group: usize, of_cell: usize) -> Vec<f32> {
        let head_dim = keys.cache.shape().head_dim;
        let mut out = q.to_vec();
        if is_available() {
            let mut work = Workspace::new();
            let team = Team::new(1);
            let work = std::sync::Mutex::new(&mut work);
            Cell::for_each(&team, &mut out, group * head_dim, (of_cell, group * head_dim), |token, _, cell| {
                work.lock().unwrap().attend(keys, position + token, cell);
            });
            return out;
        }
        let width = keys.cache.shape().width();
        let mut work = segment::Workspace::new();
        let mut memory = vec![0.0; segment::Mixture::len(group, width)];
        for (token, out) in out.chunks_exact_mut(group * head_dim).enumerate() {
            let end = position + token + 1;
            let seen = end.saturating_sub(keys.window)..end;
            work.queries.set(head_dim, out.chunks_exact(head_dim).map(|q| (q, seen.clone())));
            let mut mixture = segment::Mixture::within(&mut memory, group, width);
            let Keys { scores, cache, head, .. } = *keys;
            work.attend(
                Level::current(),
                scores,
                &segment::Keys { cache, head, positions: 0..end },
                None,
                &mut mixture,
            );
            segment::write_rows(&memory, group, 0, out, head_dim);
        }
        out
    }

    #[test]
    fn queries_mix_what_they_see_to_within_what_two_planes_hold() {
        // Head sizes that fill panels and that do not, groups, windows within a block and over several, chunks at any place.
        let cases = [
            (64, 3, usize::MAX, None, 32, 0),
            (64, 1, usize::MAX, None, 1000, 0),
            (128, 2, usize::MAX, None, 100, 411),
            (256, 4, usize::MAX, Some(2.0), 65, 1),
            (80, 9, usize::MAX, None, 40, 63),
            (24, 2, 7, None, 150, 0),
            (33, 1, 64, None, 100, 200),
            (96, 5, 100, Some(0.5), 333, 64),
            (256, 1, 129, None, 64, 700),
            (32, 8, 1, None, 77, 5),
        ];
        for case @ (head_dim, group, window, softcap, n_tokens, position) in cases {
            let shape = KvShape { n_heads: 2, head_dim };
            let (cache, k, v) = filled(shape, position + n_tokens);
            let scores = Scores { scale: 3.0 / (head_dim as f32).sqrt(), softcap };
            let keys = Keys { scores, cache: &cache, head: 1, window };
            let q: Vec<f32> = (0..n_tokens * group * head_dim).map(|i| 4.0 * value(i * 31)).collect();
            let found = attended(&keys, position, &q, group, 128);
            for (r, (found, q)) in found.chunks_exact(head_dim).zip(q.chunks_exact(head_dim)).enumerate() {
                let end = position + r / group + 1;
                let exact = plain(shape, scores, 1, q, end.saturating_sub(window)..end, &k, &v);
                for (found, exact) in found.iter().zip(exact) {
                    assert!((f64::from(*found) - exact).abs() < TOLERANCE, "{case:?}, {r}: {found} for {exact}");
                }
            }
            for of_cell in [32, 64, 1024] {
                assert_eq!(attended(&keys, position, &q, group, of_cell), found, "{case:?}, {of_cell} tokens at once");
            }
        }
    }

    /// Where values are up to 1 and scores up to 20 or so.
    const TOLERANCE: f64 = 1e-4;

    #[test]
    fn scores_that_go_far_up_and_down_are_weighed_alike() {
        let shape = KvShape { n_heads: 1, head_dim: 32 };
        let n = 400;
        let (_, _, v) = filled(shape, n);
        /// Planes hold a score of 200 to about this much.
        const TOLERANCE: f64 = 1e-3;
        // One element alone. Scores with each block are far from those with the block before.
        let level = |p: usize| [0.0, 90.0, -300.0, 200.0, 196.0, 220.0, 0.0][p / BLOCK] + (p % 7) as f32;
        let k: Vec<f32> = (0..n * 32).map(|i| if i % 32 == 0 { level(i / 32) } else { 0.0 }).collect();
        let cache = cached(shape, &k, &v);
        let scores = Scores { scale: 1.0, softcap: None };
        let q: Vec<f32> = (0..n * 32).map(|i| if i % 32 == 0 { 1.0 } else { 0.0 }).collect();
        let found = attended(&Keys { scores, cache: &cache, head: 0, window: usize::MAX }, 0, &q, 1, 64);
        for (t, found) in found.chunks_exact(32).enumerate() {
            let exact = plain(shape, scores, 0, &q[..32], 0..t + 1, &k, &v);
            let close = found.iter().zip(&exact).all(|(found, exact)| (f64::from(*found) - exact).abs() < TOLERANCE);
            assert!(close, "{t}: {found:?} for {exact:?}");
        }
    }

    #[test]
    fn what_is_no_number_reaches_those_that_see_it_and_no_block_before() {
        let shape = KvShape { n_heads: 1, head_dim: 64 };
        let n = 192;
        for (bad, in_keys) in [(100, true), (100, false), (191, false)] {
            for value in [f32::NAN, f32::from_bits(0x7fff_ffff), f32::from_bits(0xffff_ffff)] {
                let (_, mut k, mut v) = filled(shape, n);
                let of = if in_keys { &mut k } else { &mut v };
                of[bad * 64 + 5] = value;
                let cache = cached(shape, &k, &v);
                let scores = Scores { scale: 0.1, softcap: None };
                let q: Vec<f32> = (0..n * 64).map(self::value).collect();
                let found = attended(&Keys { scores, cache: &cache, head: 0, window: usize::MAX }, 0, &q, 1, 96);
                for (t, row) in found.chunks_exact(64).enumerate() {
                    let seen = if in_keys { row.iter().all(|x| x.is_nan()) } else { row[5].is_nan() };
                    assert!(t < bad || seen, "{bad}, {t}");
                    assert!(t >= bad - bad % BLOCK || row.iter().all(|x| x.is_finite()), "{bad}, {t}");
                }
            }
        }
    }
}
