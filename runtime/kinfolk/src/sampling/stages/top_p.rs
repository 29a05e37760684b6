//! Top-p, also called nucleus sampling.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps the likeliest tokens until their probabilities sum to at least `p` (Holtzman et al. 2020, arXiv:1904.09751).
///
/// At least one stays. As llama.cpp, 1 is off; transformers still drops tokens whose probability underflows then.
#[derive(Clone, Debug, PartialEq)]
pub struct TopP {
    /// From 0 to 1.
    pub p: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for TopP {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if self.p < 1.0 {
            // The share is rounded as p is: three of five equal tokens reach 0.6.
            candidates.keep_share(self.min_keep, |_, _| {}, |share| share as f32 >= self.p);
        }
    }
}

impl fmt::Display for TopP {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "top-p {}", self.p)
    }
}
