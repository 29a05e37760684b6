//! Dynamic temperature.

use std::fmt;

use super::Temperature;
use crate::sampling::{Candidates, Stage, Step};

/// A temperature that follows the entropy of the candidates: low where the model is sure, high where it is not.
///
/// T = low + (high - low) (H / ln n)^exponent, with low = max(0, temperature - range) and high = temperature + range. As in
/// llama.cpp n counts candidates, forbidden ones too, so T depends on what runs before; a single candidate is left alone.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicTemperature {
    /// The middle.
    pub temperature: f32,
    /// How far it goes to either side.
    pub range: f32,
    /// Above 1 stays low for longer, below 1 rises sooner.
    pub exponent: f32,
}

impl Stage for DynamicTemperature {
    fn apply(&mut self, candidates: &mut Candidates, step: &mut Step<'_>) {
        let n = candidates.len_with_banned();
        let Some(entropy) = candidates.softmax().map(|softmax| softmax.entropy()).filter(|_| n > 1) else { return };
        let low = (self.temperature - self.range).max(0.0);
        let high = self.temperature + self.range;
        let share = (entropy / libm::log(n as f64)).min(1.0);
        let temperature = low + (high - low) * libm::pow(share, f64::from(self.exponent)) as f32;
        Temperature { temperature }.apply(candidates, step);
    }
}

impl fmt::Display for DynamicTemperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dynamic temperature {} ± {} (exponent {})", self.temperature, self.range, self.exponent)
    }
}
