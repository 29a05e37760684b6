//! From logits to a token: [`SampleOpts`] is what a request asks for, [`SamplerChain`] the stages it resolves to.
//!
//! A stage is one file. The order is fixed here: penalties, temperature, top-k, top-p, min-p, then a draw; temperature 0 is
//! the greedy choice and no stage but the penalties runs.

mod candidates;
mod chain;
mod min_p;
mod options;
mod repetition;
mod temperature;
mod top_k;
mod top_p;

#[cfg(test)]
mod tests;

pub use candidates::{Candidate, Candidates};
pub use chain::{SampleError, SamplerChain, Stage};
pub use options::SampleOpts;
