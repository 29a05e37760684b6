//! From logits to a token: [`SampleOpts`] is what a request asks for, [`SamplerChain`] the stages it resolves to.

mod candidates;
mod chain;
mod constraint;
mod error;
mod log_probs;
mod options;
mod selection;
mod softmax;
mod stage;
mod stage_kind;
pub mod stages;

#[cfg(test)]
mod tests;

pub use candidates::{Candidate, Candidates};
pub use chain::SamplerChain;
pub use constraint::{Constraint, ConstraintError, TokenMask};
pub use error::SampleError;
pub use log_probs::{TokenLogProbs, log_probabilities};
pub use options::SampleOpts;
pub use stage::{Stage, Step, StepRng};
pub use stage_kind::StageKind;
pub use stages::LogitBias;
