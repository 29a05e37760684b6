//! Rotary positions.

use kinfolk_decoder::{Frequencies, Pairing, QueryTemperature, Rope};

use crate::level::{Level, compiled_per_level};

/// Sine and cosine of every position and pair of a batch.
pub(crate) struct Rotation {
    dims: usize,
    /// `[tokens, dims / 2]` each
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rotation {
    /// For tokens at `positions`, each with the frequencies of its sequence.
    pub fn new<'a>(rope: &Rope, tokens: impl Iterator<Item = (usize, &'a Frequencies)>) -> Rotation {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for (position, frequencies) in tokens {
            for frequency in &frequencies.inv_freq {
                let angle = position as f32 * frequency;
                cos.push(angle.cos() * frequencies.attention_factor);
                sin.push(angle.sin() * frequencies.attention_factor);
            }
        }
        Rotation { dims: rope.dims, cos, sin }
    }

    /// Whether this executor has the pairing.
    pub fn supports(pairing: Pairing) -> bool {
        matches!(pairing, Pairing::Halves)
    }

    /// Rotates every head of `head_dim` elements of `row`, which is of the step's `token`-th token, in place.
    pub fn apply(&self, level: Level, token: usize, row: &mut [f32], head_dim: usize) {
        let angles = token * self.dims / 2..(token + 1) * self.dims / 2;
        rotate(level, row, head_dim, &self.cos[angles.clone()], &self.sin[angles]);
        compiled_per_level!(rotate = rotate_heads [] (row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]));
    }
}

#[inline(always)]
fn rotate_heads(row: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in row.chunks_exact_mut(head_dim) {
        let (first, second) = head[..2 * half].split_at_mut(half);
        for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// What multiplies the queries at `position`.
pub(crate) fn query_factor(t: &QueryTemperature, position: usize) -> f32 {
    1.0 + t.scale * (1.0 + (position / t.floor) as f32).ln()
}

#[cfg(test)]
mod tests {
    use kinfolk_decoder::RopeScaling;

    use super::*;

    fn rotated(positions: &[usize], x: &[f32], dims: usize) -> Vec<f32> {
        let rope = Rope { theta: 100.0, dims, pairing: Pairing::Halves, scaling: RopeScaling::Default };
        let frequencies = rope.frequencies(1, 1);
        let rotation = Rotation::new(&rope, positions.iter().map(|p| (*p, &frequencies)));
        let mut x = x.to_vec();
        for (token, row) in x.chunks_exact_mut(6).enumerate() {
            rotation.apply(Level::current(), token, row, 6);
        }
        x
    }

    const Q: [f32; 6] = [0.3, -1.0, 0.5, 0.8, 0.1, -0.4];
    const K: [f32; 6] = [1.0, 0.2, -0.7, 0.4, 0.9, 0.6];

    #[test]
    fn the_first_position_is_not_rotated() {
        assert_eq!(rotated(&[0], &Q, 6), Q);
    }

    #[test]
    fn a_product_depends_on_the_distance_alone() {
        let product = |p: usize, q: usize| -> f32 {
            rotated(&[p], &Q, 6).iter().zip(rotated(&[q], &K, 6)).map(|(a, b)| a * b).sum()
        };
        for distance in [0, 1, 5] {
            let expected = product(distance, 0);
            for p in [1, 17, 300] {
                assert!((product(p + distance, p) - expected).abs() < 1e-4, "{p}, {distance}");
            }
        }
        assert!((product(0, 0) - product(5, 0)).abs() > 0.1, "positions matter");
    }

    #[test]
    fn what_lies_beyond_the_rotated_dimensions_stays() {
        let found = rotated(&[7], &Q, 4);
        assert_eq!(found[4..], Q[4..]);
        assert_ne!(found[..4], Q[..4]);
    }

    #[test]
    fn queries_grow_by_the_logarithm_of_their_step() {
        let q = [0, 15, 16, 47].map(|position| query_factor(&QueryTemperature { scale: 0.5, floor: 16 }, position));
        let expected = [1.0, 1.0, 1.0 + 0.5 * 2f32.ln(), 1.0 + 0.5 * 3f32.ln()];
        assert!(q.iter().zip(expected).all(|(q, e)| (q - e).abs() < 1e-6), "{q:?}");
    }
}
