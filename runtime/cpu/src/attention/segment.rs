//! A few queries against a run of keys and values.
//!
//! Softmax needs no second look at the keys: of each block the largest score `m`, the sum `l = Σ eˢ⁻ᵐ` and the mixture `o = Σ eˢ⁻ᵐ v` are found,
//! and two such results are one of both blocks after the one with the smaller `m` has been scaled (Milakov and Gimelshein 2018,
//! arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). Blocks are merged in order within segments of a fixed number of positions, and
//! segments in order, so that a query's result is the same whichever queries, threads and chunks it is computed with.

use std::{mem, ops::Range};

use super::product::{self, Isa, Portable, Row, Strips};
use crate::{
    activation::capped,
    cache::{BLOCK, Block, KvShape, LANES, LayerCache, Tile},
    exp::exp,
    level::{Level, compiled_per_level},
    prefetch,
};

/// Positions of a segment, what one thread computes at least.
pub(super) const SEGMENT: usize = 256;

/// Segments that some of `positions` are in.
pub(super) fn n_segments(positions: &Range<usize>) -> usize {
    positions.end.div_ceil(SEGMENT) - positions.start / SEGMENT
}

/// What makes scores of products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scores {
    pub scale: f32,
    pub softcap: Option<f32>,
}

/// Queries that share a head of keys and values.
pub(super) struct Queries {
    /// `[head_dim / 64, rows]`, each filled up with zeros.
    packed: Vec<Row>,
    /// Positions that each row sees.
    visible: Vec<Range<usize>>,
}

impl Queries {
    pub const fn new() -> Queries {
        Queries { packed: Vec::new(), visible: Vec::new() }
    }

    /// Takes `rows`, each with what it sees, in place of what there was.
    pub fn set<'a>(&mut self, head_dim: usize, rows: impl ExactSizeIterator<Item = (&'a [f32], Range<usize>)>) {
        let n_rows = rows.len();
        self.packed.clear();
        self.packed.resize(head_dim.div_ceil(BLOCK) * n_rows, [0.0; BLOCK]);
        self.visible.clear();
        for (r, (row, visible)) in rows.enumerate() {
            for (part, row) in row.chunks(BLOCK).enumerate() {
                self.packed[part * n_rows + r][..row.len()].copy_from_slice(row);
            }
            self.visible.push(visible);
        }
    }

    fn n_rows(&self) -> usize {
        self.visible.len()
    }

    /// Positions that any row sees.
    pub fn all_visible(&self) -> Range<usize> {
        let start = self.visible.iter().map(|v| v.start).min().unwrap_or(0);
        start..self.visible.iter().map(|v| v.end).max().unwrap_or(0)
    }
}

/// Results of a few rows, not yet divided by their sums.
#[derive(Debug)]
pub(super) struct Mixture<'a> {
    /// Largest score of each row.
    pub max: &'a mut [f32],
    /// Sum of each row's weights.
    pub sum: &'a mut [f32],
    /// `[rows, width]`
    pub values: &'a mut [f32],
}

impl<'a> Mixture<'a> {
    /// Elements that `n_rows` rows take.
    pub fn len(n_rows: usize, width: usize) -> usize {
        n_rows * (width + 2)
    }

    /// In the first [`len`](Self::len) elements of `memory`.
    pub fn within(memory: &'a mut [f32], n_rows: usize, width: usize) -> Mixture<'a> {
        let memory = &mut memory[..Mixture::len(n_rows, width)];
        let (max, rest) = memory.split_at_mut(n_rows);
        let (sum, values) = rest.split_at_mut(n_rows);
        Mixture { max, sum, values }
    }

    /// Of no keys at all.
    pub fn clear(&mut self) {
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        self.values.fill(0.0);
    }

    /// Takes in what comes after it.
    pub fn take_in(&mut self, level: Level, other: &Mixture<'_>) {
        merge(level, self, other);
        compiled_per_level!(merge = merge_two [] (a: &mut Mixture<'_>, b: &Mixture<'_>));
    }

    #[inline(always)]
    fn merge(&mut self, other: &Mixture<'_>) {
        let width = self.values.len() / self.max.len();
        let rows = self.values.chunks_exact_mut(width).zip(other.values.chunks_exact(width));
        for (r, (values, others)) in rows.enumerate() {
            // A row that has seen nothing yet takes the other as it is, without two exponentials to find that out.
            if self.max[r] == f32::NEG_INFINITY {
                (self.max[r], self.sum[r]) = (other.max[r], other.sum[r]);
                values.copy_from_slice(others);
                continue;
            }
            let max = if other.max[r] > self.max[r] { other.max[r] } else { self.max[r] };
            // So does one that sees nothing there keep its own.
            let own = if other.max[r] == f32::NEG_INFINITY { 1.0 } else { exp(self.max[r] - max) };
            let theirs = if other.max[r] == f32::NEG_INFINITY { 0.0 } else { exp(other.max[r] - max) };
            self.max[r] = max;
            self.sum[r] = theirs.mul_add(other.sum[r], own * self.sum[r]);
            for (v, o) in values.iter_mut().zip(others) {
                *v = theirs.mul_add(*o, own * *v);
            }
        }
    }
}

#[inline(always)]
fn merge_two(a: &mut Mixture<'_>, b: &Mixture<'_>) {
    a.merge(b);
}

/// Writes rows from `first` on of a result of `n_rows` to `out`, divided by their sums.
pub(super) fn write_rows(part: &[f32], n_rows: usize, first: usize, out: &mut [f32], head_dim: usize) {
    let (sums, values) = part[n_rows..].split_at(n_rows);
    let width = head_dim.next_multiple_of(LANES);
    for (r, out) in (first..).zip(out.chunks_exact_mut(head_dim)) {
        for (out, v) in out.iter_mut().zip(&values[r * width..]) {
            *out = v / sums[r];
        }
    }
}

/// What one thread works in.
pub(super) struct Workspace {
    pub queries: Queries,
    /// Scores of each row with a block, then its weights.
    weights: Vec<Row>,
    of_block: Vec<f32>,
    of_segment: Vec<f32>,
    of_all: Vec<f32>,
    /// Keys of the last positions where these are not a whole group.
    last: Vec<Tile>,
}

impl Workspace {
    pub const fn new() -> Workspace {
        Workspace {
            queries: Queries::new(),
            weights: Vec::new(),
            of_block: Vec::new(),
            of_segment: Vec::new(),
            of_all: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Mixes what the queries see of `keys`. Asks for the memory of what this thread is likely to look at `next`.
    pub fn attend(
        &mut self,
        level: Level,
        scores: Scores,
        keys: &Keys<'_>,
        next: Option<&Keys<'_>>,
        out: &mut Mixture<'_>,
    ) {
        let Keys { cache, head, .. } = *keys;
        let (n_rows, width) = (self.queries.n_rows(), cache.shape().width());
        self.weights.resize(n_rows, [0.0; BLOCK]);
        self.of_block.resize(Mixture::len(n_rows, width), 0.0);
        self.of_segment.resize(Mixture::len(n_rows, width), 0.0);
        let seen = self.queries.all_visible().end.min(keys.positions.end);
        let last = cache.open_group().filter(|first| *first < seen);
        if last.is_some() {
            cache.close(level, head, &mut self.last);
        }
        attend_with(level, self, &Task { scores, keys, last, next }, out);
    }

    /// As [`attend`](Self::attend), where these are all the keys that the queries see: writes what they mix to `out`, `[rows, head_dim]`.
    pub fn attend_alone(
        &mut self,
        level: Level,
        scores: Scores,
        keys: &Keys<'_>,
        next: Option<&Keys<'_>>,
        out: &mut [f32],
    ) {
        let (n_rows, shape) = (self.queries.n_rows(), keys.cache.shape());
        let mut of_all = mem::take(&mut self.of_all);
        of_all.resize(Mixture::len(n_rows, shape.width()), 0.0);
        self.attend(level, scores, keys, next, &mut Mixture::within(&mut of_all, n_rows, shape.width()));
        write_rows(&of_all, n_rows, 0, out, shape.head_dim);
        self.of_all = of_all;
    }
}

/// Positions of a head of a layer.
pub(super) struct Keys<'a> {
    pub cache: &'a LayerCache,
    pub head: usize,
    pub positions: Range<usize>,
}

struct Task<'a> {
    scores: Scores,
    keys: &'a Keys<'a>,
    /// Where the keys begin that are in [`Workspace::last`].
    last: Option<usize>,
    next: Option<&'a Keys<'a>>,
}

#[cfg(target_arch = "x86_64")]
fn attend_with(level: Level, work: &mut Workspace, task: &Task<'_>, out: &mut Mixture<'_>) {
    use super::product::{Avx2, Avx512};

    #[target_feature(enable = "avx2,fma")]
    fn avx2(work: &mut Workspace, task: &Task<'_>, out: &mut Mixture<'_>) {
        attend::<Avx2>(work, task, out);
    }
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
    fn avx512(work: &mut Workspace, task: &Task<'_>, out: &mut Mixture<'_>) {
        attend::<Avx512>(work, task, out);
    }
    match level {
        Level::Scalar => attend::<Portable>(work, task, out),
        // SAFETY: a level is only made where the processor has its instruction sets.
        Level::Avx2 | Level::AvxVnni => unsafe { avx2(work, task, out) },
        // SAFETY: as above.
        Level::Avx512Vnni | Level::Amx => unsafe { avx512(work, task, out) },
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn attend_with(_: Level, work: &mut Workspace, task: &Task<'_>, out: &mut Mixture<'_>) {
    attend::<Portable>(work, task, out);
}

#[inline(always)]
fn attend<I: Isa>(work: &mut Workspace, task: &Task<'_>, out: &mut Mixture<'_>) {
    out.clear();
    let (n_rows, Keys { cache, head, positions }) = (work.queries.n_rows(), task.keys);
    let seen = work.queries.all_visible();
    let (start, end) = (positions.start.max(seen.start), positions.end.min(seen.end));
    if let Some(next) = task.next {
        ask_for_the_last(next);
    }
    let mut of_segment = mem::take(&mut work.of_segment);
    let width = cache.shape().width();
    let mut segment = Mixture::within(&mut of_segment, n_rows, width);
    for at in (start - start % SEGMENT..end).step_by(SEGMENT) {
        segment.clear();
        let first = start.max(at);
        for block in (first - first % BLOCK..end.min(at + SEGMENT)).step_by(BLOCK) {
            let next = if block + BLOCK < end {
                Some((cache.block(block + BLOCK), *head))
            } else {
                task.next.map(|next| (next.cache.block(next.positions.start), next.head))
            };
            attend_block::<I>(work, task, block, next, start.max(block) - block..end.min(block + BLOCK) - block);
            segment.merge(&Mixture::within(&mut work.of_block, n_rows, width));
        }
        out.merge(&segment);
    }
    work.of_segment = of_segment;
}

/// Asks for the keys that [`LayerCache::close`] will read.
#[inline(always)]
fn ask_for_the_last(keys: &Keys<'_>) {
    let Keys { cache, head, positions } = keys;
    let Some(first) = cache.open_group().filter(|first| positions.contains(first)) else { return };
    for place in first % BLOCK..first % BLOCK + cache.len() - first {
        cache.block(first).ask_for_key(cache.shape(), *head, place, prefetch::second_level);
    }
}

/// Mixes what the queries see of the block at position `first`, which is some of `places`. Of the block and head `next` as much is wanted after it.
#[inline(always)]
fn attend_block<I: Isa>(
    work: &mut Workspace,
    task: &Task<'_>,
    first: usize,
    next: Option<(&Block, usize)>,
    places: Range<usize>,
) {
    let Keys { cache, head, .. } = task.keys;
    let block = cache.block(first);
    let shape @ KvShape { head_dim, .. } = cache.shape();
    let (n_rows, width) = (work.queries.n_rows(), shape.width());
    let strips = places.start / LANES..places.end.div_ceil(LANES);
    let last = task.last.filter(|last| *last < first + places.end).map(|last| last - first);
    let closed = strips.start..last.map_or(strips.end, |last| last / LANES);
    work.weights.fill([0.0; BLOCK]);
    let keys = block.keys(shape, *head);
    // Addresses and no references: others may be writing there.
    let next = next.map(|(next, head)| next.addresses(shape, head));
    for (part, queries) in work.queries.packed.chunks_exact(n_rows).enumerate() {
        let keys = Strips {
            vectors: &keys[part * BLOCK..],
            step: 1,
            stride: width,
            next: next.map(|[keys, _]| keys.wrapping_add(part * BLOCK)),
        };
        let inner = 0..BLOCK.min(head_dim - part * BLOCK);
        let weights = work.weights.as_flattened_mut();
        product::accumulate::<I>(queries, keys, inner.clone(), closed.clone(), weights, BLOCK);
        if last.is_some() {
            let vectors = &work.last.as_flattened()[part * BLOCK..];
            let keys = Strips { vectors, step: 1, stride: 0, next: None };
            product::accumulate::<I>(queries, keys, inner, closed.end..closed.end + 1, weights, BLOCK);
        }
    }
    let mixture = Mixture::within(&mut work.of_block, n_rows, width);
    for (r, row) in work.weights.iter_mut().enumerate() {
        let visible = &work.queries.visible[r];
        let place = |position: usize| position.clamp(first, first + BLOCK) - first;
        (mixture.max[r], mixture.sum[r]) = weigh(row, place(visible.start)..place(visible.end), task.scores);
    }
    mixture.values.fill(0.0);
    let values = Strips {
        vectors: block.values(shape, *head),
        step: width / LANES,
        stride: 1,
        next: next.map(|[_, values]| values),
    };
    product::accumulate::<I>(&work.weights, values, places, 0..width / LANES, mixture.values, width);
}

/// Makes weights of products, nothing where a key is not `visible`. Returns the largest score and the sum of the weights.
#[inline(always)]
fn weigh(row: &mut Row, visible: Range<usize>, scores: Scores) -> (f32, f32) {
    if visible.is_empty() {
        row.fill(0.0);
        return (f32::NEG_INFINITY, 0.0);
    }
    for score in row.iter_mut() {
        *score *= scores.scale;
    }
    if let Some(cap) = scores.softcap {
        for score in row.iter_mut() {
            *score = capped(*score, cap);
        }
    }
    row[..visible.start].fill(f32::NEG_INFINITY);
    row[visible.end..].fill(f32::NEG_INFINITY);
    let mut max = [f32::NEG_INFINITY; LANES];
    for scores in row.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            max[lane] = if scores[lane] > max[lane] { scores[lane] } else { max[lane] };
        }
    }
    let mut n = LANES;
    while n > 1 {
        n /= 2;
        for lane in 0..n {
            max[lane] = if max[lane + n] > max[lane] { max[lane + n] } else { max[lane] };
        }
    }
    let max = max[0];
    let mut sum = [0.0; LANES];
    for scores in row.as_chunks_mut::<LANES>().0 {
        let mut weights = *scores;
        for lane in 0..LANES {
            weights[lane] = exp(weights[lane] - max);
            sum[lane] += weights[lane];
        }
        *scores = weights;
    }
    let mut n = LANES;
    while n > 1 {
        n /= 2;
        for lane in 0..n {
            sum[lane] += sum[lane + n];
        }
    }
    (max, sum[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::sample::{filled, plain, value};

    fn attended(
        level: Level,
        scores: Scores,
        cache: &LayerCache,
        head: usize,
        rows: &[(Vec<f32>, Range<usize>)],
        parts: &[Range<usize>],
    ) -> Vec<f32> {
        let KvShape { head_dim, .. } = cache.shape();
        let width = cache.shape().width();
        let mut work = Workspace::new();
        work.queries.set(head_dim, rows.iter().map(|(q, visible)| (q.as_slice(), visible.clone())));
        let mut memory = vec![vec![0.0; Mixture::len(rows.len(), width)]; parts.len()];
        for (memory, keys) in memory.iter_mut().zip(parts) {
            let mut out = Mixture::within(memory, rows.len(), width);
            work.attend(level, scores, &Keys { cache, head, positions: keys.clone() }, None, &mut out);
        }
        let (first, others) = memory.split_at_mut(1);
        let mut whole = Mixture::within(&mut first[0], rows.len(), width);
        others.iter_mut().for_each(|part| whole.take_in(level, &Mixture::within(part, rows.len(), width)));
        let mut out = vec![0.0; rows.len() * head_dim];
        write_rows(&first[0], rows.len(), 0, &mut out, head_dim);
        out
    }

    #[test]
    fn queries_mix_what_they_see_on_every_instruction_set_alone_and_together_whole_and_in_parts() {
        let n = 2 * SEGMENT + 83;
        for (head_dim, softcap) in [(24, None), (64, Some(2.0)), (80, None), (256, Some(0.5))] {
            let shape = KvShape { n_heads: 2, head_dim };
            let scores = Scores { scale: 3.0 / (head_dim as f32).sqrt(), softcap };
            let (cache, k, v) = filled(shape, n);
            let whole = 0..n;
            let parts = [0, 1, 2].map(|i| i * SEGMENT..(i + 1) * SEGMENT);
            // Ends and beginnings within a block, at its edges, and windows that have passed whole segments.
            let visible = [
                0..1,
                0..64,
                0..65,
                3..17,
                130..n,
                0..n,
                540..n - 1,
                63..SEGMENT,
                n - 1..n,
                0..300,
                0..301,
                5..302,
                8..303,
            ];
            let row = |(i, visible): (usize, &Range<usize>)| {
                ((0..head_dim).map(|d| value(d * 31 + i * 1009)).collect::<Vec<f32>>(), visible.clone())
            };
            let rows: Vec<_> = visible.iter().enumerate().map(row).collect();
            let expected = attended(Level::Scalar, scores, &cache, 1, &rows, std::slice::from_ref(&whole));
            for ((q, visible), found) in rows.iter().zip(expected.chunks_exact(head_dim)) {
                let exact = plain(shape, scores, 1, q, visible.clone(), &k, &v);
                let close = found.iter().zip(&exact).all(|(found, exact)| (f64::from(*found) - exact).abs() < 2e-6);
                assert!(close, "{head_dim}, {visible:?}: {found:?} for {exact:?}");
            }
            for level in Level::available() {
                let of = |rows: &[_], parts: &[_]| attended(level, scores, &cache, 1, rows, parts);
                assert_eq!(of(&rows, std::slice::from_ref(&whole)), expected, "{head_dim}, {level:?}");
                assert_eq!(of(&rows, &parts), expected, "{head_dim}, {level:?}, in parts");
                for n_rows in [1, 2, 3, 4, 5, 6, 8, 12] {
                    let each = rows.chunks(n_rows).flat_map(|rows| of(rows, std::slice::from_ref(&whole)));
                    assert!(each.eq(expected.iter().copied()), "{head_dim}, {level:?}, {n_rows} at a time");
                }
            }
        }
    }
}
