//! What can be wrong with a request for embeddings.

use kinfolk_weights::quoted;

/// What a caller of [`Embedder::embed`](super::Embedder::embed) can do wrong. Found with `downcast_ref` inside its `anyhow::Error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A text is longer than the model takes, and was not to be truncated.
    #[error("text {text}: expected at most {limit} tokens, found {found}")]
    TooLong {
        /// Which, counted from 0.
        text: usize,
        /// Most tokens, those around the text included.
        limit: usize,
        /// Tokens of the text with its prompt and the tokens around it.
        found: usize,
    },
    /// A text has no tokens to pool.
    #[error("text {text}: expected at least one token to pool, found none")]
    NoTokens {
        /// Which, counted from 0.
        text: usize,
    },
    /// The model's hidden states are no numbers to make a vector of.
    #[error("text {text}: expected hidden states that are numbers, found others")]
    NotANumber {
        /// Which, counted from 0.
        text: usize,
    },
    /// The checkpoint has no prompt of this name.
    #[error("prompt: expected one of [{}], found `{asked}`", list(known))]
    UnknownPrompt {
        /// The name asked for.
        asked: String,
        /// Those the checkpoint has.
        known: Vec<String>,
    },
    /// The vector does not have so many dimensions, or none were asked for.
    #[error("dimensions: expected 1 to {width}, found {asked}")]
    Dimensions {
        /// What was asked.
        asked: usize,
        /// What the model gives.
        width: usize,
    },
    /// The runner has no shared model and pools by itself, as it sees fit.
    #[error("family `{family}` pools by itself: expected no choice of pooling, found `{asked}`")]
    RunnerPools {
        /// The family.
        family: String,
        /// What was asked.
        asked: String,
    },
}

/// Names from a file, which may be many and long.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| quoted(name)).collect();
    if names.len() > SHOWN {
        shown.push(format!("and {} more", names.len() - SHOWN));
    }
    shown.join(", ")
}
