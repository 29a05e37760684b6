//! Temperature.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Divides logits by the temperature: below 1 sharpens the distribution, above 1 flattens it. 0 leaves the likeliest token.
#[derive(Clone, Debug, PartialEq)]
pub struct Temperature {
    /// 0 or above.
    pub temperature: f32,
}

impl Stage for Temperature {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if self.temperature > 0.0 {
            candidates.divide(self.temperature);
        } else {
            candidates.ban_all_but_likeliest();
        }
    }
}

impl fmt::Display for Temperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "temperature {}", self.temperature)
    }
}
