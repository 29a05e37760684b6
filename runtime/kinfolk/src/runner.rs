//! The waist: the one trait between hosts and models.
//!
//! A host holds a `Box<dyn LmRunner>` and never names an architecture. A family that is a description gets its runner
//! from the runtime; one whose maths does not fit the blocks implements the trait itself.

use std::{ops::ControlFlow, sync::Arc};

use anyhow::Result;
use kinfolk_decoder::Model;

use crate::{host_driven::HostDriven, sampling::SampleOpts};

/// One loaded model and the context of one sequence.
///
/// The **context** is the sequence of tokens whose state the runner keeps. [`prefill_logits`](Self::prefill_logits)
/// starts a new one, [`decode_logits`](Self::decode_logits) extends it by a token, and
/// [`prefill_logits_reusing`](Self::prefill_logits_reusing) turns it into another at the least cost. Logits are always
/// `[vocab]` f32, index = token id, for the position after the last token given.
///
/// The four required methods make a correct runner. The others are abilities: one a runner lacks answers with the typed
/// [`Unsupported`], which is not a failure, and [`HostDriven`] makes up for the lack. A method that fails with any other
/// error must leave the runner usable: the next `prefill_logits` starts anew.
///
/// A wrapper forwards **every** method. Put `#[deny(clippy::missing_trait_methods)]` on its `impl`, so that a method
/// added here cannot be forgotten there.
pub trait LmRunner: Send {
    /// Names the family, as its record does.
    fn family(&self) -> &str;

    /// Counts the token ids the model knows; valid ids are `0..vocab_size`.
    fn vocab_size(&self) -> usize;

    /// The longest context, in tokens.
    fn context_length(&self) -> usize;

    /// Computes the logits after `tokens` from scratch and leaves the context as it was.
    ///
    /// # Errors
    /// [`RunnerError::EmptyPrompt`], [`TokenOutOfRange`](RunnerError::TokenOutOfRange),
    /// [`ContextFull`](RunnerError::ContextFull), or whatever the model fails with.
    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>>;

    /// Says which abilities the runner has. It must be true: hosts choose their path by it.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Starts a new context with `tokens` and returns the logits after the last.
    ///
    /// # Errors
    /// As [`predict_logits`](Self::predict_logits), and [`Unsupported`].
    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let _ = tokens;
        Err(lacks(self, "prefill_logits"))
    }

    /// Appends one token to the context and returns the logits after it.
    ///
    /// # Errors
    /// [`RunnerError::NotPrefilled`] if there is no context, [`TokenOutOfRange`](RunnerError::TokenOutOfRange),
    /// [`ContextFull`](RunnerError::ContextFull), [`Unsupported`], or whatever the model fails with.
    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        let _ = token;
        Err(lacks(self, "decode_logits"))
    }

    /// Appends several tokens to the context and returns the logits after each of them, as that many
    /// [`decode_logits`](Self::decode_logits) would: what checks the guesses of speculative decoding in one pass.
    ///
    /// # Errors
    /// As [`decode_logits`](Self::decode_logits), and [`RunnerError::EmptyPrompt`]. The context then holds none of the tokens, or some of
    /// the first.
    fn decode_logits_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let _ = tokens;
        Err(lacks(self, "decode_logits_each"))
    }

    /// Makes the context equal `tokens` and returns the logits after the last, computing only what the prefix shared
    /// with the present context lacks. At least one token is always computed.
    ///
    /// A prompt is prefilled in chunks by growing it: `prompt[..512]`, `prompt[..1024]`, and so on.
    ///
    /// # Errors
    /// As [`prefill_logits`](Self::prefill_logits).
    fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let _ = tokens;
        Err(lacks(self, "prefill_logits_reusing"))
    }

    /// Trims from the context what diverges from `tokens` and returns how many of them it still holds, at most
    /// `tokens.len() - 1`. [`prefill_logits_reusing`](Self::prefill_logits_reusing) computes the rest, or, if any are held and one is
    /// missing, [`decode_logits`](Self::decode_logits) of that one.
    ///
    /// # Errors
    /// As [`prefill_logits`](Self::prefill_logits).
    fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
        let _ = tokens;
        Err(lacks(self, "begin_prompt"))
    }

    /// Forgets the context.
    ///
    /// # Errors
    /// [`Unsupported`], or whatever the model fails with.
    fn clear_kv_cache(&mut self) -> Result<()> {
        Err(lacks(self, "clear_kv_cache"))
    }

    /// Saves the context, so that [`restore_session`](Self::restore_session) of a runner of the same model can go on
    /// from it. The bytes are the runner's own format.
    ///
    /// # Errors
    /// [`Unsupported`], or whatever the model fails with.
    fn export_session(&mut self) -> Result<Vec<u8>> {
        Err(lacks(self, "export_session"))
    }

    /// Replaces the context by a saved one.
    ///
    /// # Errors
    /// [`RunnerError::InvalidSession`] if the bytes are not a session of this model (the context is then unchanged),
    /// [`Unsupported`], or whatever the model fails with.
    fn restore_session(&mut self, session: &[u8]) -> Result<()> {
        let _ = session;
        Err(lacks(self, "restore_session"))
    }

    /// Measures what the context occupies. `None`: the runner keeps no store it can measure.
    fn kv_store_stats(&self) -> Option<KvStoreStats> {
        None
    }

    /// Generates a reply to `prompt` and returns its tokens. `on_token` sees each as it is chosen and may end the reply.
    ///
    /// The reply ends with `max_new_tokens`, before a stop token, when `on_token` breaks, or when the context is full.
    /// The context afterwards is unspecified: go on with a prefill.
    ///
    /// # Errors
    /// As [`prefill_logits`](Self::prefill_logits), and options out of range.
    fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        HostDriven::new(self).drive(prompt, options, on_token)
    }

    /// Computes one vector that stands for all of `tokens`, and leaves the context as it was.
    ///
    /// # Errors
    /// As [`predict_logits`](Self::predict_logits), and [`Unsupported`].
    fn embed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let _ = tokens;
        Err(lacks(self, "embed"))
    }

    /// Whether [`generate_multimodal`](Self::generate_multimodal) is there.
    fn supports_multimodal(&self) -> bool {
        self.capabilities().multimodal
    }

    /// Asks to be told the phases of a multimodal prompt; `None` ends it. A runner without phases ignores it.
    fn set_multimodal_phase_callback(&mut self, callback: Option<MultimodalPhaseCallback>) {
        drop(callback);
    }

    /// [`generate`](Self::generate) for a prompt of text, images and sound.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and [`Unsupported`].
    fn generate_multimodal(
        &mut self,
        prompt: &[PromptPart],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        let _ = (prompt, options, on_token);
        Err(lacks(self, "generate_multimodal"))
    }

    /// The model itself, shared, for a host that batches many sequences. `None`: the runner has only the one.
    fn model(&self) -> Option<Arc<dyn Model>> {
        None
    }
}

/// How many tokens two contexts begin with in common.
pub(crate) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The answer of a method that `runner` does not have.
fn lacks(runner: &(impl LmRunner + ?Sized), operation: &'static str) -> anyhow::Error {
    Unsupported::new(runner.family(), operation).into()
}

/// Forwards every method through a pointer to a runner.
macro_rules! forward_through_pointer {
    ($($pointer:ty),+) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<R: LmRunner + ?Sized> LmRunner for $pointer {
            fn family(&self) -> &str {
                (**self).family()
            }
            fn vocab_size(&self) -> usize {
                (**self).vocab_size()
            }
            fn context_length(&self) -> usize {
                (**self).context_length()
            }
            fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
                (**self).predict_logits(tokens)
            }
            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }
            fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
                (**self).prefill_logits(tokens)
            }
            fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
                (**self).decode_logits(token)
            }
            fn decode_logits_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
                (**self).decode_logits_each(tokens)
            }
            fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
                (**self).prefill_logits_reusing(tokens)
            }
            fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
                (**self).begin_prompt(tokens)
            }
            fn clear_kv_cache(&mut self) -> Result<()> {
                (**self).clear_kv_cache()
            }
            fn export_session(&mut self) -> Result<Vec<u8>> {
                (**self).export_session()
            }
            fn restore_session(&mut self, session: &[u8]) -> Result<()> {
                (**self).restore_session(session)
            }
            fn kv_store_stats(&self) -> Option<KvStoreStats> {
                (**self).kv_store_stats()
            }
            fn generate(
                &mut self,
                prompt: &[u32],
                options: &GenerateOptions,
                on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
            ) -> Result<Vec<u32>> {
                (**self).generate(prompt, options, on_token)
            }
            fn embed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
                (**self).embed(tokens)
            }
            fn supports_multimodal(&self) -> bool {
                (**self).supports_multimodal()
            }
            fn set_multimodal_phase_callback(&mut self, callback: Option<MultimodalPhaseCallback>) {
                (**self).set_multimodal_phase_callback(callback)
            }
            fn generate_multimodal(
                &mut self,
                prompt: &[PromptPart],
                options: &GenerateOptions,
                on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
            ) -> Result<Vec<u32>> {
                (**self).generate_multimodal(prompt, options, on_token)
            }
            fn model(&self) -> Option<Arc<dyn Model>> {
                (**self).model()
            }
        }
    )+};
}

forward_through_pointer!(Box<R>, &mut R);

/// Which abilities a runner has beyond the required methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `prefill_logits` and `decode_logits`.
    pub prefill_decode_pair: bool,
    /// `decode_logits_each` takes less than its tokens one by one.
    pub decodes_several: bool,
    /// `begin_prompt` and `prefill_logits_reusing` compute less than a new context would.
    pub prefix_reuse: bool,
    /// `export_session` and `restore_session`.
    pub sessions: bool,
    /// `embed`.
    pub embeddings: bool,
    /// `generate_multimodal`.
    pub multimodal: bool,
    /// `model` returns one.
    pub batching: bool,
}

/// What a context occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvStoreStats {
    /// Tokens in the context.
    pub tokens: usize,
    /// Tokens it can hold.
    pub capacity_tokens: usize,
    /// Memory the store occupies.
    pub bytes: usize,
}

impl KvStoreStats {
    /// Puts the three figures together.
    pub fn new(tokens: usize, capacity_tokens: usize, bytes: usize) -> KvStoreStats {
        KvStoreStats { tokens, capacity_tokens, bytes }
    }
}

/// What to generate and when to end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// The longest reply, in tokens.
    pub max_new_tokens: usize,
    /// Tokens that end the reply and are not part of it.
    pub stop_tokens: Vec<u32>,
    /// How each token is chosen.
    pub sample: SampleOpts,
}

impl Default for GenerateOptions {
    /// Up to 256 tokens, no stop tokens, default sampling.
    fn default() -> GenerateOptions {
        GenerateOptions { max_new_tokens: 256, stop_tokens: Vec::new(), sample: SampleOpts::default() }
    }
}

/// One piece of a multimodal prompt, in reading order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PromptPart {
    /// Text, as token ids.
    Tokens(Vec<u32>),
    /// A picture.
    Image {
        /// Pixels across.
        width: usize,
        /// Pixels down.
        height: usize,
        /// `[height, width, 3]`, red first.
        rgb: Vec<u8>,
    },
    /// A sound, one channel.
    Audio {
        /// Samples per second.
        sample_rate_hz: u32,
        /// `[n_samples]`, within -1..=1.
        samples: Vec<f32>,
    },
}

/// Where a multimodal generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultimodalPhase {
    /// A picture or sound is being encoded.
    Encode {
        /// Which part of the prompt.
        part_idx: usize,
        /// Parts in the prompt.
        n_parts: usize,
    },
    /// The encoded prompt is being prefilled.
    Prefill,
    /// The reply is being decoded.
    Decode,
}

/// Told each phase of a multimodal generation as it begins.
pub type MultimodalPhaseCallback = Box<dyn FnMut(MultimodalPhase) + Send>;

/// The runner does not have this ability. Nothing failed, and nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("family `{family}` does not support `{operation}`")]
#[non_exhaustive]
pub struct Unsupported {
    /// The family asked.
    pub family: String,
    /// The method of [`LmRunner`].
    pub operation: &'static str,
}

impl Unsupported {
    /// Says that runners of `family` lack `operation`.
    pub fn new(family: impl Into<String>, operation: &'static str) -> Unsupported {
        Unsupported { family: family.into(), operation }
    }
}

/// What a caller of a runner can do wrong. Found with `downcast_ref` inside the `anyhow::Error` of a runner's method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// There is nothing to predict from.
    #[error("expected at least one prompt token, found none")]
    EmptyPrompt,
    /// The token does not exist in this model.
    #[error("expected a token below the vocabulary size {vocab_size}, found {token}")]
    TokenOutOfRange {
        /// The token given.
        token: u32,
        /// The model's vocabulary.
        vocab_size: usize,
    },
    /// The tokens do not fit the model's context.
    #[error("expected at most {context_length} tokens of context, found {asked}")]
    ContextFull {
        /// Tokens the context holds.
        context_length: usize,
        /// Tokens it would have to hold.
        asked: usize,
    },
    /// Logits of a model that was loaded for embeddings alone, without its head.
    #[error("logits: expected a model loaded for text, found one loaded for embeddings")]
    NoHead,
    /// `decode_logits` came before any prefill.
    #[error("expected a prefilled context before `decode_logits`, found none")]
    NotPrefilled,
    /// The host asked for the call to be given up.
    #[error("cancelled by the host")]
    Cancelled,
    /// The bytes are not a session of this runner.
    #[error("not a session of family `{family}`: {reason}")]
    InvalidSession {
        /// The family asked to restore it.
        family: String,
        /// What was expected and what was found.
        reason: String,
    },
}
