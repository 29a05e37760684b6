//! How much memory a model takes, asked before it is loaded.

use crate::LoadRole;

/// What a model is to be loaded for and used with, as far as memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// What the model is for.
    pub role: LoadRole,
    /// Tokens of each sequence, at its longest.
    pub context_length: usize,
    /// Sequences held at once.
    pub n_sequences: usize,
    /// Most tokens of one forward pass, all sequences together.
    pub chunk_tokens: usize,
    /// Threads to compute with. `None`: one per core.
    pub threads: Option<usize>,
    /// As [`LoadContext::packed_weights`](crate::LoadContext::packed_weights).
    pub packed_weights: Option<bool>,
}

impl Workload {
    /// Tokens per forward pass of a long prompt: enough to use each weight many times, few enough to keep the scratch small and a
    /// cancellation prompt.
    pub const CHUNK_TOKENS: usize = 512;

    /// One sequence of this many tokens, with every other choice left to the executor.
    pub fn of_context(context_length: usize) -> Workload {
        Workload {
            role: LoadRole::Text,
            context_length,
            n_sequences: 1,
            chunk_tokens: Self::CHUNK_TOKENS,
            threads: None,
            packed_weights: None,
        }
    }
}

/// Memory of one loaded model, by what takes it. Numbers too large to count are `u64::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryNeed {
    /// Its weights, in bytes.
    pub weight_bytes: u64,
    /// The state of every sequence at its longest, in bytes.
    pub cache_bytes: u64,
    /// What a forward pass works in, in bytes.
    pub scratch_bytes: u64,
}

impl MemoryNeed {
    /// The three together.
    pub fn new(weight_bytes: u64, cache_bytes: u64, scratch_bytes: u64) -> MemoryNeed {
        MemoryNeed { weight_bytes, cache_bytes, scratch_bytes }
    }

    /// All of it, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.weight_bytes.saturating_add(self.cache_bytes).saturating_add(self.scratch_bytes)
    }
}
