//! Top-k.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps the k likeliest tokens (Fan et al. 2018, arXiv:1805.04833). Of tokens that tie at the cut the lowest ids stay.
///
/// As llama.cpp, exactly k stay; transformers keeps all that tie with the last, so more than k.
#[derive(Clone, Debug, PartialEq)]
pub struct TopK {
    /// How many.
    pub k: usize,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for TopK {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        candidates.keep_likeliest(self.k.max(self.min_keep));
    }
}

impl fmt::Display for TopK {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "top-k {}", self.k)
    }
}
