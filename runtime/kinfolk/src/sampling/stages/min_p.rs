//! Min-p.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps tokens at least `p` times as likely as the likeliest (Nguyen et al. 2024, arXiv:2407.01082).
#[derive(Clone, Debug, PartialEq)]
pub struct MinP {
    /// From 0, which keeps all, to 1.
    pub p: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for MinP {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        // A ratio of probabilities is a difference of logits, so no softmax is needed.
        candidates.retain_from(candidates.max_logit() + libm::logf(self.p), self.min_keep);
    }
}

impl fmt::Display for MinP {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "min-p {}", self.p)
    }
}
