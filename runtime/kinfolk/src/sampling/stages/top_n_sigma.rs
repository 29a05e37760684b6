//! Top-n-sigma.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps tokens whose logit is at most `n` standard deviations below the largest (Tang et al. 2024, arXiv:2411.07641).
///
/// As in llama.cpp the deviation is that of the whole population of finite logits, and tokens cut off still count for dynamic
/// temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct TopNSigma {
    /// Above 0; 0 and below are off.
    pub n: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for TopNSigma {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if self.n > 0.0 && !candidates.is_empty() {
            let distance = f64::from(self.n) * candidates.standard_deviation();
            let threshold = f64::from(candidates.max_logit()) - distance;
            candidates.ban_below(threshold as f32, self.min_keep);
        }
    }
}

impl fmt::Display for TopNSigma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "top-n-sigma {}", self.n)
    }
}
