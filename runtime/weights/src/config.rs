//! The one reader of model configuration: `config.json` and GGUF metadata behind the same typed questions.
//!
//! Keys are asked for by their canonical Hugging Face name. Other spellings of `config.json`, nesting under `text_config` and its
//! like, and the names GGUF gives the same quantity are one table in this file.

use std::path::PathBuf;

use crate::GgufMetadata;

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

/// Which kind of file a config was read from. Some conventions of published checkpoints differ between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// Hugging Face `config.json`.
    Json,
    /// GGUF metadata.
    Gguf,
}

/// Typed access to a model's configuration.
#[derive(Clone, Debug)]
pub struct Config {}

type Result<T> = std::result::Result<T, ConfigError>;

impl Config {
    /// Reads `config.json` text. `path` is what messages name.
    ///
    /// # Errors
    /// `Mistyped` if the text is not a JSON object.
    pub fn from_json(path: impl Into<PathBuf>, text: &str) -> Result<Config> {
        let _ = (path.into(), text);
        unreachable!()
    }

    /// Wraps GGUF metadata. `path` is what messages name.
    pub fn from_gguf(path: impl Into<PathBuf>, metadata: GgufMetadata) -> Config {
        let _ = (path.into(), metadata);
        unreachable!()
    }

    /// Which kind of file this is.
    pub fn kind(&self) -> ConfigKind {
        unreachable!()
    }

    /// The file, for messages.
    pub fn path(&self) -> &std::path::Path {
        unreachable!()
    }

    /// Every name the checkpoint gives its architecture, most specific first: `model_type` (outer, then nested) and class names of
    /// `config.json`, `general.architecture` of GGUF. Empty strings are dropped.
    pub fn architectures(&self) -> Vec<String> {
        unreachable!()
    }

    /// Whether the key is there and not null.
    pub fn has(&self, key: &str) -> bool {
        let _ = key;
        unreachable!()
    }

    /// A required count. Integers of any width that fits are accepted.
    pub fn usize(&self, key: &str) -> Result<usize> {
        let _ = key;
        unreachable!()
    }

    /// A count that may be absent or null.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        let _ = key;
        unreachable!()
    }

    /// A required count for one layer of `n_layers`: a scalar, or one entry of a per-layer list (whose length is checked).
    pub fn layer_usize(&self, key: &str, layer: usize, n_layers: usize) -> Result<usize> {
        let _ = (key, layer, n_layers);
        unreachable!()
    }

    /// A required real number. Integers are accepted.
    pub fn f32(&self, key: &str) -> Result<f32> {
        let _ = key;
        unreachable!()
    }

    /// A real number that may be absent or null.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        let _ = key;
        unreachable!()
    }

    /// A switch that may be absent or null.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        let _ = key;
        unreachable!()
    }

    /// A text that may be absent or null.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        let _ = key;
        unreachable!()
    }

    /// A list of texts, such as `layer_types`.
    pub fn opt_strs(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let _ = key;
        unreachable!()
    }

    /// A list of counts (a scalar is a list of one), such as `eos_token_id` or `mlp_only_layers`.
    pub fn opt_usizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        let _ = key;
        unreachable!()
    }

    /// A list of real numbers, such as the factors of a rope scaling.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let _ = key;
        unreachable!()
    }

    /// The nested object under `key` as a config of its own, whose messages spell `key.inner`. `None` if absent or null; GGUF has no
    /// nesting and answers `None`.
    pub fn section(&self, key: &str) -> Result<Option<Config>> {
        let _ = key;
        unreachable!()
    }

    /// An [`Unsupported`](ConfigError::Unsupported) error about `key`, for the one who reads the config.
    pub fn unsupported(&self, key: &str, reason: impl Into<String>) -> ConfigError {
        let _ = (key, reason.into());
        unreachable!()
    }
}
