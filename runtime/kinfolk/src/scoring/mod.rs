//! How likely a model finds a text that is given.
//!
//! [`score`] and [`score_all`] give log-probabilities (natural logarithm) of a continuation after a context, from the model's raw
//! distribution: no temperature, no filter. [`perplexity`] makes of them one figure for a long text.
//!
//! # Example
//! ```no_run
//! use kinfolk::{scoring::{ScorePair, score}, text::Text};
//!
//! let source = kinfolk::decoder::Source::open("model.gguf")?;
//! let text = Text::from_source(&source, &[])?;
//! let mut runner = kinfolk::LmRunnerBuilder::new().source(source).build()?;
//! let pair = ScorePair::of_text(&text, "The capital of France is", " Paris")?;
//! println!("{}", score(&mut runner, &pair.context, &pair.continuation)?.total);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod perplexity;

use anyhow::Result;
use kinfolk_decoder::{Cancel, Model, Want};
use kinfolk_text::{EncodeOptions, Text};

pub use self::{
    error::ScoreError,
    perplexity::{Perplexity, PerplexityOptions, perplexity, text_perplexity},
};
use crate::{
    HostDriven, LmRunner, RunnerError,
    passes::{self, Job},
    sampling::{TokenLogProbs, log_probabilities},
};

/// A continuation and what it follows, as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScorePair {
    /// At least one token; not scored itself.
    pub context: Vec<u32>,
    /// At least one token.
    pub continuation: Vec<u32>,
}

impl ScorePair {
    /// Encodes the two texts, divided as in EleutherAI's evaluation harness, so that figures can be compared.
    ///
    /// White space at the end of the context belongs to the continuation. The two are encoded as one text, and the continuation begins
    /// after as many tokens as the context has by itself. The tokens that the model expects in front of a text (BOS) come first; an
    /// empty context is BOS, or EOS for a model without one.
    ///
    /// # Errors
    /// As the tokenizer says; `EmptyContext` if the context is empty and the model has neither BOS nor EOS.
    pub fn of_text(text: &Text, context: &str, continuation: &str) -> Result<ScorePair> {
        let tokenizer = &text.tokenizer;
        let encode = |text: &str| tokenizer.encode(text, EncodeOptions::default());
        let shortened = context.trim_end();
        let continuation = format!("{}{continuation}", context.get(shortened.len()..).unwrap_or_default());
        let n_context = encode(shortened)?.len();
        let whole = encode(&format!("{shortened}{continuation}"))?;
        let (context, continuation) = whole.split_at(n_context.min(whole.len()));
        let mut context = [tokenizer.prefix(), context].concat();
        if context.is_empty() {
            context.extend(tokenizer.bos().or(tokenizer.eos()));
        }
        if context.is_empty() {
            return Err(ScoreError::EmptyContext { pair: 0 }.into());
        }
        Ok(ScorePair { context, continuation: continuation.to_vec() })
    }

    /// Tokens the model has to run: all but the last.
    fn n_run(&self) -> usize {
        (self.context.len() + self.continuation.len()).saturating_sub(1)
    }
}

/// How likely a continuation is.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Of each token of the continuation, after everything before it.
    pub log_probs: Vec<f32>,
    /// Of the whole continuation: their sum, summed in f64.
    pub total: f64,
    /// Whether greedy decoding gives this continuation: each token is the likeliest, the lowest id among equals.
    pub greedy: bool,
}

/// How to score.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScoreOptions {
    /// Most tokens of one forward pass.
    pub batch_tokens: usize,
    /// Gives the call up.
    pub cancel: Cancel,
}

impl Default for ScoreOptions {
    /// 512 tokens at a time.
    fn default() -> ScoreOptions {
        ScoreOptions { batch_tokens: 512, cancel: Cancel::new() }
    }
}

/// Scores one continuation. See [`score_all`].
///
/// # Errors
/// As [`score_all`].
pub fn score(runner: &mut dyn LmRunner, context: &[u32], continuation: &[u32]) -> Result<Score> {
    let pair = ScorePair { context: context.to_vec(), continuation: continuation.to_vec() };
    let scores = score_all(runner, &[pair], &ScoreOptions::default())?;
    scores.into_iter().next().ok_or_else(|| anyhow::anyhow!("one pair was scored and gave no score"))
}

/// Scores every pair, many at once where the runner has a shared model, whose context it then leaves alone. A runner without one is
/// driven token by token, which ends its context.
///
/// # Errors
/// [`ScoreError`] before anything is computed, for pairs that are empty or too long or have unknown tokens, and for a model whose
/// logits are no numbers; [`RunnerError::NoHead`] of a model loaded for embeddings, [`RunnerError::Cancelled`]; whatever the model
/// fails with.
///
/// # Cost
/// Never holds the logits of more than 8 million tokens times vocabulary at once.
pub fn score_all(runner: &mut dyn LmRunner, pairs: &[ScorePair], options: &ScoreOptions) -> Result<Vec<Score>> {
    for (i, pair) in pairs.iter().enumerate() {
        check(i, pair, runner.context_length(), runner.vocab_size())?;
    }
    let vocab_size = runner.vocab_size();
    let mut tallies: Vec<Tally<'_>> = pairs.iter().map(|pair| Tally::new(pair, vocab_size)).collect();
    match runner.model() {
        Some(model) => run_all(&*model, pairs, options, &mut tallies)?,
        None => tallies.iter_mut().zip(pairs).try_for_each(|(tally, pair)| drive(runner, pair, options, tally))?,
    }
    Ok(tallies.into_iter().enumerate().map(|(pair, tally)| tally.finish(pair)).collect::<Result<_, _>>()?)
}

fn check(pair: usize, tokens: &ScorePair, context_length: usize, vocab_size: usize) -> Result<(), ScoreError> {
    let ScorePair { context, continuation } = tokens;
    if context.is_empty() {
        return Err(ScoreError::EmptyContext { pair });
    }
    if continuation.is_empty() {
        return Err(ScoreError::EmptyContinuation { pair });
    }
    if tokens.n_run() > context_length {
        return Err(ScoreError::TooLong { pair, limit: context_length + 1, found: tokens.n_run() + 1 });
    }
    match context.iter().chain(continuation).find(|token| **token as usize >= vocab_size) {
        Some(&token) => Err(ScoreError::TokenOutOfRange { pair, token, vocab_size }),
        None => Ok(()),
    }
}

/// Logits after each token from the context's last to the one before the continuation's last, and of no others.
fn run_all(model: &dyn Model, pairs: &[ScorePair], options: &ScoreOptions, tallies: &mut [Tally<'_>]) -> Result<()> {
    let sequences: Vec<Vec<u32>> = pairs
        .iter()
        .map(|pair| pair.context.iter().chain(&pair.continuation).copied().take(pair.n_run()).collect())
        .collect();
    let jobs = pairs.iter().zip(&sequences);
    let jobs: Vec<Job<'_>> =
        jobs.map(|(pair, tokens)| Job { tokens, n_silent: pair.context.len().saturating_sub(1) }).collect();
    passes::run(model, &jobs, Want::AllLogits, options.batch_tokens, &options.cancel, &mut |job, _, logits| {
        if let Some(tally) = tallies.get_mut(job) {
            tally.add(logits);
        }
    })
}

/// The slow way, which every runner has.
fn drive(runner: &mut dyn LmRunner, pair: &ScorePair, options: &ScoreOptions, tally: &mut Tally<'_>) -> Result<()> {
    let mut runner = HostDriven::new(runner);
    let (_, run) = pair.continuation.split_last().unwrap_or((&0, &[]));
    for step in std::iter::once(None).chain(run.iter().map(Some)) {
        if options.cancel.is_cancelled() {
            return Err(RunnerError::Cancelled.into());
        }
        let logits = match step {
            None => runner.prefill_logits(&pair.context)?,
            Some(&token) => runner.decode_logits(token)?,
        };
        tally.add(&logits);
    }
    Ok(())
}

/// Adds up one continuation as its logits come.
struct Tally<'a> {
    /// Tokens not scored yet.
    rest: std::slice::Iter<'a, u32>,
    vocab_size: usize,
    log_probs: Vec<f32>,
    total: f64,
    greedy: bool,
}

impl<'a> Tally<'a> {
    fn new(pair: &'a ScorePair, vocab_size: usize) -> Tally<'a> {
        let rest = pair.continuation.iter();
        Tally { log_probs: Vec::with_capacity(rest.len()), rest, vocab_size, total: 0.0, greedy: true }
    }

    /// Takes in the logits from which the next token comes.
    fn add(&mut self, logits: &[f32]) {
        // Minus infinity is a number here: a token the model rules out.
        let is_number = |logit: &f32| !logit.is_nan() && *logit < f32::INFINITY;
        if logits.len() != self.vocab_size || !logits.iter().all(is_number) {
            return;
        }
        let Some(&token) = self.rest.next() else { return };
        let TokenLogProbs { logprob, top, .. } = log_probabilities(logits, token, 1);
        self.log_probs.push(logprob);
        self.total += f64::from(logprob);
        self.greedy &= top.first().is_some_and(|(likeliest, _)| *likeliest == token);
    }

    fn finish(self, pair: usize) -> Result<Score, ScoreError> {
        let Tally { rest, log_probs, total, greedy, .. } = self;
        if rest.len() > 0 {
            return Err(ScoreError::NotANumber { pair });
        }
        Ok(Score { log_probs, total, greedy })
    }
}

#[cfg(test)]
mod tests;
