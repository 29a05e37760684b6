//! One model on disk (or in memory), whatever its format.

use std::path::Path;

use crate::{Config, GgufMetadata, Result, Tensor, TensorInfo, WeightFormat};

/// How to open a [`Source`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Which of several GGUF files in a directory: matched against the file name, case-insensitively. `None`: `Q4_K_M`.
    pub prefer_gguf: Option<String>,
    /// Insist on a format where a directory holds several. `None`: safetensors if a complete set is there, else GGUF.
    pub format: Option<WeightFormat>,
}

/// An open model: its config and its tensors. Cheap to keep; tensor bytes stay in the mapped file.
#[derive(Debug)]
pub struct Source {}

impl Source {
    /// Opens a GGUF file (any shard of a set), a safetensors file, or a directory that holds a model.
    ///
    /// # Errors
    /// Every way a path or file can be wrong; see [`WeightsError`](crate::WeightsError).
    pub fn open(path: impl AsRef<Path>) -> Result<Source> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// [`open`](Self::open) with choices.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Source> {
        let _ = (path.as_ref(), options);
        unreachable!("under construction")
    }

    /// A GGUF file that is part of the program, such as an embedded model. `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf_bytes(name: &str, bytes: &'static [u8]) -> Result<Source> {
        let _ = (name, bytes);
        unreachable!("under construction")
    }

    /// The path as the caller gave it (not resolved through links), or the name of an in-memory source.
    pub fn path(&self) -> &Path {
        unreachable!()
    }

    /// The format found.
    pub fn format(&self) -> WeightFormat {
        unreachable!()
    }

    /// `config.json` or the GGUF metadata.
    pub fn config(&self) -> &Config {
        unreachable!()
    }

    /// Replaces the config, for a host that brings its own.
    pub fn set_config(&mut self, config: Config) {
        let _ = config;
    }

    /// The key/value section, where the format is GGUF: vocabularies, templates and the like.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        unreachable!()
    }

    /// Every tensor, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        [].iter()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let _ = name;
        unreachable!()
    }

    /// What the file says of the tensor of this name.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        let _ = name;
        unreachable!()
    }

    /// A small text file that belongs to the model (`tokenizer.json`, `generation_config.json`, …), from the directory
    /// of the path as given. `None` if there is none, or the source is in memory.
    ///
    /// # Errors
    /// `Io`; `Malformed` if it is larger than a text file of its kind can be or not UTF-8.
    pub fn sidecar(&self, file_name: &str) -> Result<Option<String>> {
        let _ = file_name;
        unreachable!()
    }

    /// Bytes of all tensors in the files.
    pub fn tensor_bytes(&self) -> u64 {
        unreachable!()
    }
}
