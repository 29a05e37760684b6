//! What can be wrong with a model's text files, or with text given to it.

use kinfolk_weights::{ConfigError, WeightsError};

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, TextError>;

/// Why text could not be read, encoded or rendered. Variants are named by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A section of `tokenizer.json` cannot be used.
    #[error("`tokenizer.json`: section `{section}`: {reason}")]
    TokenizerJson {
        /// The top-level key that failed.
        section: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// The vocabulary of a GGUF file is damaged or lying.
    #[error("vocabulary key `{key}`: {reason}")]
    Vocabulary {
        /// The metadata key.
        key: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A GGUF vocabulary of a kind without an implementation here.
    #[error("tokenizer kind: expected one of {known}, found `{found}`")]
    UnknownTokenizer {
        /// `tokenizer.ggml.model` of the file.
        found: String,
        /// The kinds there are.
        known: String,
    },
    /// A byte-level vocabulary that asks for a split rule nobody knows.
    #[error("pre-tokenizer: expected one of {known}, found `{found}`")]
    UnknownPreTokenizer {
        /// `tokenizer.ggml.pre` of the file.
        found: String,
        /// The names there are.
        known: String,
    },
    /// The model brings no tokenizer.
    #[error(
        "`{path}` has no tokenizer: expected `tokenizer.json` beside the model or a vocabulary inside the GGUF file"
    )]
    NoTokenizer {
        /// The model's path.
        path: String,
    },
    /// The tokenizer refused a text.
    #[error("the text cannot be encoded: {reason}")]
    Encode {
        /// What the tokenizer said.
        reason: String,
    },
    /// A chat is to be rendered and the model brings no template.
    #[error("`{path}` has no chat template")]
    NoTemplate {
        /// The model's path.
        path: String,
    },
    /// Tools are declared and the chat template has no place for them: the model would never hear of them.
    #[error("chat template `{name}` takes no tools: expected one that reads `tools`")]
    NoToolSupport {
        /// Which of the model's templates.
        name: String,
    },
    /// The chat template is not one, or uses something that is not known.
    #[error("chat template `{name}`: {reason}")]
    Template {
        /// Which of the model's templates.
        name: String,
        /// What the engine said, with the line.
        reason: String,
    },
    /// The template itself refused the conversation, in its own words.
    #[error("the chat template refuses this conversation: {message}")]
    TemplateRaised {
        /// What the template passed to `raise_exception`.
        message: String,
    },
    /// The conversation does not fit what rendering asks of it.
    #[error("the conversation cannot be rendered: {reason}")]
    Conversation {
        /// What was expected and what was found.
        reason: String,
    },
    /// Files of the model could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A metadata key has the wrong type.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl TextError {
    pub(crate) fn vocabulary(key: impl Into<String>, reason: impl Into<String>) -> TextError {
        TextError::Vocabulary { key: key.into(), reason: reason.into() }
    }

    pub(crate) fn json(section: impl Into<String>, reason: impl Into<String>) -> TextError {
        TextError::TokenizerJson { section: section.into(), reason: reason.into() }
    }
}
