//! Why no token could be chosen.

use super::{ConstraintError, StageKind};

/// Why sampling options cannot be honoured or no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A setting no sampler can honour.
    #[error("sampling option `{field}`: expected {expected}, found {found}")]
    OutOfRange {
        /// Name of the field of [`SampleOpts`](super::SampleOpts).
        field: &'static str,
        /// The range.
        expected: &'static str,
        /// The value.
        found: String,
    },
    /// Two settings that exclude each other.
    #[error("sampling option `{field}`: expected it off beside `{other}`")]
    Conflict {
        /// Name of one field.
        field: &'static str,
        /// Name of the other.
        other: &'static str,
    },
    /// A logit bias that cannot be read.
    #[error("logit bias of `{key}`: expected {expected}, found {found}")]
    Bias {
        /// The token id as it was given.
        key: String,
        /// What is allowed.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// A token id that the model does not have.
    #[error("{what}: expected a token below {vocab_size}, found {found}")]
    OutsideVocabulary {
        /// Where the id is from.
        what: &'static str,
        /// The id.
        found: u32,
        /// How many tokens there are.
        vocab_size: usize,
    },
    /// A name that is no stage's.
    #[error("expected a sampling stage ({known}), found `{found}`", known = StageKind::names())]
    UnknownStage {
        /// The name.
        found: String,
    },
    /// An order that names a stage twice.
    #[error("expected every sampling stage once, found `{stage}` twice")]
    RepeatedStage {
        /// The stage.
        stage: StageKind,
    },
    /// Sequence breakers are texts, and only a tokenizer tells which tokens those are.
    #[error("sampling option `dry_sequence_breakers`: expected a chain made with a tokenizer")]
    NeedsTokenizer,
    /// The model produced no finite logit, so any choice would be made up.
    #[error("expected at least one finite logit, found {nan} NaN and {infinite} infinite of {vocab_size}")]
    NoFiniteLogit {
        /// How many were NaN.
        nan: usize,
        /// How many were infinite.
        infinite: usize,
        /// How many there were.
        vocab_size: usize,
    },
    /// Everything the model could say is forbidden, by the constraint or a stage.
    #[error("expected a token to choose from, found none left by {by}")]
    NothingLeft {
        /// What forbade the last of them.
        by: String,
    },
    /// The constraint cannot go on.
    #[error("the constraint of the reply failed")]
    Constraint {
        /// Why.
        #[from]
        source: ConstraintError,
    },
}
