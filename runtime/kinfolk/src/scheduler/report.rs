//! What a scheduler says of itself.

use std::fmt;

use serde::Serialize;

/// The settings in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Settings {
    /// Family of the model.
    pub family: String,
    /// Executor that runs it. `None`: the runner is its own.
    pub executor: Option<String>,
    /// Threads it computes with, if it says.
    pub threads: Option<usize>,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Tokens a request can have, prompt and reply together: what the model was loaded for, or what fits the budget.
    pub context_length: usize,
    /// Whether requests run side by side.
    pub batching: bool,
    /// Requests that run at a time.
    pub max_sequences: usize,
    /// Requests that may wait.
    pub queue_len: usize,
    /// Prompt tokens per step while nobody decodes.
    pub step_tokens: usize,
    /// Prompt tokens per step beside replies.
    pub step_tokens_beside_decode: usize,
    /// Most bytes of keys and values. `None`: the runner keeps its own.
    pub kv_budget_bytes: Option<u64>,
    /// Bytes of keys and values of one full context. `None`: the runner keeps its own.
    pub kv_context_bytes: Option<u64>,
    /// Bytes of weights, if the executor says.
    pub weight_bytes: Option<u64>,
}

impl fmt::Display for Settings {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { family, context_length, max_sequences, queue_len, .. } = self;
        write!(f, "family {family} | executor {}", self.executor.as_deref().unwrap_or("own"))?;
        if let Some(threads) = self.threads {
            write!(f, " | {threads} threads")?;
        }
        write!(f, " | context {context_length} tokens | {max_sequences} at a time, {queue_len} waiting")?;
        if self.batching {
            write!(f, " | prompts by {} tokens, {} beside replies", self.step_tokens, self.step_tokens_beside_decode)?;
        }
        match self.kv_budget_bytes {
            Some(bytes) => write!(f, " | keys and values within {} MiB", bytes >> 20),
            None => Ok(()),
        }
    }
}

/// What is going on, and what has since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Whether the model is in memory.
    pub loaded: bool,
    /// Bytes of keys and values, those kept for later included.
    pub kv_bytes: u64,
    /// Beginnings kept for later requests.
    pub kept_prefixes: usize,
    /// Requests handed in.
    pub submitted: u64,
    /// Requests that have ended, whichever way.
    pub ended: u64,
    /// Steps of the model.
    pub steps: u64,
    /// Tokens computed, guesses included.
    pub computed_tokens: u64,
    /// Prompt tokens that were there already.
    pub reused_tokens: u64,
    /// Requests that gave way to older ones for want of memory.
    pub preemptions: u64,
    /// Kept beginnings that were dropped for want of memory.
    pub evictions: u64,
    /// Models loaded, the first one included.
    pub loads: u64,
}
