//! Mirostat, version 2.

use std::fmt;

use super::mirostat::Surprise;
use crate::sampling::{Candidates, Stage, Step};

/// Keeps the surprise of the reply near a target, by dropping tokens more surprising than a bound μ (Basu et al. 2021,
/// arXiv:2007.14966, algorithm 2).
///
/// After each token μ falls by rate · (surprise - target), surprise being -log2 of the token's probability among those kept. μ
/// starts at twice the target. In llama.cpp it replaces every stage but bias and temperature; here it comes after whichever
/// stages are on.
#[derive(Clone, Debug)]
pub struct MirostatV2 {
    surprise: Surprise,
    min_keep: usize,
}

impl MirostatV2 {
    /// A target in bits, and how fast to correct.
    pub fn new(target: f32, rate: f32, min_keep: usize) -> MirostatV2 {
        MirostatV2 { surprise: Surprise::new(target, rate), min_keep }
    }

    /// The current bound on the surprise, in bits.
    pub fn mu(&self) -> f32 {
        self.surprise.mu
    }
}

impl Stage for MirostatV2 {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if let Some((max, total)) = candidates.softmax().map(|softmax| (softmax.max, softmax.total)) {
            // -log2 p ≤ μ, said of the logit.
            let threshold = f64::from(max) + libm::log(total) - f64::from(self.surprise.mu) * std::f64::consts::LN_2;
            candidates.retain_from(threshold as f32, self.min_keep.max(1));
        }
        self.surprise.expect(candidates);
    }

    fn accept(&mut self, token: u32) {
        self.surprise.accept(token);
    }
}

impl fmt::Display for MirostatV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mirostat 2 (target {}, rate {})", self.surprise.target, self.surprise.rate)
    }
}
