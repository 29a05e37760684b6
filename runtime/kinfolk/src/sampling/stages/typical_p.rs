//! Typical-p, locally typical sampling.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps the tokens whose surprise is closest to the expected surprise, until their probabilities sum to more than `p`
/// (Meister et al. 2022, arXiv:2202.00666).
///
/// As llama.cpp, the sum has to exceed p, and of equally typical tokens only as many stay as are needed; transformers stops
/// when p is reached and keeps all that tie with the last. Tokens of probability 0 are never typical, as in transformers;
/// llama.cpp computes NaN from them.
#[derive(Clone, Debug, PartialEq)]
pub struct TypicalP {
    /// From 0 to 1, which is off.
    pub p: f32,
    /// Tokens kept in any case.
    pub min_keep: usize,
}

impl Stage for TypicalP {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if self.p >= 1.0 {
            return;
        }
        // Surprise is a constant minus the logit, so its distance from the mean is the logit's.
        candidates.keep_share(
            self.min_keep,
            |softmax, scores| {
                let mean = softmax.mean() as f32;
                // Tokens of probability 0 are the last that `min_keep` falls back on.
                scores.extend(softmax.logits.iter().zip(softmax.weights).map(|(logit, weight)| match *weight > 0.0 {
                    true => -(logit - softmax.max - mean).abs(),
                    false => logit.min(f32::MIN),
                }));
            },
            |share| share as f32 > self.p,
        );
    }
}

impl fmt::Display for TypicalP {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "typical-p {}", self.p)
    }
}
