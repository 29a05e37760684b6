//! Queries, keys and values for tests, and what they mix by definition.

use std::ops::Range;

use super::segment::Scores;
use crate::{
    cache::{KvShape, LayerCache},
    level::Level,
};

pub(super) fn value(i: usize) -> f32 {
    ((i as f32 * 0.7311).sin() * 43.0).sin()
}

/// Keys and values of `n` positions, `[positions, heads, head_dim]`, in a cache and by themselves.
pub(super) fn filled(shape: KvShape, n: usize) -> (LayerCache, Vec<f32>, Vec<f32>) {
    let len = n * shape.n_heads * shape.head_dim;
    let (k, v): (Vec<f32>, Vec<f32>) = ((0..len).map(value).collect(), (7..len + 7).map(value).collect());
    (cached(shape, &k, &v), k, v)
}

/// A cache of keys and values.
pub(super) fn cached(shape: KvShape, k: &[f32], v: &[f32]) -> LayerCache {
    let len = shape.n_heads * shape.head_dim;
    let mut cache = LayerCache::new(shape, None);
    cache.reserve(k.len() / len).unwrap();
    let mut first = 0;
    for (block, places) in cache.grow(k.len() / len) {
        let rows = first * len..(first + places.len()) * len;
        first += places.len();
        block.write(Level::current(), shape, places, &k[rows.clone()], &v[rows]);
    }
    cache
}

/// In f64, a query and a key at a time.
pub(super) fn plain(
    shape: KvShape,
    scores: Scores,
    head: usize,
    q: &[f32],
    visible: Range<usize>,
    k: &[f32],
    v: &[f32],
) -> Vec<f64> {
    let row = |x: &[f32], p: usize| -> Vec<f64> {
        let x = &x[(p * shape.n_heads + head) * shape.head_dim..][..shape.head_dim];
        x.iter().map(|x| f64::from(*x)).collect()
    };
    let score = |p: usize| {
        let product: f64 = row(k, p).iter().zip(q).map(|(k, q)| k * f64::from(*q)).sum();
        let score = product * f64::from(scores.scale);
        scores.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
    };
    let scores: Vec<f64> = visible.clone().map(score).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0; shape.head_dim];
    for (p, weight) in visible.zip(weights) {
        out.iter_mut().zip(row(v, p)).for_each(|(out, v)| *out += weight / sum * v);
    }
    out
}
