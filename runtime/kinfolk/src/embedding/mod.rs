//! From texts to vectors that stand for them.
//!
//! An [`Embedder`] is a model and its text layer with the [`EmbeddingConventions`] of its checkpoint: how to pool, whether to normalise, what to
//! put before a query. [`LmRunnerBuilder::embedder`](crate::LmRunnerBuilder::embedder) opens one without bringing up the model's head.
//!
//! # Example
//! ```no_run
//! use kinfolk::embedding::{EmbedRequest, Prompt};
//!
//! let mut embedder = kinfolk::LmRunnerBuilder::new().weights("Qwen3-Embedding-0.6B").embedder()?;
//! let mut request = EmbedRequest::default();
//! request.prompt = Prompt::Query;
//! let query = embedder.embed(&["why is the sky blue?"], &request)?.vectors;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod conventions;
mod error;
mod pooling;

use std::sync::Arc;

use anyhow::Result;
use kinfolk_decoder::{Cancel, Model, Want};
use kinfolk_text::{EncodeOptions, Text};

pub(crate) use self::pooling::{Pooler, normalize};
pub use self::{
    conventions::{ConventionsError, EmbeddingConventions},
    error::EmbedError,
    pooling::{Pooling, PoolingMode, UnknownPooling},
};
use crate::{
    LmRunner, RunnerError,
    passes::{self, Job},
};

/// What to put before every text. Models that tell queries from documents are told so by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prompt {
    /// The one the checkpoint uses where nothing is said, if it has one.
    #[default]
    Default,
    /// Nothing.
    None,
    /// The checkpoint's for queries; nothing if it has none.
    Query,
    /// The checkpoint's for documents (or passages, or a corpus); nothing if it has none.
    Document,
    /// The checkpoint's of this name.
    Named(String),
    /// This text.
    Literal(String),
}

/// How to embed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbedRequest {
    /// What to put before every text.
    pub prompt: Prompt,
    /// Cut texts that are too long at their end, instead of refusing them.
    pub truncate: bool,
    /// Whether vectors are scaled to length 1. `None`: as the checkpoint does.
    pub normalize: Option<bool>,
    /// Keep only the first dimensions, for models trained so that these alone will do (Kusupati et al. 2022, arXiv:2205.13147). What is
    /// left is normalised, if vectors are.
    pub dimensions: Option<usize>,
    /// Most tokens of one forward pass.
    pub batch_tokens: usize,
    /// Gives the call up.
    pub cancel: Cancel,
}

impl Default for EmbedRequest {
    /// The checkpoint's way, 512 tokens at a time, and no truncation.
    fn default() -> EmbedRequest {
        EmbedRequest {
            prompt: Prompt::Default,
            truncate: false,
            normalize: None,
            dimensions: None,
            batch_tokens: 512,
            cancel: Cancel::new(),
        }
    }
}

/// Vectors of some texts, in the texts' order.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Embeddings {
    /// One vector per text.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens that each text came to: with its prompt and the tokens around it, and less what was cut.
    pub n_tokens: Vec<usize>,
    /// The texts that were cut.
    pub truncated: Vec<Truncation>,
}

/// A text that was cut at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Which, counted from 0.
    pub text: usize,
    /// How many of its tokens are missing.
    pub n_cut_tokens: usize,
}

/// A model that turns texts into vectors.
pub struct Embedder {
    model: Pooled,
    text: Arc<Text>,
    conventions: EmbeddingConventions,
}

/// Who pools.
enum Pooled {
    /// This module, what the model computes for many sequences at once.
    Here(Arc<dyn Model>),
    /// The runner, one sequence at a time.
    ByRunner(Box<dyn LmRunner>),
}

impl Embedder {
    /// Puts the three together. A runner that has no shared model pools by itself, and the `conventions` about pooling are then not asked.
    pub fn new(runner: Box<dyn LmRunner>, text: impl Into<Arc<Text>>, conventions: EmbeddingConventions) -> Embedder {
        let model = match runner.model() {
            Some(model) => Pooled::Here(model),
            None => Pooled::ByRunner(runner),
        };
        Embedder { model, text: text.into(), conventions }
    }

    /// An embedder beside other users of a model.
    pub fn of_model(model: Arc<dyn Model>, text: impl Into<Arc<Text>>, conventions: EmbeddingConventions) -> Embedder {
        Embedder { model: Pooled::Here(model), text: text.into(), conventions }
    }

    /// The checkpoint's way, as far as the host has not set it otherwise.
    pub fn conventions(&self) -> &EmbeddingConventions {
        &self.conventions
    }

    /// Pools in another way than the checkpoint's.
    ///
    /// # Errors
    /// `RunnerPools` if the runner has no shared model.
    pub fn set_pooling(&mut self, pooling: Pooling) -> Result<(), EmbedError> {
        if let Pooled::ByRunner(runner) = &self.model {
            return Err(EmbedError::RunnerPools { family: runner.family().to_owned(), asked: pooling.to_string() });
        }
        self.conventions.pooling = pooling;
        Ok(())
    }

    /// Takes texts of up to this many tokens; `None`: up to what the context holds.
    pub fn set_max_seq_length(&mut self, tokens: Option<usize>) {
        self.conventions.max_seq_length = tokens;
    }

    /// Most tokens of a text, its prompt and the tokens around it included.
    pub fn max_tokens(&self) -> usize {
        let context_length = match &self.model {
            Pooled::Here(model) => model.context_length(),
            Pooled::ByRunner(runner) => runner.context_length(),
        };
        self.conventions.max_seq_length.map_or(context_length, |limit| limit.min(context_length))
    }

    /// Numbers of a vector before any are left out. `None`: only the runner, which pools by itself, knows.
    pub fn dimensions(&self) -> Option<usize> {
        match &self.model {
            Pooled::Here(model) => Some(model.decoder().embedding.hidden_size * self.conventions.pooling.modes().len()),
            Pooled::ByRunner(_) => None,
        }
    }

    /// Embeds texts. Control tokens written in them, or in a prompt, are ordinary characters.
    ///
    /// What comes out for a text does not depend on the others. Tokens around a text (BOS, EOS, …) are those its tokenizer puts there,
    /// and stay when a text is cut.
    ///
    /// # Errors
    /// [`EmbedError`]; what the tokenizer refuses; [`RunnerError::Cancelled`]; whatever the model fails with.
    ///
    /// # Cost
    /// Keys and values of `batch_tokens` tokens and of the longest text at a time.
    pub fn embed(&mut self, texts: &[&str], request: &EmbedRequest) -> Result<Embeddings> {
        let prompt = self.conventions.prompt_text(&request.prompt)?.to_owned();
        let n_left_out = self.n_left_out(&prompt)?;
        let mut inputs = Vec::with_capacity(texts.len());
        for (i, text) in texts.iter().enumerate() {
            inputs.push(self.tokens(i, &prompt, text, request.truncate)?);
        }
        self.embed_inputs(&inputs, n_left_out, request)
    }

    /// [`embed`](Self::embed) of texts that are tokens already, with all that belongs around them: no prompt is put before these.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn embed_tokens(&mut self, texts: &[&[u32]], request: &EmbedRequest) -> Result<Embeddings> {
        let mut inputs = Vec::with_capacity(texts.len());
        for (i, tokens) in texts.iter().enumerate() {
            inputs.push(self.fitted(i, [&[], tokens, &[]], request.truncate)?);
        }
        self.embed_inputs(&inputs, 0, request)
    }

    fn embed_inputs(&mut self, inputs: &[Input], n_left_out: usize, request: &EmbedRequest) -> Result<Embeddings> {
        if let (Some(asked), Some(width)) = (request.dimensions, self.dimensions()) {
            check_dimensions(asked, width)?;
        }
        let mut vectors = match &mut self.model {
            Pooled::Here(model) => pool_all(&**model, inputs, &self.conventions.pooling, n_left_out, request)?,
            Pooled::ByRunner(runner) => {
                if n_left_out > 0 {
                    let (family, asked) = (runner.family().to_owned(), "without the prompt".to_owned());
                    return Err(EmbedError::RunnerPools { family, asked }.into());
                }
                embed_all(&mut **runner, inputs, &request.cancel)?
            }
        };
        for (text, vector) in vectors.iter_mut().enumerate() {
            if !vector.iter().all(|x| x.is_finite()) {
                return Err(EmbedError::NotANumber { text }.into());
            }
            finish(vector, request.normalize.unwrap_or(self.conventions.normalize), request.dimensions)?;
        }
        let cut = |(text, input): (usize, &Input)| Truncation { text, n_cut_tokens: input.n_cut_tokens };
        Ok(Embeddings {
            vectors,
            n_tokens: inputs.iter().map(|input| input.tokens.len()).collect(),
            truncated: inputs.iter().enumerate().map(cut).filter(|cut| cut.n_cut_tokens > 0).collect(),
        })
    }

    /// The tokens of a text.
    fn tokens(&self, text: usize, prompt: &str, content: &str, truncate: bool) -> Result<Input> {
        let tokenizer = &self.text.tokenizer;
        let body = self.encode(&format!("{prompt}{content}"))?;
        Ok(self.fitted(text, [tokenizer.prefix(), &body, tokenizer.suffix()], truncate)?)
    }

    /// The parts of a text put together, the middle one cut at its end if they are too long and it may be.
    fn fitted(&self, text: usize, parts: [&[u32]; 3], truncate: bool) -> Result<Input, EmbedError> {
        let [prefix, body, suffix] = parts;
        let n_around = prefix.len() + suffix.len();
        let (limit, found) = (self.max_tokens(), n_around + body.len());
        if found == 0 {
            return Err(EmbedError::NoTokens { text });
        }
        if found > limit && (!truncate || n_around >= limit) {
            return Err(EmbedError::TooLong { text, limit, found });
        }
        let n_cut_tokens = found.saturating_sub(limit);
        let kept = body.get(..body.len().saturating_sub(n_cut_tokens)).unwrap_or_default();
        Ok(Input { tokens: [prefix, kept, suffix].concat(), n_cut_tokens })
    }

    /// How many tokens at the start are not pooled: a prompt that is not to be, and what stands before it. Counted of the prompt alone, as
    /// such checkpoints were trained: where its last space and the text make one token, that token is not pooled either.
    fn n_left_out(&self, prompt: &str) -> Result<usize> {
        if self.conventions.include_prompt || prompt.is_empty() {
            return Ok(0);
        }
        Ok(self.text.tokenizer.prefix().len() + self.encode(prompt)?.len())
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.text.tokenizer.encode(text, EncodeOptions::default())?)
    }
}

/// What the model is given of a text.
struct Input {
    tokens: Vec<u32>,
    n_cut_tokens: usize,
}

/// The pooled hidden states of every text, less its first `n_left_out`.
fn pool_all(
    model: &dyn Model,
    inputs: &[Input],
    pooling: &Pooling,
    n_left_out: usize,
    request: &EmbedRequest,
) -> Result<Vec<Vec<f32>>> {
    // A row that nobody pools costs less than a pass of its own for the others.
    let jobs: Vec<Job<'_>> = inputs.iter().map(|input| Job { tokens: &input.tokens, n_silent: 0 }).collect();
    let mut poolers: Vec<Pooler> = jobs.iter().map(|_| Pooler::new(pooling)).collect();
    passes::run(model, &jobs, Want::Hidden, request.batch_tokens, &request.cancel, &mut |job, position, hidden| {
        if let Some(pooler) = poolers.get_mut(job).filter(|_| position >= n_left_out) {
            pooler.add(position, hidden);
        }
    })?;
    let vectors = poolers.into_iter().enumerate();
    Ok(vectors.map(|(text, pooler)| pooler.finish().ok_or(EmbedError::NoTokens { text })).collect::<Result<_, _>>()?)
}

fn embed_all(runner: &mut dyn LmRunner, inputs: &[Input], cancel: &Cancel) -> Result<Vec<Vec<f32>>> {
    let mut vectors = Vec::with_capacity(inputs.len());
    for input in inputs {
        if cancel.is_cancelled() {
            return Err(RunnerError::Cancelled.into());
        }
        vectors.push(runner.embed(&input.tokens)?);
    }
    Ok(vectors)
}

/// The dimensions asked for, scaled to length 1 if they are to be.
fn finish(vector: &mut Vec<f32>, normalized: bool, dimensions: Option<usize>) -> Result<(), EmbedError> {
    if let Some(asked) = dimensions {
        check_dimensions(asked, vector.len())?;
        vector.truncate(asked);
    }
    if normalized {
        normalize(vector);
    }
    Ok(())
}

fn check_dimensions(asked: usize, width: usize) -> Result<(), EmbedError> {
    if (1..=width).contains(&asked) { Ok(()) } else { Err(EmbedError::Dimensions { asked, width }) }
}

#[cfg(test)]
mod tests;
