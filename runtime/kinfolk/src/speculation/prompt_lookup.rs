//! Guessing by looking the last tokens up in the text before them.

use anyhow::Result;

use super::Drafter;

/// Finds the latest earlier place where the last tokens stand, and guesses what followed there. Free, and good at texts that repeat their
/// prompt: summaries, edits of code, extraction (Saxena 2023, prompt lookup decoding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLookup {
    /// Longest run of last tokens that is looked for. Shorter ones are tried after it.
    pub max_ngram: usize,
    /// Shortest run that is looked for.
    pub min_ngram: usize,
}

impl Default for PromptLookup {
    /// Runs of three tokens down to two: one token alone is found nearly everywhere, and seldom means anything.
    fn default() -> Self {
        PromptLookup { max_ngram: 3, min_ngram: 2 }
    }
}

impl Drafter for PromptLookup {
    /// # Cost
    /// Linear in the context per length of run.
    fn draft(&mut self, context: &[u32], n: usize) -> Result<Vec<u32>> {
        for len in (self.min_ngram.max(1)..=self.max_ngram.min(context.len())).rev() {
            let Some(before) = context.len().checked_sub(len) else { continue };
            let (_, last) = context.split_at(before);
            // Ends before the last run, and so has a token after it.
            let found = (0..before).rev().find(|&at| context[at..].starts_with(last));
            if let Some(at) = found {
                return Ok(context[at + len..].iter().copied().take(n).collect());
            }
        }
        Ok(Vec::new())
    }
}
