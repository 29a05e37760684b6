//! Weight files as one [`Source`]: a config and a table of named tensors, whatever the format on disk.
//!
//! Files are hostile until shown otherwise: every declared length is checked against the bytes that are there before
//! anything is allocated, and an error names the file, the key or tensor, what was expected and what was found.

mod config;
mod directory;
mod dtype;
mod error;
mod file;
mod fingerprint;
mod format;
mod gguf;
mod listing;
pub mod quant;
mod quote;
mod safetensors;
mod sniff;
mod source;
mod tensor;

pub use config::{Config, ConfigError, ConfigKind};
pub use dtype::Dtype;
pub use error::{Result, WeightsError};
pub use fingerprint::Fingerprint;
pub use format::WeightFormat;
pub use gguf::GgufMetadata;
pub use listing::{ListedModel, Listing};
pub use quote::quoted;
pub use source::{OpenOptions, Source};
pub use tensor::{Tensor, TensorInfo};
