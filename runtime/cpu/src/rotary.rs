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
