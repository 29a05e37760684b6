//! Repetition penalty.

use std::collections::HashSet;

use super::{Candidates, Stage};

/// Makes tokens among the latest `window` less likely, once each however often they occur (Keskar et al. 2019, arXiv:1909.05858).
#[derive(Debug)]
pub(super) struct RepetitionPenalty {
    pub penalty: f32,
    pub window: usize,
}

impl Stage for RepetitionPenalty {
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        let recent: HashSet<u32> = history.iter().rev().take(self.window).copied().collect();
        for c in candidates.logits_mut().filter(|c| recent.contains(&c.id)) {
            let penalised = if c.logit > 0.0 { c.logit / self.penalty } else { c.logit * self.penalty };
            // Extreme penalties overflow, and two infinities have no distance from each other.
            c.logit = penalised.clamp(f32::MIN, f32::MAX);
        }
    }
}
