//! Top-k.

use super::{Candidates, Stage};

/// Keeps the k likeliest tokens (Fan et al. 2018, arXiv:1805.04833). Of tokens that tie at the cut the lowest ids stay.
#[derive(Debug)]
pub(super) struct TopK {
    pub k: usize,
    pub min_keep: usize,
}

impl Stage for TopK {
    fn apply(&mut self, candidates: &mut Candidates, _history: &[u32]) {
        candidates.keep_likeliest(self.k.max(self.min_keep));
    }
}
