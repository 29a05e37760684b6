//! Temperature.

use super::{Candidates, Stage};

/// Divides logits by the temperature: below 1 sharpens the distribution, above 1 flattens it.
#[derive(Debug)]
pub(super) struct Temperature(pub f32);

impl Stage for Temperature {
    fn apply(&mut self, candidates: &mut Candidates, _history: &[u32]) {
        candidates.divide(self.0);
    }
}
