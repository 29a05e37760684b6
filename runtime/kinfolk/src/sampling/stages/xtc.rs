//! XTC, exclude top choices.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// With some probability, drops every token of at least `threshold` but the least likely of them, so that the reply leaves
/// the beaten track where there is another (text-generation-webui PR 6335).
///
/// As in llama.cpp, `threshold` above 0.5 is off, a draw is taken only where it can matter, and if fewer than `min_keep` would
/// be left nothing happens. mlx-lm drops at more than the threshold, and can spare chosen tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Xtc {
    /// How often, from 0 to 1.
    pub probability: f32,
    /// What counts as a top choice, a probability.
    pub threshold: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for Xtc {
    fn apply(&mut self, candidates: &mut Candidates, step: &mut Step<'_>) {
        if self.probability <= 0.0 || self.threshold > 0.5 || candidates.len_with_banned() < 2 {
            return;
        }
        if step.uniform() > f64::from(self.probability) {
            return;
        }
        candidates.drop_top_choices(self.threshold, self.min_keep);
    }
}

impl fmt::Display for Xtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xtc {} (threshold {})", self.probability, self.threshold)
    }
}
