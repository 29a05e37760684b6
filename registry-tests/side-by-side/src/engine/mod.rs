//! The engines, behind one trait.

#[cfg(feature = "candle")]
mod candle;
mod kinfolk;
#[cfg(feature = "llama-cpp")]
mod llama_cpp;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use crate::protocol::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    Kinfolk,
    /// With narrow activations.
    KinfolkNarrow,
    #[value(name = "llama.cpp")]
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    Candle,
}

/// A loaded model with its state.
pub trait Engine {
    /// What built it and which instructions it uses.
    fn about(&self) -> String;

    /// Runs `tokens` in an empty context of their own and waits for the logits after the last one.
    fn prefill(&mut self, tokens: &[u32]) -> Result<()>;

    /// Makes `n_sequences` sequences that all hold `tokens`, of which there may be none.
    fn start(&mut self, tokens: &[u32], n_sequences: usize) -> Result<()>;

    /// Takes every sequence back to where [`start`](Self::start) left it.
    fn rewind(&mut self) -> Result<()>;

    /// Appends one token to each sequence and waits for the logits after it.
    fn step(&mut self, tokens: &[u32]) -> Result<()>;

    /// Runs `tokens` in an empty context of their own, `pass_tokens` at a time, and gives the logits after each to `found`.
    fn logits(&mut self, tokens: &[u32], pass_tokens: usize, found: &mut Found<'_>) -> Result<()>;
}

/// Takes the logits of one position after the other.
pub type Found<'f> = dyn FnMut(&[f32]) -> Result<()> + 'f;

impl EngineKind {
    /// Those this program was built with, each as it is by default.
    pub fn built_in() -> Vec<EngineKind> {
        let all = EngineKind::value_variants().iter().copied();
        all.filter(|kind| match kind {
            EngineKind::Kinfolk => true,
            EngineKind::KinfolkNarrow => false,
            EngineKind::LlamaCpp => cfg!(feature = "llama-cpp"),
            EngineKind::Candle => cfg!(feature = "candle"),
        })
        .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Kinfolk => "kinfolk",
            EngineKind::KinfolkNarrow => "kinfolk-narrow",
            EngineKind::LlamaCpp => "llama.cpp",
            EngineKind::Candle => "candle",
        }
    }

    pub fn load(self, model: &Path, settings: Settings) -> Result<Box<dyn Engine>> {
        ensure!(!settings.exact || self == EngineKind::Kinfolk, "{} has no exact products", self.name());
        Ok(match self {
            EngineKind::Kinfolk => Box::new(kinfolk::Kinfolk::load(model, settings, false)?),
            EngineKind::KinfolkNarrow => Box::new(kinfolk::Kinfolk::load(model, settings, true)?),
            #[cfg(feature = "llama-cpp")]
            EngineKind::LlamaCpp => Box::new(llama_cpp::LlamaCpp::load(model, settings)?),
            #[cfg(feature = "candle")]
            EngineKind::Candle => Box::new(candle::Candle::load(model)?),
            #[cfg(not(all(feature = "llama-cpp", feature = "candle")))]
            other => anyhow::bail!("this program was built without {}", other.name()),
        })
    }
}
