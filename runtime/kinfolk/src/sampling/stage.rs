//! What a chain is made of.

use std::fmt;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Candidates, SampleError};

/// Narrows or reweights the candidates. `Display` is how the stage shows in the chain: its name and settings.
pub trait Stage: Send + fmt::Debug + fmt::Display {
    /// Works on the candidates of one step.
    fn apply(&mut self, candidates: &mut Candidates, step: &mut Step<'_>);

    /// Learns which token came out of the candidates it last worked on.
    fn accept(&mut self, _token: u32) {}

    /// Checks what depends on the size of the vocabulary, once that is known.
    ///
    /// # Errors
    /// The setting that does not fit.
    fn check(&self, _vocab_size: usize) -> Result<(), SampleError> {
        Ok(())
    }
}

/// What a stage may look at beside the candidates.
#[derive(Debug)]
pub struct Step<'a> {
    history: &'a [u32],
    rng: &'a mut StepRng,
}

impl<'a> Step<'a> {
    /// A step after `history`, prompt and reply with the oldest token first.
    pub fn new(history: &'a [u32], rng: &'a mut StepRng) -> Step<'a> {
        Step { history, rng }
    }

    /// Tokens of the prompt and of the reply so far, oldest first.
    pub fn history(&self) -> &'a [u32] {
        self.history
    }

    /// A random number from 0 to 1, without 1, from the request's own generator.
    pub fn uniform(&mut self) -> f64 {
        self.rng.uniform()
    }
}

/// The generator of one request: the same seed gives the same numbers on every platform.
#[derive(Clone, Debug)]
pub struct StepRng(Pcg64Mcg);

impl StepRng {
    /// A generator from a seed.
    pub fn new(seed: u64) -> StepRng {
        StepRng(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number from 0 to 1, without 1.
    pub(super) fn uniform(&mut self) -> f64 {
        // 53 random bits are what an f64 below 1 holds.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}
