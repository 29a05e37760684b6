//! Root-mean-square norm.

use kinfolk_decoder::Norm;

/// A norm with its weight, `[n]`.
#[derive(Debug)]
pub(crate) struct NormWeights {
    eps: f32,
    weight: Vec<f32>,
}

impl NormWeights {
    pub fn new(norm: &Norm, weight: Vec<f32>) -> NormWeights {
        NormWeights { eps: norm.eps, weight }
    }

    /// Normalises each run of `weight.len()` elements of `x` in place.
    pub fn apply(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.weight.len()) {
            // In f64: the sum of thousands of squares is where f32 would lose the digits that parity needs.
            let sum: f64 = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
            let scale = 1.0 / (sum / row.len() as f64 + f64::from(self.eps)).sqrt();
            row.iter_mut().zip(&self.weight).for_each(|(v, w)| *v = *v * scale as f32 * w);
        }
    }
}
