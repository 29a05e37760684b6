//! Runtime for local language models in which a model family is a crate.

#[doc(hidden)]
pub mod __private;
mod family;
mod hints;
mod host_driven;
mod load;
pub mod registry;
mod runner;
pub mod sampling;

pub use family::{API_VERSION, AliasList, Conventions, Family};
pub use host_driven::HostDriven;
pub use kinfolk_macros::{enroll, family, register_lm_runner};
pub use load::{LoadOptions, LoadRequest};
pub use registry::{Registry, auto_runner, auto_runner_name};
pub use runner::{
    Capabilities, GenerateOptions, KvStoreStats, LmRunner, MultimodalPhase, MultimodalPhaseCallback, PromptPart, RunnerError,
    Unsupported,
};
