//! The stages of one request, resolved once and run at every step.

use std::fmt;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{
    Candidates, SampleOpts, min_p::MinP, repetition::RepetitionPenalty, temperature::Temperature, top_k::TopK,
    top_p::TopP,
};

/// Narrows or reweights the candidates.
pub trait Stage: Send + fmt::Debug {
    /// Works on the candidates of one step. `history` holds prompt and generated tokens, oldest first.
    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]);
}

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A setting no sampler can honour.
    #[error("sampling option `{field}`: expected {expected}, found {found}")]
    OutOfRange {
        /// Name of the field of [`SampleOpts`].
        field: &'static str,
        /// The range.
        expected: &'static str,
        /// The value.
        found: String,
    },
    /// The model produced no finite logit, so any choice would be made up.
    #[error("expected at least one finite logit, found {nan} NaN and {infinite} infinite of {vocab_size}")]
    NoFiniteLogit {
        /// How many were NaN.
        nan: usize,
        /// How many were infinite.
        infinite: usize,
        /// How many there were.
        vocab_size: usize,
    },
}

/// Stages, generator and history of one request.
#[derive(Debug)]
pub struct SamplerChain {
    stages: Vec<Box<dyn Stage>>,
    greedy: bool,
    rng: Pcg64Mcg,
    history: Vec<u32>,
    candidates: Candidates,
}

impl SamplerChain {
    /// Resolves the options: a stage that is switched off is not in the chain.
    ///
    /// # Errors
    /// `OutOfRange` from [`SampleOpts::validate`].
    pub fn new(options: &SampleOpts) -> Result<SamplerChain, SampleError> {
        options.validate()?;
        let min_keep = options.min_keep.max(1);
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if options.repetition_penalty != 1.0 && options.repetition_window > 0 {
            let (penalty, window) = (options.repetition_penalty, options.repetition_window);
            stages.push(Box::new(RepetitionPenalty { penalty, window }));
        }
        if !options.is_greedy() {
            if options.temperature != 1.0 {
                stages.push(Box::new(Temperature(options.temperature)));
            }
            if options.top_k > 0 {
                stages.push(Box::new(TopK { k: options.top_k, min_keep }));
            }
            if options.top_p < 1.0 {
                stages.push(Box::new(TopP { p: options.top_p, min_keep }));
            }
            if options.min_p > 0.0 {
                stages.push(Box::new(MinP { p: options.min_p, min_keep }));
            }
        }
        let seed = options.seed.unwrap_or_else(seed_from_time);
        Ok(SamplerChain {
            stages,
            greedy: options.is_greedy(),
            rng: Pcg64Mcg::seed_from_u64(seed),
            history: Vec::new(),
            candidates: Candidates::default(),
        })
    }

    /// Records a token of the prompt or of the reply, for the stages that look back.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Chooses the next token from `logits` (`[vocab]`, index = token id). Values that are not finite are never chosen.
    ///
    /// # Errors
    /// `NoFiniteLogit` if there is nothing to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        self.candidates.refill(logits);
        if self.candidates.as_slice().len() < logits.len() {
            self.report_non_finite(logits)?;
        }
        for stage in &mut self.stages {
            stage.apply(&mut self.candidates, &self.history);
        }
        let chosen = if self.greedy { self.candidates.likeliest().map(|c| c.id) } else { self.draw() };
        chosen.ok_or(SampleError::NoFiniteLogit { nan: 0, infinite: 0, vocab_size: logits.len() })
    }

    fn draw(&mut self) -> Option<u32> {
        // 53 random bits make a uniform f64 in [0, 1).
        let mut left = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let items = self.candidates.as_slice();
        for (c, p) in items.iter().zip(self.candidates.probabilities()) {
            left -= p;
            if left < 0.0 {
                return Some(c.id);
            }
        }
        // Rounding left a sliver: it belongs to the last candidate.
        items.last().map(|c| c.id)
    }

    fn report_non_finite(&self, logits: &[f32]) -> Result<(), SampleError> {
        let nan = logits.iter().filter(|l| l.is_nan()).count();
        let infinite = logits.iter().filter(|l| l.is_infinite()).count();
        if self.candidates.as_slice().is_empty() {
            return Err(SampleError::NoFiniteLogit { nan, infinite, vocab_size: logits.len() });
        }
        // Minus infinity is how masks say no; anything else is a model gone wrong.
        if nan > 0 || logits.contains(&f32::INFINITY) {
            tracing::warn!(nan, infinite, "logits are not finite; the sampler ignores them");
        }
        Ok(())
    }
}

impl fmt::Display for SamplerChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            write!(f, "{stage:?} -> ")?;
        }
        f.write_str(if self.greedy { "likeliest" } else { "draw" })
    }
}

fn seed_from_time() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library seeds its hashers from the system's entropy.
    RandomState::new().hash_one(std::time::SystemTime::now())
}
