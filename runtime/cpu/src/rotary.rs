//! Rotary positions.

use kinfolk_decoder::{Frequencies, Pairing, QueryTemperature, Rope};

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

    /// Rotates every head of `head_dim` elements of `x` (`[tokens, heads × head_dim]`) in place.
    pub fn apply(&self, x: &mut [f32], row_len: usize, head_dim: usize) {
        let half = self.dims / 2;
        let angles = self.cos.chunks_exact(half).zip(self.sin.chunks_exact(half));
        for (row, (cos, sin)) in x.chunks_exact_mut(row_len).zip(angles) {
            for head in row.chunks_exact_mut(head_dim) {
                let (first, second) = head[..self.dims].split_at_mut(half);
                for i in 0..half {
                    let (a, b) = (first[i], second[i]);
                    first[i] = a * cos[i] - b * sin[i];
                    second[i] = b * cos[i] + a * sin[i];
                }
            }
        }
    }
}

/// Scales the queries at each of `positions`, in place.
pub(crate) fn scale_queries(
    t: &QueryTemperature,
    positions: impl Iterator<Item = usize>,
    q: &mut [f32],
    row_len: usize,
) {
    for (row, position) in q.chunks_exact_mut(row_len).zip(positions) {
        let factor = 1.0 + t.scale * (1.0 + (position / t.floor) as f32).ln();
        row.iter_mut().for_each(|v| *v *= factor);
    }
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
        rotation.apply(&mut x, 6, 6);
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
        let mut q = [1.0; 4];
        scale_queries(&QueryTemperature { scale: 0.5, floor: 16 }, [0, 15, 16, 47].into_iter(), &mut q, 1);
        let expected = [1.0, 1.0, 1.0 + 0.5 * 2f32.ln(), 1.0 + 0.5 * 3f32.ln()];
        assert!(q.iter().zip(expected).all(|(q, e)| (q - e).abs() < 1e-6), "{q:?}");
    }
}
