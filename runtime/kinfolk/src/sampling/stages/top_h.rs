//! Top-H.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps the likeliest tokens while their part of the entropy is at most `h` of the whole (Potraghloo et al. 2025,
/// arXiv:2509.02510).
///
/// As in transformers the distribution is that of the 100 likeliest tokens, and at least one stays.
#[derive(Clone, Debug, PartialEq)]
pub struct TopH {
    /// Share of the entropy, above 0 and up to 1.
    pub h: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

/// Tokens that are looked at.
const CONSIDERED: usize = 100;

impl Stage for TopH {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        let likeliest = candidates.top(CONSIDERED);
        let Some(max) = likeliest.first().map(|c| f64::from(c.logit)) else { return };
        let weights: Vec<f64> = likeliest.iter().map(|c| libm::exp(f64::from(c.logit) - max)).collect();
        let total: f64 = weights.iter().sum();
        let probabilities = weights.iter().map(|weight| weight / total);
        let terms = probabilities.map(|p| if p > 0.0 { -p * libm::log(p) } else { 0.0 });
        let enough = terms.clone().sum::<f64>() * f64::from(self.h);
        let mut entropy = 0.0;
        let kept = terms.take_while(|term| {
            entropy += term;
            entropy <= enough
        });
        let kept = kept.count().max(1);
        candidates.keep_likeliest(kept.max(self.min_keep));
    }
}

impl fmt::Display for TopH {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "top-h {}", self.h)
    }
}
