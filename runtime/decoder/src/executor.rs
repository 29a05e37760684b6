//! What runs a description: executors, loaded models, caches.

use std::{any::Any, fmt, ops::Range, sync::Arc, time::Duration};

use kinfolk_weights::Source;

use crate::{Cancel, Decoder, DecoderError, MemoryNeed, Peaks, Weights, Workload};

/// Every executor linked into the program. An executor crate adds itself:
///
/// ```ignore
/// #[distributed_slice(EXECUTORS)]
/// static MINE: &dyn Executor = &MyExecutor;
/// ```
#[linkme::distributed_slice]
pub static EXECUTORS: [&'static dyn Executor];

/// Runs descriptions on some kind of hardware.
pub trait Executor: Sync + fmt::Debug {
    /// Short name, as `--executor` takes it: `cpu`.
    fn name(&self) -> &'static str;

    /// Devices this executor can use here, best first. Empty if there is none.
    fn devices(&self) -> Vec<String>;

    /// Whether [`load`](Self::load) can be expected to work for this description and checkpoint.
    ///
    /// # Errors
    /// [`Refusal`] that says which block or weight type is the obstacle.
    fn supports(&self, decoder: &Decoder, source: &Source) -> Result<(), Refusal>;

    /// Memory that the model takes once loaded, from the table of its tensors alone: no weight is read, and there may be none yet.
    fn memory(&self, decoder: &Decoder, weights: &Weights<'_>, workload: &Workload) -> MemoryNeed;

    /// Checks the checkpoint against the description and brings its weights into memory.
    ///
    /// # Errors
    /// [`LoadError`]: what does not fit, what could not be read, or that the host cancelled. Nothing is left allocated.
    fn load(
        &self,
        decoder: Arc<Decoder>,
        source: &Source,
        context: &LoadContext<'_>,
    ) -> Result<Arc<dyn Model>, LoadError>;

    /// What the hardware reaches with `threads` threads, measured now. `None` if this executor cannot tell.
    ///
    /// # Cost
    /// Some tenths of a second with the machine fully busy, and a buffer larger than its caches for that time.
    fn peaks(&self, threads: usize) -> Option<Peaks> {
        let _ = threads;
        None
    }
}

/// Why an executor does not take a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("executor `{executor}` cannot run this model: {reason}")]
pub struct Refusal {
    /// Who refuses.
    pub executor: &'static str,
    /// The obstacle.
    pub reason: String,
}

/// What a model is loaded for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadRole {
    /// Text, which takes logits.
    #[default]
    Text,
    /// Vectors that stand for texts, which takes hidden states alone. The head is neither needed nor read, so that a checkpoint
    /// without one loads too, and [`Want`]s of logits are refused.
    Embedding,
}

/// How to load, and how to reach the host meanwhile.
#[derive(Default)]
#[non_exhaustive]
pub struct LoadContext<'a> {
    /// What the model is for.
    pub role: LoadRole,
    /// Room for this many tokens per sequence. `None`: the description's context length.
    pub context_length: Option<usize>,
    /// Threads to compute with. `None`: one per core.
    pub threads: Option<usize>,
    /// Keep quantised weights packed (`Some(true)`) or decode them to f32 once (`Some(false)`). `None`: the executor decides.
    pub packed_weights: Option<bool>,
    /// Allow the executor to round activations to fewer bits than it would, where that makes passes of many tokens faster.
    pub narrow_activations: bool,
    /// Measure where forward passes spend their time, for [`Model::profile`].
    pub profile: bool,
    /// Polled between tensors.
    pub cancel: Cancel,
    /// Told how far the load is.
    pub progress: Option<&'a (dyn Fn(LoadProgress) + Sync)>,
}

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights in place.
    pub done_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

/// Why a model did not load.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Checkpoint and description do not fit.
    #[error(transparent)]
    Decoder(#[from] DecoderError),
    /// The executor lacks a block or weight type.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is not enough memory.
    #[error("out of memory: {needed_bytes} bytes more are needed")]
    OutOfMemory {
        /// What could not be allocated.
        needed_bytes: u64,
    },
    /// The host cancelled.
    #[error("the load was cancelled")]
    Cancelled,
    /// More threads than an executor has any use for, or none.
    #[error("threads: expected 1 to {max}, found {asked}")]
    ThreadCount {
        /// Most the executor takes.
        max: usize,
        /// What was asked.
        asked: usize,
    },
    /// The requested context does not fit the model.
    #[error("context length: expected 1 to {max} tokens, found {asked}")]
    ContextLength {
        /// Longest the model supports.
        max: usize,
        /// What was asked.
        asked: usize,
    },
}

/// A loaded model: immutable, shared by every sequence that runs on it.
pub trait Model: Send + Sync + fmt::Debug {
    /// What it was loaded from.
    fn decoder(&self) -> &Decoder;

    /// Name of the executor that loaded it.
    fn executor(&self) -> &'static str;

    /// What it was loaded for. An executor that takes no notice of roles always loads for [`LoadRole::Text`].
    fn role(&self) -> LoadRole {
        LoadRole::Text
    }

    /// Threads it computes with.
    fn threads(&self) -> usize;

    /// Most tokens a sequence can have.
    fn context_length(&self) -> usize;

    /// Bytes its weights take in memory.
    fn weight_bytes(&self) -> u64;

    /// State for one new, empty sequence. Takes no memory to speak of before tokens come.
    fn new_cache(&self) -> Box<dyn Cache>;

    /// Most bytes the state of a sequence of `tokens` tokens takes, for hosts that share memory out among sequences.
    fn cache_bytes(&self, tokens: usize) -> u64;

    /// Runs many sequences at once, each its own tokens after what its cache holds, and appends them to the caches.
    /// One output per sequence, in order. What comes out for a sequence does not depend on what else is in the batch.
    ///
    /// # Errors
    /// [`ForwardError`]; then every cache holds what it held before the call.
    fn forward(&self, batch: &mut [Sequence<'_>], cancel: &Cancel) -> Result<Vec<Output>, ForwardError>;

    /// Where all forward passes since the load have spent their time, in the order in which a pass meets these operations. Empty unless the
    /// model was loaded with [`LoadContext::profile`] by an executor that measures.
    fn profile(&self) -> Vec<OpTime> {
        Vec::new()
    }
}

/// Time that operations of one kind took, all layers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// Which kind: `qkv`, `attention`, `down`.
    pub op: &'static str,
    /// How often.
    pub calls: u64,
    /// From start to end, whatever the number of threads.
    pub time: Duration,
}

/// One sequence of a batch.
pub struct Sequence<'a> {
    /// Its state, from [`Model::new_cache`] of the same model. Grows by `tokens`.
    pub cache: &'a mut dyn Cache,
    /// New tokens, at least one.
    pub tokens: &'a [u32],
    /// What to return.
    pub want: Want,
}

/// What a sequence wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing: more of the prompt follows.
    Nothing,
    /// Logits after the last new token, `[1, vocab]`.
    LastLogits,
    /// Logits after every new token, `[tokens, vocab]`.
    AllLogits,
    /// The final norm's output at every new token, `[tokens, hidden]`.
    Hidden,
}

/// Rows of numbers for one sequence. All sequences' of a pass may be in one memory, which goes back to the executor when the last of them is
/// dropped: logits are megabytes, which no one copies who only looks at them.
#[derive(Clone)]
pub struct Output {
    memory: Arc<dyn AsRef<[f32]> + Send + Sync>,
    /// Where its rows are.
    range: Range<usize>,
    width: usize,
}

impl Output {
    /// Rows of `width` elements, the vocabulary or the hidden size, at `range` of `memory`.
    ///
    /// # Panics
    /// If `memory` ends before `range` does.
    pub fn new(memory: Arc<dyn AsRef<[f32]> + Send + Sync>, range: Range<usize>, width: usize) -> Output {
        assert!(range.start <= range.end && range.end <= (*memory).as_ref().len(), "rows that are in memory");
        Output { memory, range, width }
    }

    /// Rows in memory of their own.
    pub fn of_one(values: Vec<f32>, width: usize) -> Output {
        let n = values.len();
        Output::new(Arc::new(values), 0..n, width)
    }

    /// Length of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row-major, `n_rows × width`.
    pub fn values(&self) -> &[f32] {
        &(*self.memory).as_ref()[self.range.clone()]
    }

    /// The rows, oldest token first.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values().chunks_exact(self.width.max(1))
    }
}

impl Default for Output {
    /// No rows.
    fn default() -> Output {
        Output::of_one(Vec::new(), 0)
    }
}

impl PartialEq for Output {
    fn eq(&self, other: &Output) -> bool {
        self.width == other.width && self.values() == other.values()
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("values", &self.values()).field("width", &self.width).finish()
    }
}

/// The state of one sequence on one model.
pub trait Cache: Send + Sync {
    /// Tokens it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Goes back to the first `n` tokens, or as far as it can: windows and recurrences forget what they no longer need, and then
    /// only the empty sequence is left to go back to. Returns the tokens it holds now.
    fn truncate(&mut self, n: usize) -> usize;

    /// A sequence of its own that holds the first `n` tokens, or as many as [`truncate`](Self::truncate) would leave: sequences with a common
    /// beginning compute it once.
    ///
    /// # Cost
    /// A copy of what it holds of these tokens.
    fn fork(&self, n: usize) -> Box<dyn Cache>;

    /// Everything it holds as bytes, for [`restore`](Self::restore) on the same model.
    fn snapshot(&self) -> Vec<u8>;

    /// Replaces what it holds by a snapshot.
    ///
    /// # Errors
    /// A text that says what does not fit; then nothing has changed.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String>;

    /// Memory it takes, in bytes.
    fn bytes(&self) -> usize;

    /// For the executor to get its own type back.
    fn as_any(&self) -> &dyn Any;

    /// For the executor to get its own type back.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Why a forward pass did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A sequence brought no tokens.
    #[error("expected at least one token, found none")]
    NoTokens,
    /// A token the vocabulary does not have.
    #[error("token id: expected less than {vocab_size}, found {token}")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// The sequence would outgrow the context.
    #[error("context: expected at most {context_length} tokens, found {asked}")]
    ContextFull {
        /// Room.
        context_length: usize,
        /// Tokens there would be.
        asked: usize,
    },
    /// Logits of a model that was loaded without its head.
    #[error("logits: expected a model loaded for text, found one loaded for embeddings")]
    NoHead,
    /// The cache belongs to another model or executor.
    #[error("the cache was made by another model")]
    ForeignCache,
    /// There is no memory for the sequence's state or the scratch.
    #[error("out of memory: {needed_bytes} bytes more are needed")]
    OutOfMemory {
        /// What could not be allocated.
        needed_bytes: u64,
    },
    /// The host cancelled.
    #[error("the forward pass was cancelled")]
    Cancelled,
}
