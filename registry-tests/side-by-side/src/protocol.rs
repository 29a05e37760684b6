//! What the process that compares and those that run engines say to each other: a line of JSON per message.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::memory::Resident;

#[derive(Debug, Deserialize, Serialize)]
pub enum Request {
    /// Loads the model. The first request.
    Load { model: PathBuf, settings: Settings },
    /// Runs a prompt of so many tokens in an empty context, up to the logits after the last of them.
    Prefill { n_tokens: usize },
    /// Brings so many sequences to a context of `depth` tokens.
    Start { depth: usize, n_sequences: usize },
    /// From there, decodes so many tokens in each sequence.
    Decode { n_tokens: usize },
    /// Runs a prompt of so many tokens in an empty context, `pass_tokens` at a time. The logits of every position come before the reply, as
    /// [`frames`](crate::frames).
    Logits { n_tokens: usize, pass_tokens: usize },
}

/// How to load.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Settings {
    pub threads: usize,
    /// Room for this many tokens in each sequence.
    pub context_length: usize,
    pub vocab_size: usize,
    /// With weights decoded to f32 and products in f32: what results are to be near to. kinfolk alone can.
    #[serde(default)]
    pub exact: bool,
}

/// What a request took.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Done {
    pub seconds: f64,
    /// The peak is that since the process began.
    pub resident: Resident,
    /// What the engine says about itself, once it is loaded.
    pub about: Option<String>,
}

pub type Reply = Result<Done, String>;

/// The token at a position of a sequence: the same arbitrary one for every engine.
pub fn token(sequence: usize, position: usize, vocab_size: usize) -> u32 {
    let seed = (sequence as u64) << 40 | position as u64;
    (crate::random::mix(seed) % vocab_size as u64) as u32
}
