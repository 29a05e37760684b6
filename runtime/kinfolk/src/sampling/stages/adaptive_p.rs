//! Adaptive-p.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Prefers tokens near a target probability, and moves the target so that what is chosen keeps it on average.
///
/// As in llama.cpp: a logit becomes 5 - 10 d² / (1 + d) with d = |p - aim| / 0.3; the aim is twice the target less the
/// exponential average of the probabilities, before that change, of the tokens chosen so far, and the average starts as if it
/// had been on target.
#[derive(Clone, Debug)]
pub struct AdaptiveP {
    target: f32,
    decay: f32,
    weighted_sum: f32,
    total_weight: f32,
    /// Probabilities before the change. Reused.
    before: Vec<(u32, f32)>,
}

/// How far from the target a probability counts as near.
const WIDTH: f32 = 0.3;
/// Logit of a token on target.
const PEAK: f32 = 5.0;
/// How fast logits fall off the target.
const SHARPNESS: f32 = 10.0;
/// The longest memory.
const MAX_DECAY: f32 = 0.99;

impl AdaptiveP {
    /// A target probability from 0 to 1, below 0 off, and how much of the average each token keeps, up to 0.99.
    pub fn new(target: f32, decay: f32) -> AdaptiveP {
        let (target, decay) = (target.min(1.0), decay.clamp(0.0, MAX_DECAY));
        let total_weight = 1.0 / (1.0 - decay);
        AdaptiveP { target, decay, weighted_sum: target * total_weight, total_weight, before: Vec::new() }
    }
}

impl Stage for AdaptiveP {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if self.target < 0.0 {
            return;
        }
        candidates.write_probabilities(&mut self.before);
        let aim = (2.0 * self.target - self.weighted_sum / self.total_weight).clamp(0.0, 1.0);
        let mut probabilities = self.before.iter();
        // Both go through the candidates in one order.
        candidates.change_all(|c| match probabilities.next() {
            Some((_, probability)) => {
                let d = ((probability - aim) / WIDTH).abs();
                PEAK - SHARPNESS * d * d / (1.0 + d)
            }
            None => c.logit,
        });
    }

    fn accept(&mut self, token: u32) {
        if let Some((_, probability)) = self.before.iter().find(|(id, _)| *id == token) {
            self.weighted_sum = probability + self.decay * self.weighted_sum;
            self.total_weight = 1.0 + self.decay * self.total_weight;
        }
    }
}

impl fmt::Display for AdaptiveP {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adaptive-p {} (decay {})", self.target, self.decay)
    }
}
