//! Top-p, also called nucleus sampling.

use super::{Candidates, Stage};

/// Keeps the likeliest tokens until their probabilities sum to at least `p` (Holtzman et al. 2020, arXiv:1904.09751).
#[derive(Debug)]
pub(super) struct TopP {
    pub p: f32,
    pub min_keep: usize,
}

impl Stage for TopP {
    fn apply(&mut self, candidates: &mut Candidates, _history: &[u32]) {
        candidates.sort();
        let mut sum = 0.0;
        let reached = candidates.probabilities().iter().position(|p| {
            sum += p;
            sum >= f64::from(self.p)
        });
        if let Some(last) = reached {
            candidates.keep_likeliest((last + 1).max(self.min_keep));
        }
    }
}
