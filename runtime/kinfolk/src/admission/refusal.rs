//! Why a model is not admitted, and what would change that.

use std::{fmt, path::PathBuf};

use kinfolk_decoder::{BindProblem, DecoderError};
use kinfolk_weights::{ConfigError, WeightsError, quoted};
use serde::Serialize;

use super::Memory;
use crate::{load::LoadChoiceError, registry::ClaimError};

/// Why a model is not admitted. Variants are named by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No linked family runs it; the message ends in the line that adds one, where one is known.
    #[error(transparent)]
    Family(#[from] ClaimError),
    /// The family runs models by its own means and describes none.
    #[error(
        "family `{family}`: expected a description to reckon by, found a runner of its own, which is known by loading it"
    )]
    NotDescribed {
        /// The family.
        family: &'static str,
    },
    /// The listing does not say which files are the model, or which model it is.
    #[error(transparent)]
    Files(#[from] WeightsError),
    /// The listing comes without `config.json`, which says what the model is.
    #[error("`{path}`: expected `config.json` in the listing, found none{}", if *has_gguf { " (a GGUF file says itself what it is, once it is there)" } else { "" }, path = path.display())]
    NoConfig {
        /// What the listing is of.
        path: PathBuf,
        /// Whether there are GGUF files.
        has_gguf: bool,
    },
    /// The config lacks or garbles something, or tensors are missing.
    #[error(transparent)]
    Description(DecoderError),
    /// The weights are packed or stored in a way that cannot be decoded: another conversion of the model is needed.
    #[error("`{path}`: expected weights that can be decoded, found {}, which kinfolk does not read yet", quoted(scheme), path = path.display())]
    Quantisation {
        /// What says so.
        path: PathBuf,
        /// The layout or type, such as `awq` or `F8_E4M3`.
        scheme: String,
    },
    /// The executor or device asked for is not there, or none has all the model needs.
    #[error(transparent)]
    Executor(#[from] LoadChoiceError),
    /// The model was not made for contexts this long.
    #[error("context length: expected 1 to {max} tokens, found {asked}")]
    ContextLength {
        /// Longest the model supports.
        max: usize,
        /// What was asked.
        asked: usize,
    },
    /// It does not fit into memory.
    #[error(transparent)]
    TooLarge(Box<TooLarge>),
}

impl From<DecoderError> for Refused {
    /// Tells what another conversion of the model would mend from what it would not.
    fn from(error: DecoderError) -> Refused {
        match error {
            DecoderError::PackedLayout { path, layout } => Refused::Quantisation { path, scheme: layout },
            DecoderError::Tensors { path, problems } => {
                let undecodable = problems.iter().find_map(|problem| match problem {
                    BindProblem::NotDecodable { dtype, .. } => Some(*dtype),
                    _ => None,
                });
                let only = problems.iter().all(|problem| matches!(problem, BindProblem::NotDecodable { .. }));
                match undecodable.filter(|_| only) {
                    Some(dtype) => Refused::Quantisation { path, scheme: dtype.to_string() },
                    None => Refused::Description(DecoderError::Tensors { path, problems }),
                }
            }
            other => Refused::Description(other),
        }
    }
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Refused {
        Refused::Description(error.into())
    }
}

/// A model that does not fit into the memory there is.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error(
    "memory: expected at most {} MiB, found {} MiB: {memory} for {}{context_length} tokens of context; {remedies}",
    mib(*available_bytes),
    mib(memory.total_bytes),
    if *n_sequences > 1 { format!("{n_sequences} × ") } else { String::new() }
)]
#[non_exhaustive]
pub struct TooLarge {
    /// What it takes.
    pub memory: Memory,
    /// Tokens of each sequence that were asked for.
    pub context_length: usize,
    /// Sequences that were asked for.
    pub n_sequences: usize,
    /// What there is.
    pub available_bytes: u64,
    /// What would make it fit.
    pub remedies: Remedies,
}

/// Each of these alone makes the model fit, by the same reckoning that refuses it; what is absent does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Remedies {
    /// The longest context that fits.
    pub context_length: Option<usize>,
    /// The most sequences that fit, where more than one was asked for.
    pub n_sequences: Option<usize>,
    /// Keeping quantised weights packed.
    pub packed_weights: bool,
    /// GGUF models of the same listing, by file name.
    pub files: Vec<String>,
    /// A quantisation of no more bits per weight than this.
    pub bits_per_weight: Option<f64>,
    /// Loading for embeddings alone, without the head.
    pub embedding: bool,
    /// A machine with this much memory free.
    pub needed_bytes: u64,
}

impl fmt::Display for Remedies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_FILES: usize = 4;
        let mut ways = Vec::new();
        if let Some(tokens) = self.context_length {
            ways.push(format!("with a context of {tokens} tokens"));
        }
        match self.n_sequences {
            None => {}
            Some(1) => ways.push("with one sequence".to_owned()),
            Some(n) => ways.push(format!("with {n} sequences")),
        }
        if self.packed_weights {
            ways.push("with weights kept packed".to_owned());
        }
        ways.extend(self.files.iter().take(MAX_FILES).map(|file| format!("as {}", quoted(file))));
        if let Some(bits) = self.bits_per_weight {
            ways.push(format!("quantised to {bits:.1} bits per weight"));
        }
        if self.embedding {
            ways.push("loaded for embeddings alone".to_owned());
        }
        // Rounded up, so that the machine it names is large enough.
        let gib = self.needed_bytes.div_ceil(GIB / 10) as f64 / 10.0;
        ways.push(format!("on a machine with {gib:.1} GiB free"));
        write!(f, "it fits {}", ways.join(", or "))
    }
}

const GIB: u64 = 1 << 30;

pub(super) fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
