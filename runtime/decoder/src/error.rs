//! What can be wrong between a description and a checkpoint.

use std::{fmt, path::PathBuf};

use kinfolk_weights::{ConfigError, Dtype, WeightsError};

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, DecoderError>;

/// A checkpoint that does not fit its description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecoderError {
    /// The config lacks or garbles something.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tensors are packed in a layout that is not read yet.
    #[error("`{path}`: expected plain or GGUF tensors, found tensors packed by `{layout}`, which kinfolk does not read yet", path = path.display())]
    PackedLayout {
        /// The config that says so.
        path: PathBuf,
        /// What packed them, as the config names it.
        layout: String,
    },
    /// Tensors are missing or do not fit; all of them are listed.
    #[error("`{path}`: {}", list(problems), path = path.display())]
    Tensors {
        /// The checkpoint.
        path: PathBuf,
        /// In slot order, never empty.
        problems: Vec<BindProblem>,
    },
    /// Tensor bytes could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// One tensor that is missing or does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindProblem {
    /// No tensor under any of the names the slot can have.
    Missing {
        /// The slot.
        slot: String,
        /// The names looked for.
        names: Vec<String>,
    },
    /// The tensor has another shape.
    Shape {
        /// Name in the checkpoint.
        tensor: String,
        /// By the description.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// The tensor's type has no dequantiser.
    NotDecodable {
        /// Name in the checkpoint.
        tensor: String,
        /// Its type.
        dtype: Dtype,
    },
}

impl fmt::Display for BindProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindProblem::Missing { slot, names } => {
                write!(f, "tensor for `{slot}` is missing: expected `{}`, found none", names.join("` or `"))
            }
            BindProblem::Shape { tensor, expected, found } => {
                write!(f, "tensor `{tensor}`: expected shape {expected:?}, found {found:?}")
            }
            BindProblem::NotDecodable { tensor, dtype } => {
                write!(f, "tensor `{tensor}`: type {dtype} cannot be decoded, kinfolk has no dequantiser for it")
            }
        }
    }
}

/// The first problems in words; a wrong file breaks every layer alike, so the rest is a count.
fn list(problems: &[BindProblem]) -> String {
    const SHOWN: usize = 3;
    let mut text = problems.iter().take(SHOWN).map(BindProblem::to_string).collect::<Vec<_>>().join("; ");
    if problems.len() > SHOWN {
        text += &format!("; and {} more", problems.len() - SHOWN);
    }
    text
}
