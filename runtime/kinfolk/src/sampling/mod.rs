//! From logits to a token: [`SampleOpts`] is what a request asks for, [`SamplerChain`] the stages it resolves to.
//!
//! | stage | option that switches it on | what it does | definition followed |
//! |---|---|---|---|
//! | constraint | [`SamplerChain::set_constraint`] | allows what a grammar allows | |
//! | [`LogitBias`] | `logit_bias` | adds to logits of chosen tokens, forbids some | llama.cpp |
//! | [`Penalties`](stages::Penalties) | `repetition_penalty`, `frequency_penalty`, `presence_penalty` | makes recent tokens less likely | llama.cpp |
//! | [`NoRepeatNgram`](stages::NoRepeatNgram) | `no_repeat_ngram_size` | forbids runs of tokens to occur twice | transformers |
//! | [`Dry`](stages::Dry) | `dry_multiplier` | makes what prolongs a repetition less likely | llama.cpp |
//! | [`Temperature`](stages::Temperature) | `temperature` | sharpens or flattens | both |
//! | [`DynamicTemperature`](stages::DynamicTemperature) | `dynamic_temp_range` | the same, by the entropy | llama.cpp |
//! | [`TopH`](stages::TopH) | `top_h` | cuts by entropy | transformers |
//! | [`TopK`](stages::TopK) | `top_k` | cuts by number | llama.cpp |
//! | [`TypicalP`](stages::TypicalP) | `typical_p` | keeps what is as surprising as expected | llama.cpp |
//! | [`TopP`](stages::TopP) | `top_p` | cuts by probability in all | llama.cpp |
//! | [`MinP`](stages::MinP) | `min_p` | cuts by probability beside the likeliest's | both |
//! | [`TopNSigma`](stages::TopNSigma) | `top_n_sigma` | cuts by standard deviations of the logits | llama.cpp |
//! | [`Epsilon`](stages::Epsilon) | `epsilon_cutoff` | cuts by probability | transformers |
//! | [`Eta`](stages::Eta) | `eta_cutoff` | the same, lower where the entropy is high | transformers |
//! | [`Xtc`](stages::Xtc) | `xtc_probability` | now and then drops the top choices | llama.cpp |
//! | [`Mirostat`](stages::Mirostat), [`MirostatV2`](stages::MirostatV2) | `mirostat` | holds the surprise at a target | llama.cpp |
//! | [`AdaptiveP`](stages::AdaptiveP) | `adaptive_target` | holds the probability of choices at a target | llama.cpp |
//!
//! They run in the order of this table, then one token is drawn. A request can give another order
//! ([`SampleOpts::order`]), except that the constraint and the bias come first. Where llama.cpp and transformers differ on a stage
//! that both have, the stage says how. Temperature 0 is the greedy choice: bias, penalties, n-grams and DRY run, then the
//! likeliest token is taken, the lowest id on a tie.
//!
//! Whatever the logits, what is chosen is a token of the vocabulary with a finite logit, or the answer is a [`SampleError`]; the
//! same seed and logits give the same tokens on every platform.

mod candidates;
mod chain;
mod constraint;
mod error;
#[cfg(feature = "grammar")]
mod grammar;
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
#[cfg(feature = "grammar")]
pub use grammar::{Grammar, GrammarCompiler, GrammarError, MAX_GRAMMAR_BYTES, MAX_GRAMMAR_DEPTH};
pub use log_probs::{TokenLogProbs, log_probabilities};
pub use options::SampleOpts;
pub use stage::{Stage, Step, StepRng};
pub use stage_kind::StageKind;
pub use stages::LogitBias;
