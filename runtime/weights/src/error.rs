//! What can be wrong with weight files.

use std::path::PathBuf;

use crate::{ConfigError, Dtype};

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, WeightsError>;

/// A file that cannot be read as weights, and why. Variants are named by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The operating system refused: wrong path, no permission, disk error.
    #[error("cannot read `{path}`", path = path.display())]
    Io {
        /// File that was to be read.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The bytes are of no format this build reads.
    #[error("`{path}` is not a weight file: expected {expected}, found {found}", path = path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Formats this build reads.
        expected: String,
        /// What the first bytes look like.
        found: String,
    },
    /// The file is of a known format but damaged, truncated or lying.
    #[error("`{path}`: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found, with the key, tensor or byte offset.
        reason: String,
    },
    /// A directory that does not say which model it holds.
    #[error("`{path}`: {reason}", path = path.display())]
    Ambiguous {
        /// The directory.
        path: PathBuf,
        /// What it holds, sorted, and what to name instead.
        reason: String,
    },
    /// Files that belong to the model are not there.
    #[error("`{path}`: {reason}", path = path.display())]
    Missing {
        /// The file or directory that names them.
        path: PathBuf,
        /// The missing base names and a hint.
        reason: String,
    },
    /// The config is missing a key or has one of the wrong type.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A scheme that parses but has no dequantiser here.
    #[error("tensor type {dtype} cannot be decoded: kinfolk has no dequantiser for it")]
    NotDecodable {
        /// The scheme.
        dtype: Dtype,
    },
}
