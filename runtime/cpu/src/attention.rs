//! Causal softmax attention over cached keys and values.

use kinfolk_decoder::{Attention, LoadError, Mask, Slot};

use crate::{
    cache::LayerCache,
    linear::Linear,
    load::Loader,
    model::{Context, Step},
    norm::NormWeights,
    quantized::Activations,
    rotary::scale_queries,
    simd,
    team::Team,
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
        LayerCache::new(self.spec.n_kv_heads * self.spec.head_dim, window)
    }

    /// `[tokens, hidden]` to the same, for layer `layer` of the step's sequences, whose caches grow by the new keys and values.
    pub fn forward(&self, ctx: &Context<'_>, step: &mut Step<'_>, layer: usize, x: &[f32]) -> Vec<f32> {
        let Context { team, timers } = *ctx;
        let x = &Activations::new(x);
        let (mut q, mut k, v) =
            timers.time(Op::Qkv, || (self.q.forward(team, x), self.k.forward(team, x), self.v.forward(team, x)));
        timers.time(Op::Rope, || {
            self.place(step, &mut q, &mut k);
            self.remember(step, layer, &k, &v);
        });
        let mixed = timers.time(Op::Attention, || self.mix(team, step, layer, &q));
        timers.time(Op::Output, || self.o.forward(team, &Activations::new(&mixed)))
    }

    /// Gives queries and keys their norms and positions.
    fn place(&self, step: &Step<'_>, q: &mut [f32], k: &mut [f32]) {
        let Attention { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let (q_len, kv_len) = (n_heads * head_dim, n_kv_heads * head_dim);
        if let (Some(q_norm), Some(k_norm)) = (&self.q_norm, &self.k_norm) {
            q_norm.apply(q);
            k_norm.apply(k);
        }
        if let Some(rope) = self.rope {
            step.rotations[rope].apply(q, q_len, head_dim);
            step.rotations[rope].apply(k, kv_len, head_dim);
        }
        if let Some(temperature) = &self.spec.query_temperature {
            scale_queries(temperature, step.tokens.iter().map(|t| t.position), q, q_len);
        }
    }

    fn remember(&self, step: &mut Step<'_>, layer: usize, k: &[f32], v: &[f32]) {
        let kv_len = self.spec.n_kv_heads * self.spec.head_dim;
        for ((token, k), v) in step.tokens.iter().zip(k.chunks_exact(kv_len)).zip(v.chunks_exact(kv_len)) {
            step.caches[token.sequence].layers[layer].append(k, v);
        }
    }

    /// Every query against the keys it sees, `[tokens, heads × head_dim]`.
    fn mix(&self, team: &Team, step: &Step<'_>, layer: usize, q: &[f32]) -> Vec<f32> {
        let Attention { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let mut mixed = vec![0.0; q.len()];
        team.for_each_chunk(&mut mixed, head_dim, |chunk, out| {
            let (t, head) = (chunk / n_heads, chunk % n_heads);
            let token = &step.tokens[t];
            let cache = &step.caches[token.sequence].layers[layer];
            self.head(&q[chunk * head_dim..][..head_dim], head * n_kv_heads / n_heads, token.position, cache, out);
        });
        mixed
    }

    /// One query against the keys it sees: `out = Σ softmax(scores) · v`.
    fn head(&self, q: &[f32], kv_head: usize, position: usize, cache: &LayerCache, out: &mut [f32]) {
        let part = kv_head * self.spec.head_dim..(kv_head + 1) * self.spec.head_dim;
        let first = match self.spec.mask {
            Mask::Window(window) => (position + 1).saturating_sub(window),
            _ => 0,
        };
        let mut scores: Vec<f32> =
            (first..=position).map(|p| simd::dot(q, &cache.k(p)[part.clone()]) * self.spec.scale).collect();
        if let Some(cap) = self.spec.softcap {
            crate::activation::softcap(&mut scores, cap);
        }
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|s| *s = (*s - max).exp());
        let sum: f32 = scores.iter().sum();
        for (p, score) in (first..).zip(scores) {
            simd::axpy(score / sum, &cache.v(p)[part.clone()], out);
        }
    }
}
