//! No repeated n-grams.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Forbids tokens that would complete a run of n tokens which is in the context already (Paulus et al. 2017,
/// arXiv:1705.04304).
///
/// As in transformers the whole context counts, prompt included. It may forbid every token, which is then an error.
#[derive(Clone, Debug, PartialEq)]
pub struct NoRepeatNgram {
    /// Length of the run; 0 is off.
    pub n: usize,
}

impl Stage for NoRepeatNgram {
    fn apply(&mut self, candidates: &mut Candidates, step: &mut Step<'_>) {
        let history = step.history();
        let Some(start) = (history.len() + 1).checked_sub(self.n).filter(|_| self.n > 0) else { return };
        let latest = &history[start..];
        for run in history.windows(self.n) {
            if let Some((last, before)) = run.split_last()
                && before == latest
            {
                candidates.ban(*last);
            }
        }
    }
}

impl fmt::Display for NoRepeatNgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no repeated {}-gram", self.n)
    }
}
