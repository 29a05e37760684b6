//! What can be wrong with a config.

use std::path::PathBuf;

/// A key that is missing or holds the wrong thing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The key is required and absent.
    #[error("`{path}`: config key `{key}` is missing", path = path.display())]
    Missing {
        /// The file asked.
        path: PathBuf,
        /// The key, as that file would spell it.
        key: String,
    },
    /// The key is there with a value of another type or out of range.
    #[error("`{path}`: config key `{key}`: expected {expected}, found {found}", path = path.display())]
    Mistyped {
        /// The file asked.
        path: PathBuf,
        /// The key, as that file spells it.
        key: String,
        /// Type and range wanted.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// The file is no JSON object at all.
    #[error("`{path}`: expected a JSON object, found {found}", path = path.display())]
    NotAnObject {
        /// The file asked.
        path: PathBuf,
        /// What is there, shortened.
        found: String,
    },
    /// The values are typed right but do not make sense together or are not supported.
    #[error("`{path}`: config key `{key}`: {reason}", path = path.display())]
    Unsupported {
        /// The file asked.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
}
