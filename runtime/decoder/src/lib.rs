//! How kinfolk describes a decoder-only transformer, and the traits of whoever runs the description.
//!
//! A family turns a [`Config`] into a [`Decoder`]: a plain value made of blocks ([`blocks`](crate::Layer)) whose weights are
//! asked for by slot. [`Names`] maps slots to checkpoint names and undoes what a format did to the weights, so that an
//! [`Executor`] sees one canonical layout. [`Decoder::bind`] checks all of it against a source before a weight is read.

mod bind;
mod blocks;
mod cancel;
mod config_blocks;
mod error;
mod executor;
mod memory;
mod names;
mod outline;
mod peaks;
mod rope;
mod slots;

pub use bind::{Matrix, Stored, Weights};
pub use blocks::{
    Activation, Attention, Decoder, Embedding, Ffn, GatedMlp, Head, Layer, Mask, Mixer, Moe, Norm, NormKind,
    QueryTemperature, SharedExpert, Wiring,
};
pub use cancel::Cancel;
pub use config_blocks::{has_experts, layer_types, sliding_layers, softcap};
pub use error::{BindProblem, DecoderError, Result};
pub use executor::{
    Cache, EXECUTORS, Executor, ForwardError, LoadContext, LoadError, LoadProgress, LoadRole, Model, OpTime, Output,
    Refusal, Sequence, Want,
};
pub use kinfolk_weights::{Config, ConfigError, ConfigKind, Source};
pub use memory::{MemoryNeed, Workload};
pub use names::{Names, QkRows};
pub use outline::stored_as;
pub use peaks::{PeakRate, Peaks};
pub use rope::{Frequencies, Pairing, Rope, RopeScaling};
pub use slots::{Slot, SlotShape};
