//! What can be wrong with texts to score.

/// What a caller of this module can do wrong. Found with `downcast_ref` inside its `anyhow::Error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// There is nothing to predict the first token from.
    #[error("pair {pair}: expected at least one token of context, found none")]
    EmptyContext {
        /// Which, counted from 0.
        pair: usize,
    },
    /// There is nothing to score.
    #[error("pair {pair}: expected at least one token of continuation, found none")]
    EmptyContinuation {
        /// Which, counted from 0.
        pair: usize,
    },
    /// Context and continuation together are longer than the model's context and the token after it.
    #[error("pair {pair}: expected at most {limit} tokens, found {found}")]
    TooLong {
        /// Which, counted from 0.
        pair: usize,
        /// Most tokens.
        limit: usize,
        /// Tokens of the pair.
        found: usize,
    },
    /// The token does not exist in this model.
    #[error("pair {pair}: expected tokens below the vocabulary size {vocab_size}, found {token}")]
    TokenOutOfRange {
        /// Which, counted from 0.
        pair: usize,
        /// The token.
        token: u32,
        /// The model's vocabulary.
        vocab_size: usize,
    },
    /// The model's logits are no numbers to make probabilities of.
    #[error("pair {pair}: expected logits that are numbers, one per token of the vocabulary, found others")]
    NotANumber {
        /// Which, counted from 0.
        pair: usize,
    },
    /// The window does not fit the model, or leaves no room for the text.
    #[error("window: expected {min} to {max} tokens, found {asked}")]
    Window {
        /// Room for the tokens in front, a token of context and one to score.
        min: usize,
        /// The model's context.
        max: usize,
        /// What was asked.
        asked: usize,
    },
    /// The stride would leave tokens out, or never arrive.
    #[error("stride: expected 1 to {max} tokens, found {asked}")]
    Stride {
        /// The furthest at which windows still touch.
        max: usize,
        /// What was asked.
        asked: usize,
    },
    /// A text of no token that could be predicted.
    #[error("text: expected at least {expected} tokens, found {found}")]
    TooShort {
        /// Tokens it takes.
        expected: usize,
        /// Tokens there are.
        found: usize,
    },
}
