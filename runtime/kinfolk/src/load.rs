//! From an open checkpoint to a runner.

use std::{fmt, sync::Arc};

use anyhow::Result;
use kinfolk_decoder::{Cancel, Decoder, EXECUTORS, Executor, LoadContext, LoadProgress, LoadRole, Refusal, Source};
use kinfolk_weights::{OpenOptions, TensorInfo};

use crate::{decoder_runner::DecoderRunner, family::Family, runner::LmRunner};

/// Choices of a host about loading. `None` leaves a choice to the runtime.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// How to open the weights.
    pub open: OpenOptions,
    /// What the model is for. A runner written by hand may take no notice of it.
    pub role: LoadRole,
    /// Pin a family by name instead of asking the registry. `None`: the checkpoint's own architecture decides.
    pub family: Option<String>,
    /// Pin an executor by name. `None`: the first that supports the model.
    pub executor: Option<String>,
    /// Pin a device of the executor. `None`: its best.
    pub device: Option<String>,
    /// Room for this many tokens. `None`: the model's own context length.
    pub max_seq: Option<usize>,
    /// Refuse a model whose weights and full context would take more than this many GiB.
    pub max_memory_gb: Option<f32>,
    /// Threads of the executor. `None`: all cores.
    pub threads: Option<usize>,
    /// Keep quantised weights packed (`Some(true)`) or decode them to f32 once (`Some(false)`). `None`: packed, as the executors
    /// here are as exact and as fast with packed weights.
    pub packed_weights: Option<bool>,
    /// Ends the load, and every later call of the runner, once cancelled.
    pub cancel: Cancel,
    /// Told how far the load is.
    pub progress: Option<ProgressCallback>,
}

/// Told how far a load is. Called from the loading thread.
pub type ProgressCallback = Arc<dyn Fn(LoadProgress) + Send + Sync>;

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("open", &self.open)
            .field("role", &self.role)
            .field("family", &self.family)
            .field("executor", &self.executor)
            .field("device", &self.device)
            .field("max_seq", &self.max_seq)
            .field("max_memory_gb", &self.max_memory_gb)
            .field("threads", &self.threads)
            .field("packed_weights", &self.packed_weights)
            .finish_non_exhaustive()
    }
}

/// One load: the open source and the host's choices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadRequest {
    /// The open weights.
    pub source: Arc<Source>,
    /// The host's choices.
    pub options: LoadOptions,
}

impl LoadRequest {
    /// Puts the two together.
    pub fn new(source: Arc<Source>, options: LoadOptions) -> LoadRequest {
        LoadRequest { source, options }
    }
}

/// A choice of the host that cannot be met.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadChoiceError {
    /// No executor has this name.
    #[error("executor: expected one of [{}], found `{asked}`", known.join(", "))]
    UnknownExecutor {
        /// The name asked for.
        asked: String,
        /// Executors in this program.
        known: Vec<&'static str>,
    },
    /// The executor does not have this device here.
    #[error("device of executor `{executor}`: expected one of [{}], found `{asked}`", known.join(", "))]
    UnknownDevice {
        /// The executor.
        executor: &'static str,
        /// The name asked for.
        asked: String,
        /// Its devices on this machine.
        known: Vec<String>,
    },
    /// No executor takes the model.
    #[error("no executor can run this model: {}", refusals.iter().map(Refusal::to_string).collect::<Vec<_>>().join("; "))]
    NoExecutor {
        /// What each said.
        refusals: Vec<Refusal>,
    },
    /// The program links no executor.
    #[error("no executor is linked: enable feature `cpu` of kinfolk, or add an executor crate")]
    NoneLinked,
    /// The model is larger than the host allows.
    #[error(
        "memory: expected at most {} MiB, found {} MiB for weights and {} MiB for {context_length} tokens of context",
        mib(limit_bytes),
        mib(weight_bytes),
        mib(cache_bytes)
    )]
    MemoryLimit {
        /// What the host allows.
        limit_bytes: u64,
        /// Bytes of weights.
        weight_bytes: u64,
        /// Bytes of a full context.
        cache_bytes: u64,
        /// Tokens of that context.
        context_length: usize,
    },
}

fn mib(bytes: &u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Every executor in this program: those linked in, and those that features of this crate name (which a static library's linker
/// would otherwise leave out). Sorted by name, `cpu` last, since whatever else is there was added for speed.
pub fn executors() -> Vec<&'static dyn Executor> {
    let mut all: Vec<&'static dyn Executor> = EXECUTORS.iter().copied().collect();
    #[cfg(feature = "cpu")]
    all.push(&kinfolk_cpu::CPU);
    all.sort_by_key(|e| (e.name() == "cpu", e.name()));
    all.dedup_by_key(|e| e.name());
    all
}

/// Loads a family that is a description: describes, validates, picks an executor, loads.
///
/// # Errors
/// Whatever the description, the executor or the host's choices object to; see [`LoadChoiceError`],
/// [`LoadError`](kinfolk_decoder::LoadError).
pub fn load_described(family: &Family, request: LoadRequest) -> Result<Box<dyn LmRunner>> {
    let LoadRequest { source, options } = request;
    let describe = family.describe.ok_or_else(|| anyhow::anyhow!("family `{}` has no description", family.name))?;
    let decoder = describe(source.config())?;
    let executor = choose_executor(&decoder, &source, &options)?;
    check_memory(&decoder, &source, &options)?;
    let mut context = LoadContext::default();
    context.role = options.role;
    context.context_length = options.max_seq;
    context.threads = options.threads;
    context.packed_weights = options.packed_weights;
    context.cancel = options.cancel.clone();
    context.progress = options.progress.as_deref().map(|report| report as _);
    let model = executor.load(Arc::new(decoder), &source, &context)?;
    Ok(Box::new(DecoderRunner::new(family.name, model, options.cancel)))
}

fn choose_executor(
    decoder: &Decoder,
    source: &Source,
    options: &LoadOptions,
) -> Result<&'static dyn Executor, LoadChoiceError> {
    let all = executors();
    let wanted: Vec<_> = match &options.executor {
        None => all,
        Some(name) => {
            let known = all.iter().map(|e| e.name()).collect();
            match all.into_iter().find(|e| e.name() == name) {
                Some(executor) => vec![executor],
                None => return Err(LoadChoiceError::UnknownExecutor { asked: name.clone(), known }),
            }
        }
    };
    let mut refusals = Vec::new();
    let mut wrong_device = None;
    for executor in wanted {
        let known = executor.devices();
        if let Some(asked) = options.device.clone().filter(|device| !known.contains(device)) {
            wrong_device = Some(LoadChoiceError::UnknownDevice { executor: executor.name(), asked, known });
            continue;
        }
        match executor.supports(decoder, source) {
            Ok(()) => return Ok(executor),
            Err(refusal) => refusals.push(refusal),
        }
    }
    Err(match wrong_device {
        Some(error) => error,
        None if refusals.is_empty() => LoadChoiceError::NoneLinked,
        None => LoadChoiceError::NoExecutor { refusals },
    })
}

fn check_memory(decoder: &Decoder, source: &Source, options: &LoadOptions) -> Result<(), LoadChoiceError> {
    let Some(limit) = options.max_memory_gb else { return Ok(()) };
    let limit_bytes = (f64::from(limit) * (1u64 << 30) as f64) as u64;
    let context_length = options.max_seq.unwrap_or(decoder.context_length);
    let memory = MemoryNeed::for_role(options.role, decoder, source, context_length, options.packed_weights);
    if memory.weight_bytes.saturating_add(memory.cache_bytes) <= limit_bytes {
        return Ok(());
    }
    let MemoryNeed { weight_bytes, cache_bytes } = memory;
    Err(LoadChoiceError::MemoryLimit { limit_bytes, weight_bytes, cache_bytes, context_length })
}

/// Memory a model takes on the CPU executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Its weights.
    pub weight_bytes: u64,
    /// Keys and values of one full context.
    pub cache_bytes: u64,
}

impl MemoryNeed {
    /// Computes both from the description and the tensor table, without loading.
    pub fn of(decoder: &Decoder, source: &Source, context_length: usize, packed_weights: Option<bool>) -> MemoryNeed {
        MemoryNeed::for_role(LoadRole::Text, decoder, source, context_length, packed_weights)
    }

    /// [`of`](Self::of), less the weights that `role` leaves out.
    pub fn for_role(
        role: LoadRole,
        decoder: &Decoder,
        source: &Source,
        context_length: usize,
        packed_weights: Option<bool>,
    ) -> MemoryNeed {
        /// Keys and values are f32.
        const CACHE_ELEMENT_BYTES: u64 = 4;
        // Only quantised weights are decoded; others stay as they are.
        let in_memory = |tensor: &TensorInfo| match packed_weights {
            Some(false) if tensor.dtype.block_len() > 1 => tensor.n_elements() as u64 * 4,
            _ => tensor.n_bytes() as u64,
        };
        let weight_bytes = decoder.tensors(source, role).map(in_memory).sum();
        let cache_bytes = (decoder.cache_elements(context_length) as u64).saturating_mul(CACHE_ELEMENT_BYTES);
        MemoryNeed { weight_bytes, cache_bytes }
    }
}

#[cfg(test)]
mod tests;
