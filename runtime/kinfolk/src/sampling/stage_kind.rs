//! The stages that options can ask for, by name.

use std::{fmt, str::FromStr};

use super::SampleError;

/// A stage whose place in the chain a host can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StageKind {
    /// Repetition, frequency and presence penalties.
    Penalties,
    /// No repeated n-grams.
    NoRepeatNgram,
    /// DRY.
    Dry,
    /// Temperature, dynamic if it has a range.
    Temperature,
    /// Top-H.
    TopH,
    /// Top-k.
    TopK,
    /// Typical-p.
    TypicalP,
    /// Top-p.
    TopP,
    /// Min-p.
    MinP,
    /// Top-n-sigma.
    TopNSigma,
    /// Epsilon cutoff.
    Epsilon,
    /// Eta cutoff.
    Eta,
    /// XTC.
    Xtc,
    /// Mirostat, either version.
    Mirostat,
    /// Adaptive-p.
    AdaptiveP,
}

impl StageKind {
    /// Every stage, in the order they run if nobody says otherwise.
    ///
    /// Temperature comes before every truncation, as in transformers; in llama.cpp it comes last. Stages that only transformers
    /// has stand where it has them: n-grams after the penalties, top-H before top-k, epsilon and eta after the other cuts.
    pub const DEFAULT_ORDER: [StageKind; 15] = [
        StageKind::Penalties,
        StageKind::NoRepeatNgram,
        StageKind::Dry,
        StageKind::Temperature,
        StageKind::TopH,
        StageKind::TopK,
        StageKind::TypicalP,
        StageKind::TopP,
        StageKind::MinP,
        StageKind::TopNSigma,
        StageKind::Epsilon,
        StageKind::Eta,
        StageKind::Xtc,
        StageKind::Mirostat,
        StageKind::AdaptiveP,
    ];

    /// Its name: that of the option that switches it on, as far as one does.
    pub fn name(self) -> &'static str {
        match self {
            StageKind::Penalties => "penalties",
            StageKind::NoRepeatNgram => "no_repeat_ngram",
            StageKind::Dry => "dry",
            StageKind::Temperature => "temperature",
            StageKind::TopH => "top_h",
            StageKind::TopK => "top_k",
            StageKind::TypicalP => "typical_p",
            StageKind::TopP => "top_p",
            StageKind::MinP => "min_p",
            StageKind::TopNSigma => "top_n_sigma",
            StageKind::Epsilon => "epsilon",
            StageKind::Eta => "eta",
            StageKind::Xtc => "xtc",
            StageKind::Mirostat => "mirostat",
            StageKind::AdaptiveP => "adaptive_p",
        }
    }

    /// All names, in the default order.
    pub(super) fn names() -> String {
        StageKind::DEFAULT_ORDER.map(StageKind::name).join(", ")
    }

    /// Whether it can change which token is the likeliest. The others have nothing to do for a greedy choice.
    pub(super) fn moves_likeliest(self) -> bool {
        matches!(self, StageKind::Penalties | StageKind::NoRepeatNgram | StageKind::Dry)
    }
}

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StageKind {
    type Err = SampleError;

    /// Reads a name; `-` counts as `_`.
    fn from_str(text: &str) -> Result<StageKind, SampleError> {
        let name = text.replace('-', "_");
        let mut all = StageKind::DEFAULT_ORDER.into_iter();
        all.find(|kind| kind.name() == name).ok_or_else(|| SampleError::UnknownStage { found: text.to_owned() })
    }
}
