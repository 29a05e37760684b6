//! Epsilon cutoff.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps tokens of at least this probability (Hewitt et al. 2022, arXiv:2210.15191).
///
/// As in transformers, tokens that tie with the last of the `min_keep` likeliest stay too.
#[derive(Clone, Debug, PartialEq)]
pub struct Epsilon {
    /// A probability, above 0 and below 1.
    pub epsilon: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for Epsilon {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        candidates.keep_probable(self.epsilon, self.min_keep);
    }
}

impl fmt::Display for Epsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epsilon {}", self.epsilon)
    }
}
