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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_divided_by_its_own_root_mean_square() {
        let norm = NormWeights::new(&Norm::rms(0.0), vec![1.0, 2.0]);
        let mut x = [3.0, 4.0, -300.0, 400.0];
        norm.apply(&mut x);
        let rms = 12.5f32.sqrt();
        let expected = [3.0 / rms, 8.0 / rms, -3.0 / rms, 8.0 / rms];
        assert!(x.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-6), "{x:?}");
    }

    #[test]
    fn eps_keeps_a_row_of_nothing_nothing() {
        let norm = NormWeights::new(&Norm::rms(1e-6), vec![1.0; 3]);
        let mut x = [0.0; 3];
        norm.apply(&mut x);
        assert_eq!(x, [0.0; 3]);
    }

    #[test]
    fn squares_beyond_f32_do_not_overflow() {
        let norm = NormWeights::new(&Norm::rms(1e-6), vec![1.0; 2]);
        let mut x = [1e30, -1e30];
        norm.apply(&mut x);
        assert!((x[0] - 1.0).abs() < 1e-6 && (x[1] + 1.0).abs() < 1e-6, "{x:?}");
    }
}
