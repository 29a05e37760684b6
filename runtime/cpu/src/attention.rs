//! Causal softmax attention over cached keys and values.

mod product;
#[cfg(test)]
mod sample;
mod segment;
mod single;
#[cfg(target_arch = "x86_64")]
mod wide;
#[cfg(not(target_arch = "x86_64"))]
#[path = "attention/wide/absent.rs"]
mod wide;

use std::{cell::RefCell, ops::Range};

use kinfolk_decoder::{Attention, LoadError, Mask, Slot};

use crate::{
    activations::Activations,
    attention::segment::{Mixture, SEGMENT, Scores, Workspace},
    buffers::Buffer,
    cache::{BLOCK, KvShape, LANES, LayerCache},
    columns::{Cell, Columns},
    level::{Level, MANY_TOKENS},
    linear::Linear,
    load::Loader,
    model::{Context, Step, TOKENS},
    norm::NormWeights,
    prefetch::{self, LINE},
    rotary::query_factor,
    timers::Op,
};

#[derive(Debug)]
pub(crate) struct AttentionWeights {
    spec: Attention,
    /// Which of the step's rotations.
    rope: Option<usize>,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    q_norm: Option<NormWeights>,
    k_norm: Option<NormWeights>,
}

impl AttentionWeights {
    /// `rope` is the index of this layer's rope among the model's.
    pub fn load(
        spec: &Attention,
        rope: Option<usize>,
        i: usize,
        loader: &mut Loader<'_>,
    ) -> Result<AttentionWeights, LoadError> {
        let at = |pattern| Slot::layer(pattern, i);
        Ok(AttentionWeights {
            spec: spec.clone(),
            rope,
            q: loader.linear(at("layers.{i}.attn.q"))?,
            k: loader.linear(at("layers.{i}.attn.k"))?,
            v: loader.linear(at("layers.{i}.attn.v"))?,
            q_norm: loader.norm(spec.qk_norm.as_ref(), at("layers.{i}.attn.q_norm"))?,
            k_norm: loader.norm(spec.qk_norm.as_ref(), at("layers.{i}.attn.k_norm"))?,
            o: loader.linear(at("layers.{i}.attn.o"))?,
        })
    }

    /// An empty cache for this layer.
    pub fn new_cache(&self) -> LayerCache {
        let window = match self.spec.mask {
            Mask::Window(window) => Some(window),
            _ => None,
        };
        LayerCache::new(KvShape { n_heads: self.spec.n_kv_heads, head_dim: self.spec.head_dim }, window)
    }

    /// `[tokens, hidden]` to the same, for layer `layer` of the step's sequences, whose caches grow by the new keys and values.
    pub fn forward<'t>(&self, ctx: &Context<'t>, step: &mut Step<'_>, layer: usize, x: &[f32]) -> Buffer<'t, f32> {
        let Context { team, timers, .. } = *ctx;
        let x = &Activations::new(x);
        let [mut q, mut k, v] = timers.time(Op::Qkv, || Linear::forward_all([&self.q, &self.k, &self.v], team, x));
        if self.is_single(step, team.n_threads()) {
            timers.time(Op::Attention, || self.mix_single(ctx, step, layer, &mut q, &mut k, &v));
        } else {
            timers.time(Op::Rope, || {
                self.place_all(ctx, step, &mut q, &mut k);
                self.remember(ctx, step, layer, &k, &v);
            });
            timers.time(Op::Attention, || self.mix(ctx, step, layer, &mut q));
        }
        drop((k, v));
        timers.time(Op::Output, || self.o.forward(team, &Activations::new(&q)))
    }

    /// Gives queries and keys, `[tokens, heads × head_dim]`, their norms and positions.
    fn place_all(&self, ctx: &Context<'_>, step: &Step<'_>, q: &mut [f32], k: &mut [f32]) {
        let Attention { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let (q_len, kv_len) = (n_heads * head_dim, n_kv_heads * head_dim);
        ctx.team.for_each_pair((q, TOKENS * q_len), (k, TOKENS * kv_len), |chunk, q, k| {
            let rows = q.chunks_exact_mut(q_len).zip(k.chunks_exact_mut(kv_len));
            for (token, (q, k)) in (chunk * TOKENS..).zip(rows) {
                self.place(ctx.level, step, token, q, k);
            }
        });
    }

    /// As [`place_all`](Self::place_all), of some heads of a token, or of all where a norm is of them together.
    fn place(&self, level: Level, step: &Step<'_>, token: usize, q: &mut [f32], k: &mut [f32]) {
        let rotation = self.rope.map(|rope| &step.rotations[rope]);
        for (row, norm) in [(&mut *q, &self.q_norm), (k, &self.k_norm)] {
            if let Some(norm) = norm {
                norm.apply(level, row);
            }
            if let Some(rotation) = rotation {
                rotation.apply(level, token, row, self.spec.head_dim);
            }
        }
        if let Some(temperature) = &self.spec.query_temperature {
            let factor = query_factor(temperature, step.tokens[token].position);
            q.iter_mut().for_each(|v| *v *= factor);
        }
    }

    /// Puts new keys and values into the caches.
    fn remember(&self, ctx: &Context<'_>, step: &mut Step<'_>, layer: usize, k: &[f32], v: &[f32]) {
        let shape = KvShape { n_heads: self.spec.n_kv_heads, head_dim: self.spec.head_dim };
        let kv_len = shape.n_heads * shape.head_dim;
        let mut writes = Vec::new();
        for (cache, tokens) in step.caches.iter_mut().zip(&step.runs) {
            let mut token = tokens.start;
            for (block, places) in cache.layers[layer].grow(tokens.len()) {
                let first = token;
                token += places.len();
                writes.push((block, places, first));
            }
        }
        // One thread writes to a block. A token or two are not worth waking another.
        let n = if k.len() < TOKENS * kv_len { writes.len() } else { 1 };
        ctx.team.for_each_chunk(&mut writes, n, |_, writes| {
            for (block, places, first) in writes {
                let rows = *first * kv_len..(*first + places.len()) * kv_len;
                block.write(ctx.level, shape, places.clone(), &k[rows.clone()], &v[rows]);
            }
        });
    }

    /// Puts in place of every query, `[tokens, heads × head_dim]`, what it mixes of the values it sees.
    fn mix(&self, ctx: &Context<'_>, step: &Step<'_>, layer: usize, q: &mut [f32]) {
        let (many, few): (Vec<_>, Vec<_>) =
            step.runs.iter().cloned().enumerate().partition(|(_, run)| are_many(ctx.level, run.len()));
        for (sequence, run) in many {
            self.mix_many(ctx, step, layer, sequence, run, q);
        }
        if !few.is_empty() {
            self.mix_few(ctx, step, layer, few, q);
        }
    }

    /// As [`mix`](Self::mix), for the tokens `run` of a sequence.
    fn mix_many(
        &self,
        ctx: &Context<'_>,
        step: &Step<'_>,
        layer: usize,
        sequence: usize,
        run: Range<usize>,
        q: &mut [f32],
    ) {
        let Attention { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let (group, q_len) = (n_heads / n_kv_heads, n_heads * head_dim);
        let n_most = (run.len() * n_kv_heads).div_ceil(CELLS_PER_THREAD * ctx.team.n_threads());
        let cell = (wide::n_tokens_of_cell(run.len(), group * head_dim, n_most), group * head_dim);
        let (cache, first) = (&step.caches[sequence].layers[layer], step.tokens[run.start].position);
        let scores = Scores { scale: self.spec.scale, softcap: self.spec.softcap };
        let window = match self.spec.mask {
            Mask::Window(window) => window,
            _ => usize::MAX,
        };
        let q = &mut q[run.start * q_len..run.end * q_len];
        Cell::for_each(ctx.team, q, q_len, cell, |token, row, queries| {
            let keys = wide::Keys { scores, cache, head: row / (group * head_dim), window };
            WIDE.with_borrow_mut(|work| work.attend(&keys, first + token, queries));
        });
    }

    /// As [`mix`](Self::mix), for the tokens of `runs`, each with the number of its sequence.
    fn mix_few(
        &self,
        ctx: &Context<'_>,
        step: &Step<'_>,
        layer: usize,
        runs: Vec<(usize, Range<usize>)>,
        q: &mut [f32],
    ) {
        let Attention { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let group = n_heads / n_kv_heads;
        let plan = Plan::new(self, step, runs, ctx.team.n_threads());
        let width = head_dim.next_multiple_of(LANES);
        let part_len = plan.part_len(group, width);
        let mut parts = ctx.team.floats.take(plan.jobs.len() * plan.n_parts * part_len, 0.0);
        let n_parts = plan.jobs.len() * plan.n_parts;
        let scores = Scores { scale: self.spec.scale, softcap: self.spec.softcap };
        let keys_of = |part| {
            let (job, positions) = plan.part(part);
            segment::Keys { cache: &step.caches[job.sequence].layers[layer], head: job.kv_head, positions }
        };
        let out = Columns::new(&mut parts, part_len);
        ctx.team.for_each_index(n_parts, |indices| {
            for part in indices {
                // SAFETY: every index is given once.
                let out = unsafe { out.part(part, 0..part_len) };
                let (job, _) = plan.part(part);
                WORKSPACE.with_borrow_mut(|work| {
                    let n_rows = job.tokens.len() * group;
                    let rows = (0..n_rows).map(|r| {
                        let (token, head) = (job.tokens.start + r / group, job.kv_head * group + r % group);
                        let visible = self.visible(step.tokens[token].position);
                        (&q[(token * n_heads + head) * head_dim..][..head_dim], visible)
                    });
                    work.queries.set(head_dim, rows);
                    let next = Some(part + 1).filter(|next| *next < n_parts).map(keys_of);
                    let next = next.filter(|next| !next.positions.is_empty());
                    let mut out = Mixture::within(out, n_rows, width);
                    work.attend(ctx.level, scores, &keys_of(part), next.as_ref(), &mut out);
                });
            }
        });
        if plan.n_parts > 1 {
            ctx.team.for_each_chunk(&mut parts, plan.n_parts * part_len, |job, parts| {
                let n_rows = plan.jobs[job].tokens.len() * group;
                let mut parts = parts.chunks_exact_mut(part_len).map(|part| Mixture::within(part, n_rows, width));
                let Some(mut first) = parts.next() else { return };
                parts.for_each(|part| first.take_in(ctx.level, &part));
            });
        }
        ctx.team.for_each_chunk(q, TOKENS * n_heads * head_dim, |chunk, out| {
            for (token, out) in (chunk * TOKENS..).zip(out.chunks_exact_mut(n_heads * head_dim)) {
                let Some(first_job) = plan.first_jobs[token] else { continue };
                for (kv_head, out) in out.chunks_exact_mut(group * head_dim).enumerate() {
                    let job = first_job + kv_head;
                    let part = &parts[job * plan.n_parts * part_len..][..part_len];
                    let Job { tokens, .. } = &plan.jobs[job];
                    segment::write_rows(part, tokens.len() * group, (token - tokens.start) * group, out, head_dim);
                }
            }
        });
    }

    /// Positions that a query at `position` sees.
    fn visible(&self, position: usize) -> Range<usize> {
        match self.spec.mask {
            Mask::Window(window) => (position + 1).saturating_sub(window)..position + 1,
            _ => 0..position + 1,
        }
    }
}

/// Cells of queries for each thread at least: they differ in work.
const CELLS_PER_THREAD: usize = 4;

/// Whether so many tokens of a sequence are for the matrix unit, if there is one.
fn are_many(level: Level, n_tokens: usize) -> bool {
    n_tokens >= MANY_TOKENS && level == Level::current() && wide::is_available()
}

/// Bytes that a thread works in for `n_tokens` at once of sequences of up to `n_positions`, where these are many.
pub(crate) fn many_bytes(spec: &Attention, n_tokens: usize, n_positions: usize) -> u64 {
    if !wide::is_available() {
        return 0;
    }
    wide::n_bytes(spec.n_heads / spec.n_kv_heads.max(1), spec.head_dim, n_tokens, n_positions)
}

/// Queries computed together: enough to use each key and value often, few enough for their results to stay in the first-level cache.
pub(crate) const ROWS: usize = 24;

/// How the work of a layer's attention is cut.
struct Plan {
    /// By sequence, then by token, then by head.
    jobs: Vec<Job>,
    /// For each token of the step the first of the jobs it is in, if it is in any.
    first_jobs: Vec<Option<usize>>,
    /// Into how many a job is cut: one, or as many as it sees segments.
    n_parts: usize,
    /// Most tokens of a job.
    n_tokens: usize,
}

/// Successive tokens of a sequence, and the queries that share a head of keys and values.
struct Job {
    sequence: usize,
    tokens: Range<usize>,
    kv_head: usize,
    /// Positions that any of the queries sees.
    keys: Range<usize>,
}

impl Plan {
    /// For the tokens of `runs`, each with the number of its sequence.
    fn new(weights: &AttentionWeights, step: &Step<'_>, runs: Vec<(usize, Range<usize>)>, n_threads: usize) -> Plan {
        let Attention { n_heads, n_kv_heads, .. } = weights.spec;
        let n_tokens = (ROWS / (n_heads / n_kv_heads)).max(1);
        let (mut jobs, mut first_jobs) = (Vec::new(), vec![None; step.tokens.len()]);
        for (sequence, run) in runs {
            for start in run.clone().step_by(n_tokens) {
                let tokens = start..run.end.min(start + n_tokens);
                first_jobs[tokens.clone()].fill(Some(jobs.len()));
                let sees = |token: usize| weights.visible(step.tokens[token].position);
                let keys = sees(start).start..sees(tokens.end - 1).end;
                let of_head = |kv_head| Job { sequence, tokens: tokens.clone(), kv_head, keys: keys.clone() };
                jobs.extend((0..n_kv_heads).map(of_head));
            }
        }
        let n_segments = jobs.iter().map(|job| segment::n_segments(&job.keys)).max().unwrap_or(1);
        let enough = are_enough(jobs.len(), n_threads);
        let n_tokens = jobs.iter().map(|job| job.tokens.len()).max().unwrap_or(0);
        Plan { jobs, first_jobs, n_parts: if enough { 1 } else { n_segments }, n_tokens }
    }

    /// Elements that a part of any job results in.
    fn part_len(&self, group: usize, width: usize) -> usize {
        Mixture::len(self.n_tokens * group, width)
    }

    /// The job of part `i`, and which positions it is to look at, if any are left for it.
    fn part(&self, i: usize) -> (&Job, Range<usize>) {
        let job = &self.jobs[i / self.n_parts];
        if self.n_parts == 1 {
            return (job, job.keys.clone());
        }
        let start = (job.keys.start / SEGMENT + i % self.n_parts) * SEGMENT;
        (job, start.max(job.keys.start)..job.keys.end.min(start + SEGMENT))
    }
}

/// Whether so many jobs are enough to keep all threads busy.
fn are_enough(n_jobs: usize, n_threads: usize) -> bool {
    n_threads == 1 || n_jobs >= 4 * n_threads
}

thread_local! {
    /// One per thread for the life of the thread, so that attention allocates nothing.
    static WORKSPACE: RefCell<Workspace> = const { RefCell::new(Workspace::new()) };
    static WIDE: RefCell<wide::Workspace> = const { RefCell::new(wide::Workspace::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_job_are_what_it_sees_once_and_in_order_whatever_others_see() {
        let sights = [0..700, 100..130, 300..520, 255..257, 512..513];
        let job = |keys: &Range<usize>| Job { sequence: 0, tokens: 0..1, kv_head: 0, keys: keys.clone() };
        let jobs: Vec<Job> = sights.iter().map(job).collect();
        for n_parts in [1, jobs.iter().map(|job| segment::n_segments(&job.keys)).max().unwrap()] {
            let plan = Plan { jobs: sights.iter().map(job).collect(), first_jobs: Vec::new(), n_parts, n_tokens: 1 };
            for (i, keys) in sights.iter().enumerate() {
                let parts: Vec<_> = (i * n_parts..(i + 1) * n_parts).map(|part| plan.part(part).1).collect();
                assert!(parts.iter().cloned().flatten().eq(keys.clone()), "{keys:?} in {n_parts}: {parts:?}");
                let mut whole = parts.iter().filter(|part| n_parts > 1 && !part.is_empty());
                assert!(whole.all(|part| part.start / SEGMENT == (part.end - 1) / SEGMENT), "{keys:?}: {parts:?}");
            }
        }
    }
}
