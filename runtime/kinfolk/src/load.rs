//! From an open checkpoint to a runner.

use std::{fmt, sync::Arc};

use anyhow::Result;
use kinfolk_decoder::{
    Cancel, Decoder, EXECUTORS, Executor, LoadContext, LoadProgress, LoadRole, Refusal, Source, Workload,
};
use kinfolk_weights::OpenOptions;

use crate::{
    admission::{Candidate, TooLarge},
    decoder_runner::DecoderRunner,
    family::Family,
    runner::LmRunner,
};

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
    /// Refuse a model that would take more than this many GiB with a full context, as [`admission`](crate::admission) reckons it.
    /// `None`: no limit, also not what the machine has left.
    pub max_memory_gb: Option<f32>,
    /// Threads of the executor. `None`: all cores.
    pub threads: Option<usize>,
    /// Keep quantised weights packed (`Some(true)`) or decode them to f32 once (`Some(false)`). `None`: packed, as the executors
    /// here are as exact and as fast with packed weights.
    pub packed_weights: Option<bool>,
    /// Allow most activations to be rounded to 8 bits, and not to 16, in passes of 32 tokens and more with packed weights, where that is faster:
    /// on the CPU with AVX-512 VNNI and no matrix unit, where prompts are then 1.2 to 1.4 times as fast. Logits are a hundred times further from
    /// exact ones, still nearer than llama.cpp's, and a prompt's depend on how it is cut into passes.
    pub narrow_activations: bool,
    /// Measure where the model spends its time, for [`Model::profile`](kinfolk_decoder::Model::profile).
    pub profile: bool,
    /// Ends the load, and every later call of the runner, once cancelled.
    pub cancel: Cancel,
    /// Told how far the load is.
    pub progress: Option<ProgressCallback>,
}

impl LoadOptions {
    /// The most bytes a model may take.
    fn memory_limit(&self) -> Result<Option<u64>, LoadChoiceError> {
        match self.max_memory_gb {
            None => Ok(None),
            // A cast from a float saturates, so that an infinite limit is none.
            Some(gib) if gib >= 0.0 => Ok(Some((f64::from(gib) * (1u64 << 30) as f64) as u64)),
            Some(found) => Err(LoadChoiceError::MemoryLimit { found }),
        }
    }
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
            .field("narrow_activations", &self.narrow_activations)
            .field("profile", &self.profile)
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
    /// The limit is no amount of memory.
    #[error("max_memory_gb: expected a number of at least 0, found {found}")]
    MemoryLimit {
        /// What the host set.
        found: f32,
    },
    /// The model is larger than the host allows.
    #[error(transparent)]
    TooLarge(Box<TooLarge>),
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
    let executor = choose_executor(&decoder, &source, options.executor.as_deref(), options.device.as_deref())?;
    check_memory(&decoder, &source, executor, &options)?;
    let mut context = LoadContext::default();
    context.role = options.role;
    context.context_length = options.max_seq;
    context.threads = options.threads;
    context.packed_weights = options.packed_weights;
    context.narrow_activations = options.narrow_activations;
    context.profile = options.profile;
    context.cancel = options.cancel.clone();
    context.progress = options.progress.as_deref().map(|report| report as _);
    let model = executor.load(Arc::new(decoder), &source, &context)?;
    Ok(Box::new(DecoderRunner::new(family.name, model, source.fingerprint()?, options.cancel)))
}

/// The first executor that takes the model, or the one of this name.
pub(crate) fn choose_executor(
    decoder: &Decoder,
    source: &Source,
    executor: Option<&str>,
    device: Option<&str>,
) -> Result<&'static dyn Executor, LoadChoiceError> {
    let all = executors();
    let wanted: Vec<_> = match executor {
        None => all,
        Some(name) => {
            let known = all.iter().map(|e| e.name()).collect();
            match all.into_iter().find(|e| e.name() == name) {
                Some(executor) => vec![executor],
                None => return Err(LoadChoiceError::UnknownExecutor { asked: name.to_owned(), known }),
            }
        }
    };
    let mut refusals = Vec::new();
    let mut wrong_device = None;
    for executor in wanted {
        let known = executor.devices();
        if let Some(asked) = device.map(str::to_owned).filter(|device| !known.contains(device)) {
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

/// Holds the model against the host's limit, if there is one. What the machine has left is not asked: see
/// [`admission`](crate::admission).
fn check_memory(
    decoder: &Decoder,
    source: &Source,
    executor: &'static dyn Executor,
    options: &LoadOptions,
) -> Result<(), LoadChoiceError> {
    let Some(limit_bytes) = options.memory_limit()? else { return Ok(()) };
    let mut workload = Workload::of_context(options.max_seq.unwrap_or(decoder.context_length));
    workload.role = options.role;
    workload.threads = options.threads;
    workload.packed_weights = options.packed_weights;
    Candidate { decoder, source, executor, file_bytes: None }.check(&workload, limit_bytes)
}

#[cfg(test)]
mod tests;
