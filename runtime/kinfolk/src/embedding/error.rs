//! What can be wrong with a request for embeddings.

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
    /// The checkpoint has no prompt of this name.
    #[error("prompt: expected one of [{}], found `{asked}`", known.join(", "))]
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
