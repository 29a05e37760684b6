//! Runtime for local language models in which a model family is a crate.
//!
//! A host holds a `Box<dyn` [`LmRunner`]`>`: [`auto_runner`] loads one with whichever linked family runs the checkpoint, and
//! [`LmRunnerBuilder`] does so step by step, up to a [`Session`](session::Session) that speaks text, a
//! [`Scheduler`](scheduler::Scheduler) that serves many requests, or an [`Embedder`](embedding::Embedder) that makes vectors. A family
//! enrols itself with [`#[family]`](macro@family) over a description in the language of [`decoder`], or with [`register_lm_runner!`]
//! over a runner of its own; a host links the families of its manifest with [`enroll!`]. [`Registry`] says which there are and why one
//! was chosen.

#[doc(hidden)]
pub mod __private;
pub mod admission;
mod builder;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod decoder_runner;
pub mod embedding;
mod family;
#[cfg(test)]
mod fixture;
mod hints;
mod host_driven;
mod load;
mod passes;
pub mod registry;
mod runner;
pub mod sampling;
pub mod scheduler;
pub mod scoring;
pub mod session;
pub mod speculation;
#[cfg(test)]
mod toy_model;
#[cfg(test)]
mod toy_runner;
pub mod verify;
#[cfg(test)]
mod watched_model;

pub use builder::{ConfigSource, LmRunnerBuilder, TextCallback};
pub use decoder_runner::DecoderRunner;
pub use family::{API_VERSION, AliasList, Conventions, Family};
pub use host_driven::HostDriven;
pub use kinfolk_decoder::{self as decoder, LoadRole};
pub use kinfolk_macros::{enroll, family, register_lm_runner};
pub use kinfolk_text as text;
pub use kinfolk_weights::{Dtype, OpenOptions, WeightFormat};
pub use load::{LoadChoiceError, LoadOptions, LoadRequest, ProgressCallback, executors};
pub use registry::{Registry, auto_runner, auto_runner_name};
pub use runner::{
    Capabilities, GenerateOptions, KvStoreStats, LmRunner, MultimodalPhase, MultimodalPhaseCallback, PromptPart,
    RunnerError, Unsupported,
};
