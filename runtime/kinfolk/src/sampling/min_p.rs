//! Min-p.

use super::{Candidates, Stage};

/// Keeps tokens at least `p` times as likely as the likeliest (Nguyen et al. 2024, arXiv:2407.01082).
#[derive(Debug)]
pub(super) struct MinP {
    pub p: f32,
    pub min_keep: usize,
}

impl Stage for MinP {
    fn apply(&mut self, candidates: &mut Candidates, _history: &[u32]) {
        // A ratio of probabilities is a difference of logits, so no softmax is needed.
        let Some(likeliest) = candidates.likeliest() else { return };
        let threshold = likeliest.logit + self.p.ln();
        candidates.retain_at_least(self.min_keep, |c| c.logit >= threshold);
    }
}
