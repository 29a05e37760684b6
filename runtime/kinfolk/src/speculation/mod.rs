//! Speculative decoding: guess several tokens, check them in one pass.
//!
//! The model's own chain chooses every token of the reply, from the logits after the tokens before it; a guess only decides whether the
//! logits for the next choice are there already. So the reply is what it would be without (same seed, same tokens, up to the rounding of a
//! batched pass), whatever the sampler: penalties, mirostat and constraints included. This is the acceptance rule of Leviathan et al. 2023
//! (arXiv:2211.17192) for guesses that are certain of themselves: a guess is kept with the probability the model gives it, and otherwise
//! replaced by a draw from what is left.

mod draft_model;
mod prompt_lookup;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;

pub use draft_model::{DraftModel, DraftModelError};
pub use prompt_lookup::PromptLookup;

/// Guesses how a text goes on.
pub trait Drafter: Send + fmt::Debug {
    /// At most `n` tokens that may follow `context`, which holds prompt and reply so far. Fewer, or none, where it has no idea: a wrong
    /// guess costs the time to compute it.
    ///
    /// # Errors
    /// Whatever it fails with. The reply then goes on without guesses.
    fn draft(&mut self, context: &[u32], n: usize) -> Result<Vec<u32>>;
}

/// One drafter for many requests, which take turns: a draft model is loaded once.
impl<D: Drafter + ?Sized> Drafter for Arc<Mutex<D>> {
    fn draft(&mut self, context: &[u32], n: usize) -> Result<Vec<u32>> {
        // One that panicked has ended its own request's guesses; its next ones are checked like any.
        self.lock().unwrap_or_else(PoisonError::into_inner).draft(context, n)
    }
}

/// Tokens guessed at a time, at most: the logits after all of them are in memory at once, and a step takes as long as they take.
pub const MAX_GUESSES: usize = 64;

/// Who guesses, and how far.
#[derive(Debug)]
#[non_exhaustive]
pub struct Speculation {
    /// Who guesses.
    pub drafter: Box<dyn Drafter>,
    /// Most tokens guessed at a time; [`MAX_GUESSES`] where it is more.
    pub max_tokens: usize,
}

impl Speculation {
    /// Up to eight tokens at a time.
    pub fn new(drafter: impl Drafter + 'static) -> Speculation {
        Speculation { drafter: Box::new(drafter), max_tokens: 8 }
    }

    /// Up to `n` tokens at a time.
    pub fn with_max_tokens(mut self, n: usize) -> Speculation {
        self.max_tokens = n;
        self
    }
}
