//! Passes with one new token of each sequence, as decoding has.
//!
//! One thread does all there is to do for a head of a sequence, in one operation: its queries and its key get their norms and positions, key and
//! value go to the cache, and the queries mix what is there. Each of these takes a microsecond or so, no longer than two threads take to
//! meet, and what one of them has written the other would wait for.

use super::{segment::n_segments, *};

impl AttentionWeights {
    /// Whether `step` is such a pass, with heads enough for all threads or too few positions to cut.
    pub(super) fn is_single(&self, step: &Step<'_>, n_threads: usize) -> bool {
        let Attention { n_kv_heads, head_dim, .. } = self.spec;
        let of_heads = |norm: &Option<NormWeights>| norm.as_ref().is_none_or(|norm| norm.len() == head_dim);
        let most = || step.tokens.iter().map(|token| n_segments(&self.visible(token.position))).max().unwrap_or(0);
        step.runs.len() == step.tokens.len()
            && of_heads(&self.q_norm)
            && of_heads(&self.k_norm)
            && (are_enough(step.tokens.len() * n_kv_heads, n_threads) || most() <= 1)
    }

    /// Puts in place of every query of the step's tokens what it mixes, and keys and values into the caches, which have room.
    pub(super) fn mix_single(
        &self,
        ctx: &Context<'_>,
        step: &mut Step<'_>,
        layer: usize,
        q: &mut [f32],
        k: &mut [f32],
        v: &[f32],
    ) {
        let Attention { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let shape = KvShape { n_heads: n_kv_heads, head_dim };
        let scores = Scores { scale: self.spec.scale, softcap: self.spec.softcap };
        step.caches.iter_mut().for_each(|cache| cache.layers[layer].extend(1));
        let step = &*step;
        let n_jobs = step.tokens.len() * n_kv_heads;
        let (q, k) = (Columns::new(q, n_heads * head_dim), Columns::new(k, n_kv_heads * head_dim));
        let job = |i: usize| {
            let (token, head) = (i / n_kv_heads, i % n_kv_heads);
            let of_heads = |n: usize| head * n * head_dim..(head + 1) * n * head_dim;
            let value = &v[token * n_kv_heads * head_dim..][of_heads(1)];
            Job { token, head, queries: of_heads(n_heads / n_kv_heads), key: of_heads(1), value }
        };
        let keys = |job: &Job<'_>| segment::Keys {
            cache: &step.caches[job.token].layers[layer],
            head: job.head,
            positions: self.visible(step.tokens[job.token].position),
        };
        ctx.team.for_each_index(n_jobs, |indices| {
            for i in indices {
                let (own, next) = (job(i), Some(i + 1).filter(|next| *next < n_jobs).map(job));
                let next = next.map(|next| {
                    let keys = keys(&next);
                    q.ask_for(next.token, next.queries);
                    k.ask_for(next.token, next.key);
                    next.value.chunks(LINE / size_of::<f32>()).for_each(|line| prefetch::first_level(line.as_ptr()));
                    let position = step.tokens[next.token].position;
                    let (block, place) = (keys.cache.block(position), position % BLOCK);
                    block.ask_for_key(shape, next.head, place, prefetch::to_write);
                    block.ask_for_value(shape, next.head, place, prefetch::to_write);
                    keys
                });
                // SAFETY: every index is given once, and no two have a token and a head in common.
                let (queries, key) =
                    unsafe { (q.part(own.token, own.queries.clone()), k.part(own.token, own.key.clone())) };
                self.place(ctx.level, step, own.token, queries, key);
                let (keys, position) = (keys(&own), step.tokens[own.token].position);
                let (block, place) = (keys.cache.block(position), position % BLOCK);
                let rows = [[&*key, own.value]].into_iter();
                // SAFETY: as above, and what others use of the block is of other heads.
                unsafe { block.write_head(ctx.level, shape, own.head, place..place + 1, rows) };
                WORKSPACE.with_borrow_mut(|work| {
                    let rows = queries.chunks_exact(head_dim).map(|row| (row, keys.positions.clone()));
                    work.queries.set(head_dim, rows);
                    work.attend_alone(ctx.level, scores, &keys, next.as_ref(), queries);
                });
            }
        });
    }
}

/// What there is to do for a head of a token.
struct Job<'a> {
    token: usize,
    head: usize,
    /// Elements of the token's queries and of its keys.
    queries: Range<usize>,
    key: Range<usize>,
    value: &'a [f32],
}
