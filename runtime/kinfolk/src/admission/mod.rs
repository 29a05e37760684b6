//! Whether a model can run here, asked before it is loaded or even there: which family, which executor, whether its quantisation can be
//! decoded, and how much memory it takes against what the machine has.
//!
//! [`assess`] answers for an open [`Source`] and for a [`Listing`]: the `config.json` of a repository with the names and sizes of its
//! files. Both are reckoned by one rule. The description counts every weight; the executor that would run it says what it
//! allocates; from an open source the types are the tensors' own, from a listing they are the config's (`dtype`), the file name's (a
//! hint) or told by the files' sizes ([`Basis`] says which), and the weights are the larger of that and the files.
//!
//! Loading does not ask what the machine has: memory that other processes hold may be free by the time it is needed. A host that wants
//! a limit sets [`LoadOptions::max_memory_gb`](crate::LoadOptions::max_memory_gb), which is held against the same figures.
//!
//! # Example
//! ```no_run
//! use kinfolk::admission::{AdmissionOptions, Listing, assess};
//!
//! let listing = Listing::new("org/model", [("model.safetensors".to_owned(), 270_000_000)])?.with_config("{…}")?;
//! match assess(&listing, &AdmissionOptions::default()) {
//!     Ok(found) => println!("{} on {}, {} bytes", found.family, found.executor, found.memory.total_bytes),
//!     Err(refused) => println!("{refused}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod listed;
mod machine;
mod quantisation;
mod refusal;
mod remedies;
mod weigh;

use std::{fmt, sync::Arc};

use kinfolk_decoder::{Config, Decoder, LoadRole, Source, Workload};
use kinfolk_weights::OpenOptions;
use serde::Serialize;

pub use kinfolk_weights::Listing;
pub use machine::available_bytes;
pub use quantisation::{Basis, Quantisation, SchemeShare};
pub use refusal::{Refused, Remedies, TooLarge};
pub(crate) use weigh::Candidate;

use crate::{
    load::choose_executor,
    registry::{Decision, Registry, Trail},
};
use listed::Listed;

/// What the model would be used for and with. `None` leaves a choice to the runtime, as in [`LoadOptions`](crate::LoadOptions).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmissionOptions {
    /// Which of several models of a listing.
    pub open: OpenOptions,
    /// Tokens of each sequence. `None`: the model's own context length.
    pub context_length: Option<usize>,
    /// Sequences held at once; at least one is counted.
    pub n_sequences: usize,
    /// What the model is for.
    pub role: LoadRole,
    /// Pin a family by name.
    pub family: Option<String>,
    /// Pin an executor by name.
    pub executor: Option<String>,
    /// Pin a device of the executor.
    pub device: Option<String>,
    /// Threads of the executor.
    pub threads: Option<usize>,
    /// Keep quantised weights packed, or decode them once.
    pub packed_weights: Option<bool>,
    /// Memory there is. `None`: what this machine has left now.
    pub available_bytes: Option<u64>,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        AdmissionOptions {
            open: OpenOptions::default(),
            context_length: None,
            n_sequences: 1,
            role: LoadRole::default(),
            family: None,
            executor: None,
            device: None,
            threads: None,
            packed_weights: None,
            available_bytes: None,
        }
    }
}

/// What is to be assessed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Model<'a> {
    /// A checkpoint that is open.
    Open(&'a Source),
    /// One that is not there yet.
    Listed(&'a Listing),
}

impl<'a> From<&'a Source> for Model<'a> {
    fn from(source: &'a Source) -> Self {
        Model::Open(source)
    }
}

impl<'a> From<&'a Listing> for Model<'a> {
    fn from(listing: &'a Listing) -> Self {
        Model::Listed(listing)
    }
}

/// What is known of a model before it is loaded.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Assessment {
    /// The family that runs it.
    pub family: &'static str,
    /// How that family was chosen.
    pub trail: Trail,
    /// The executor it runs on.
    pub executor: &'static str,
    /// The family's description of it.
    #[serde(skip)]
    pub decoder: Arc<Decoder>,
    /// Files of weights, by name; empty if a config is all that is known.
    pub files: Vec<String>,
    /// Files of weights that an index names and that are not there.
    pub absent: Vec<String>,
    /// How its weights are stored.
    pub quantisation: Quantisation,
    /// Weights by number.
    pub n_parameters: u64,
    /// Tokens of each sequence.
    pub context_length: usize,
    /// Sequences held at once.
    pub n_sequences: usize,
    /// Memory it takes.
    pub memory: Memory,
    /// Memory there is; `None` if the system does not say.
    pub available_bytes: Option<u64>,
    /// Whether the one fits into the other.
    pub verdict: Verdict,
}

/// Whether a model fits into the memory there is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It does.
    Fits,
    /// It does not.
    TooLarge(Box<TooLarge>),
    /// The system does not say how much there is.
    Unknown,
}

/// Memory of a model in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Memory {
    /// Weights. Of a GGUF file that is only listed, what the file takes; an executor's layout may take up to 3 % more, as the type of each
    /// tensor is not known.
    pub weight_bytes: u64,
    /// State of all sequences at their longest.
    pub cache_bytes: u64,
    /// What a forward pass of [`Workload::CHUNK_TOKENS`] works in.
    pub scratch_bytes: u64,
    /// The program around it, and tokenizer and chat template by the size of the vocabulary: the one figure that is a rule of thumb.
    pub host_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [weights, cache, scratch, host] =
            [self.weight_bytes, self.cache_bytes, self.scratch_bytes, self.host_bytes].map(refusal::mib);
        write!(f, "{weights} MiB of weights, {scratch} to compute in, {host} of program and vocabulary and {cache}")
    }
}

/// Assesses a model with the linked families.
///
/// Reads no weight: of a source the table of its tensors, of a listing what it consists of.
///
/// # Errors
/// [`Refused`]: whatever is in the way of running it here.
pub fn assess<'a>(model: impl Into<Model<'a>>, options: &AdmissionOptions) -> Result<Assessment, Refused> {
    examine(Registry::linked(), model, options)?.admit()
}

/// [`assess`] with the families of `registry`, which leaves it to the caller what to make of a model that is too large: its
/// [`verdict`](Assessment::verdict) says so.
///
/// # Errors
/// [`Refused`], but never [`TooLarge`].
pub fn examine<'a>(
    registry: &Registry,
    model: impl Into<Model<'a>>,
    options: &AdmissionOptions,
) -> Result<Assessment, Refused> {
    match model.into() {
        Model::Open(source) => {
            let decision = match &options.family {
                Some(name) => registry.pin(name, source)?,
                None => registry.claim(source)?,
            };
            let decoder = describe(&decision, source.config())?;
            let files =
                source.files().iter().filter_map(|file| file.file_name()?.to_str().map(str::to_owned)).collect();
            weigh(decision, decoder, Weighed { source, files, absent: Vec::new(), listed: None }, options)
        }
        Model::Listed(listing) => {
            let chosen = listing.choose(&options.open)?;
            let config = listing.config().ok_or_else(|| Refused::NoConfig {
                path: listing.path().to_owned(),
                has_gguf: listing.files().any(|(name, _)| name.to_ascii_lowercase().ends_with(".gguf")),
            })?;
            let decision = match &options.family {
                Some(name) => registry.pin_config(name, config, listing.path())?,
                None => registry.claim_config(config, listing.path())?,
            };
            let decoder = describe(&decision, config)?;
            let listed = Listed::new(listing, &chosen, config, &decoder)?;
            let (files, absent) = (chosen.files, chosen.absent);
            weigh(
                decision,
                decoder,
                Weighed { source: &listed.source, files, absent, listed: Some((listing, &listed)) },
                options,
            )
        }
    }
}

fn describe(decision: &Decision, config: &Config) -> Result<Arc<Decoder>, Refused> {
    let family = &decision.family;
    let describe = family.describe.ok_or(Refused::NotDescribed { family: family.name })?;
    Ok(Arc::new(describe(config)?))
}

/// The table of a model, and what a listing says beside it.
struct Weighed<'a> {
    source: &'a Source,
    files: Vec<String>,
    absent: Vec<String>,
    listed: Option<(&'a Listing, &'a Listed)>,
}

fn weigh(
    decision: Decision,
    decoder: Arc<Decoder>,
    model: Weighed<'_>,
    options: &AdmissionOptions,
) -> Result<Assessment, Refused> {
    let Weighed { source, files, absent, listed } = model;
    let weights = decoder.bind_for(source, options.role)?;
    let executor = choose_executor(&decoder, source, options.executor.as_deref(), options.device.as_deref())?;
    let workload = workload(&decoder, options)?;
    let candidate =
        Candidate { decoder: &decoder, source, executor, file_bytes: listed.and_then(|(_, l)| l.file_bytes) };
    let memory = candidate.memory(&weights, &workload);
    let basis = listed.map_or(Basis::Tensors, |(_, listed)| listed.basis);
    let (n_parameters, quantisation) = quantisation::of(&weights, basis, candidate.file_bytes_of(options.role));
    let available_bytes = options.available_bytes.or_else(available_bytes);
    let alternatives = || listed.map_or_else(Vec::new, |(listing, _)| listed::alternatives(listing, &files, &decoder));
    let verdict = match available_bytes {
        None => Verdict::Unknown,
        Some(available) if memory.total_bytes <= available => Verdict::Fits,
        Some(available) => {
            Verdict::TooLarge(Box::new(candidate.too_large(memory, &workload, available, alternatives())))
        }
    };
    drop(weights);
    Ok(Assessment {
        family: decision.family.name,
        trail: decision.trail,
        executor: executor.name(),
        decoder,
        files,
        absent,
        quantisation,
        n_parameters,
        context_length: workload.context_length,
        n_sequences: workload.n_sequences,
        memory,
        available_bytes,
        verdict,
    })
}

fn workload(decoder: &Decoder, options: &AdmissionOptions) -> Result<Workload, Refused> {
    let max = decoder.context_length;
    let context_length = options.context_length.unwrap_or(max);
    if !(1..=max).contains(&context_length) {
        return Err(Refused::ContextLength { max, asked: context_length });
    }
    let mut workload = Workload::of_context(context_length);
    workload.n_sequences = options.n_sequences.max(1);
    workload.role = options.role;
    workload.threads = options.threads;
    workload.packed_weights = options.packed_weights;
    Ok(workload)
}

impl Assessment {
    /// Refuses what is too large.
    ///
    /// # Errors
    /// [`Refused::TooLarge`].
    pub fn admit(self) -> Result<Assessment, Refused> {
        match self.verdict {
            Verdict::TooLarge(too_large) => Err(Refused::TooLarge(too_large)),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests;
