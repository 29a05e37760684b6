//! The stages a [`SamplerChain`](super::SamplerChain) is made of, one file each.
//!
//! [`SampleOpts`](super::SampleOpts) makes them from flat settings. A host that builds its own chain, or a test, makes them
//! here; each says which implementation it follows.

mod adaptive_p;
mod dry;
mod dynamic_temperature;
mod epsilon;
mod eta;
mod logit_bias;
mod min_p;
mod mirostat;
mod mirostat_v2;
mod no_repeat_ngram;
mod penalties;
mod temperature;
mod top_h;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical_p;
mod xtc;

pub use adaptive_p::AdaptiveP;
pub use dry::{Dry, SequenceBreakers};
pub use dynamic_temperature::DynamicTemperature;
pub use epsilon::Epsilon;
pub use eta::Eta;
pub use logit_bias::LogitBias;
pub use min_p::MinP;
pub use mirostat::Mirostat;
pub use mirostat_v2::MirostatV2;
pub use no_repeat_ngram::NoRepeatNgram;
pub use penalties::Penalties;
pub use temperature::Temperature;
pub use top_h::TopH;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use typical_p::TypicalP;
pub use xtc::Xtc;
