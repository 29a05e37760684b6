//! Guessing with a smaller model.

use std::fmt;

use anyhow::Result;
use kinfolk_text::Tokenizer;

use super::Drafter;
use crate::{host_driven::HostDriven, runner::LmRunner};

/// Guesses what a smaller model of the same vocabulary finds likeliest.
pub struct DraftModel {
    runner: HostDriven<Box<dyn LmRunner>>,
}

/// Why a model cannot guess for another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DraftModelError {
    /// A token means one thing to the model and another to the one that guesses.
    #[error("draft model: expected the model's own vocabulary, found {draft:?} instead of {model:?} as token {token}")]
    OtherVocabulary {
        /// The token.
        token: u32,
        /// What it is to the model that is guessed for.
        model: Option<String>,
        /// What it is to the one that guesses.
        draft: Option<String>,
    },
}

impl DraftModel {
    /// A drafter that guesses with `runner`, whose context it uses. `own` is the runner's tokenizer, `guided` that of the model it guesses
    /// for. One of the two vocabularies may have more tokens at its end.
    ///
    /// # Errors
    /// `OtherVocabulary` if they disagree about a token.
    pub fn new(runner: Box<dyn LmRunner>, own: &Tokenizer, guided: &Tokenizer) -> Result<DraftModel, DraftModelError> {
        let n = own.vocab_size().min(guided.vocab_size()) as u32;
        if let Some(token) = (0..n).find(|&token| own.token_bytes(token) != guided.token_bytes(token)) {
            let (model, draft) = (guided.token_text(token), own.token_text(token));
            return Err(DraftModelError::OtherVocabulary { token, model, draft });
        }
        Ok(DraftModel { runner: HostDriven::new(runner) })
    }
}

impl Drafter for DraftModel {
    fn draft(&mut self, context: &[u32], n: usize) -> Result<Vec<u32>> {
        // A model with a smaller vocabulary or context has no idea of a text that goes beyond them.
        if self.runner.check_prompt(context).is_err() {
            return Ok(Vec::new());
        }
        let room = self.runner.context_length() + 1 - context.len();
        let mut logits = self.runner.prefill_logits_reusing(context)?;
        let mut guesses = Vec::new();
        while let Some(token) = likeliest(&logits).filter(|_| guesses.len() < n.min(room)) {
            guesses.push(token);
            if guesses.len() == n.min(room) {
                break;
            }
            logits = self.runner.decode_logits(token)?;
        }
        Ok(guesses)
    }
}

fn likeliest(logits: &[f32]) -> Option<u32> {
    let finite = logits.iter().enumerate().filter(|(_, logit)| logit.is_finite());
    finite.max_by(|(_, a), (_, b)| a.total_cmp(b)).and_then(|(id, _)| u32::try_from(id).ok())
}

impl fmt::Debug for DraftModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DraftModel").field("family", &self.runner.family()).finish_non_exhaustive()
    }
}
