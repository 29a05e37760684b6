//! Eta cutoff.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps tokens of at least min(ε, √ε e^-H): a threshold that falls as the entropy H of the candidates rises (Hewitt et al.
/// 2022, arXiv:2210.15191).
///
/// As in transformers, tokens that tie with the last of the `min_keep` likeliest stay too.
#[derive(Clone, Debug, PartialEq)]
pub struct Eta {
    /// ε, above 0 and below 1.
    pub epsilon: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for Eta {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if let Some(entropy) = candidates.softmax().map(|softmax| softmax.entropy()) {
            let epsilon = f64::from(self.epsilon);
            let threshold = epsilon.min(epsilon.sqrt() * libm::exp(-entropy));
            candidates.keep_probable(threshold as f32, self.min_keep);
        }
    }
}

impl fmt::Display for Eta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eta {}", self.epsilon)
    }
}
