//! Repetition, frequency and presence penalties.

use std::{collections::HashMap, fmt, ops::Range};

use crate::sampling::{Candidates, Stage, Step};

/// Makes the latest tokens less likely: divides a positive logit by `repetition` and multiplies others (Keskar et al. 2019,
/// arXiv:1909.05858), then subtracts `frequency` for each occurrence in the window and `presence` once.
///
/// As in llama.cpp prompt tokens count, and a window of 0 is off. transformers has no window, and neither frequency nor
/// presence; mlx-lm's window is 20 by default.
#[derive(Clone, Debug)]
pub struct Penalties {
    /// Factor, 1 for none.
    repetition: f32,
    frequency: f32,
    presence: f32,
    window: usize,
    /// The part of the history that is in `counts`.
    counted: Range<usize>,
    counts: HashMap<u32, u32>,
}

impl Penalties {
    /// Penalties for the latest `window` tokens. 1, 0 and 0 are no penalty.
    pub fn new(repetition: f32, frequency: f32, presence: f32, window: usize) -> Penalties {
        Penalties { repetition, frequency, presence, window, counted: 0..0, counts: HashMap::new() }
    }

    /// Counts what has come into the window since the last step, and uncounts what has left it.
    fn count(&mut self, history: &[u32]) {
        let start = history.len().saturating_sub(self.window);
        if start > self.counted.end || self.counted.end > history.len() {
            self.counted = start..start;
            self.counts.clear();
        }
        for &token in &history[self.counted.end..] {
            *self.counts.entry(token).or_default() += 1;
        }
        for token in &history[self.counted.start..start] {
            if let Some(count) = self.counts.get_mut(token) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(token);
                }
            }
        }
        self.counted = start..history.len();
    }

    fn penalise(&self, logit: f32, count: u32) -> f32 {
        let scaled = if logit > 0.0 { logit / self.repetition } else { logit * self.repetition };
        // What overflows must not meet an infinity of the other sign.
        scaled.clamp(f32::MIN, f32::MAX) - (count as f32 * self.frequency).clamp(f32::MIN, f32::MAX) - self.presence
    }
}

impl Stage for Penalties {
    fn apply(&mut self, candidates: &mut Candidates, step: &mut Step<'_>) {
        self.count(step.history());
        if self.counts.len() < candidates.slots() {
            for (token, count) in &self.counts {
                candidates.change(*token, |logit| self.penalise(logit, *count));
            }
        } else {
            candidates.change_all(|c| self.counts.get(&c.id).map_or(c.logit, |count| self.penalise(c.logit, *count)));
        }
    }
}

impl fmt::Display for Penalties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("penalties(")?;
        let all = [
            ("repetition", self.repetition, 1.0),
            ("frequency", self.frequency, 0.0),
            ("presence", self.presence, 0.0),
        ];
        for (name, value, _) in all.iter().filter(|(_, value, off)| value != off) {
            write!(f, "{name} {value}, ")?;
        }
        match self.window {
            usize::MAX => f.write_str("whole context)"),
            window => write!(f, "window {window})"),
        }
    }
}
