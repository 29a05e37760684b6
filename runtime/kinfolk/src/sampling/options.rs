//! What a request asks of the sampler.

use super::{SampleError, SamplerChain, StageKind, stages::LogitBias};

/// Sampling settings of one request. Flat, with the names the field uses; a value that switches a stage off is stated per field.
///
/// What each stage computes, and whose definition it follows, is documented with it in [`stages`](super::stages).
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOpts {
    /// Divides the logits. 0 chooses the likeliest token (the lowest id on a tie) and draws nothing.
    pub temperature: f32,
    /// How far the temperature moves to either side as the entropy of the candidates does. 0: off.
    pub dynamic_temp_range: f32,
    /// Above 1 keeps a dynamic temperature low for longer, below 1 lets it rise sooner.
    pub dynamic_temp_exponent: f32,
    /// Keeps the k likeliest tokens; of those that tie at the cut, the lowest ids. 0: off.
    pub top_k: usize,
    /// Keeps the likeliest tokens until their probabilities sum to this. 1: off.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the likeliest. 0: off.
    pub min_p: f32,
    /// Keeps the tokens of the most ordinary surprise until their probabilities sum to more than this. 1: off.
    pub typical_p: f32,
    /// Keeps tokens whose logit is at most this many standard deviations below the largest. 0 and below: off.
    pub top_n_sigma: f32,
    /// Keeps the likeliest tokens up to this share of the entropy. 0: off.
    pub top_h: f32,
    /// Keeps tokens of at least this probability. 0: off.
    pub epsilon_cutoff: f32,
    /// Keeps tokens of at least this probability, or less where the entropy is high. 0: off.
    pub eta_cutoff: f32,
    /// How often the top choices but the least likely of them are dropped. 0: off.
    pub xtc_probability: f32,
    /// The probability that makes a top choice. Above 0.5: off.
    pub xtc_threshold: f32,
    /// Version of mirostat, 1 or 2. 0: off.
    pub mirostat: u8,
    /// Surprise that mirostat aims at, in bits.
    pub mirostat_tau: f32,
    /// How fast mirostat corrects.
    pub mirostat_eta: f32,
    /// Probability of the chosen tokens that adaptive-p aims at. Below 0: off.
    pub adaptive_target: f32,
    /// How much of its average adaptive-p keeps with each token, up to 0.99.
    pub adaptive_decay: f32,
    /// Divides positive logits of recent tokens by this and multiplies others. 1: off.
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit for each time it is among the recent ones. 0: off.
    pub frequency_penalty: f32,
    /// Subtracted from a token's logit if it is among the recent ones. 0: off.
    pub presence_penalty: f32,
    /// How many of the latest tokens, prompt included, the three penalties look at. 0: none; `usize::MAX`: all.
    pub repetition_window: usize,
    /// Forbids runs of this many tokens to occur twice, prompt included. 0: off.
    pub no_repeat_ngram_size: usize,
    /// Penalty of a token that prolongs a repetition of `dry_allowed_length` tokens. 0: off.
    pub dry_multiplier: f32,
    /// Growth of that penalty with each token more. Below 1: off.
    pub dry_base: f32,
    /// How many tokens may repeat unpunished.
    pub dry_allowed_length: usize,
    /// How many of the latest tokens, prompt included, DRY looks at. 0: none; `usize::MAX`: all.
    pub dry_window: usize,
    /// Texts that repetitions do not reach over. Needs [`SamplerChain::with_tokenizer`] if DRY is on.
    pub dry_sequence_breakers: Vec<String>,
    /// Added to the logits of chosen tokens, before everything else.
    pub logit_bias: LogitBias,
    /// Tokens every truncating stage keeps at least.
    pub min_keep: usize,
    /// The stages in the order to run, those left out not at all. `None`: [`StageKind::DEFAULT_ORDER`]. A stage that runs still
    /// does nothing unless its own settings switch it on, and a logit bias comes before all of them.
    pub order: Option<Vec<StageKind>>,
    /// Seed of this request's own generator. `None`: a different one each time.
    pub seed: Option<u64>,
}

impl Default for SampleOpts {
    /// Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05 and nothing else: the defaults people know from llama.cpp. What is off
    /// has its usual settings for when it is switched on.
    fn default() -> Self {
        Self {
            temperature: 0.8,
            dynamic_temp_range: 0.0,
            dynamic_temp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            top_h: 0.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repetition_window: 64,
            no_repeat_ngram_size: 0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_window: usize::MAX,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            logit_bias: LogitBias::default(),
            min_keep: 1,
            order: None,
            seed: None,
        }
    }
}

impl SampleOpts {
    /// The likeliest token at every step.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751): `temperature` and `top_p`, every other stage off.
    pub fn nucleus(temperature: f32, top_p: f32) -> Self {
        Self { temperature, top_p, top_k: 0, min_p: 0.0, ..Self::default() }
    }

    /// Whether the likeliest token is chosen without a draw. Of the stages, only those run that can change which one that is:
    /// logit bias, penalties, n-grams and DRY.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether only the stages are on that every runtime has had from the start: temperature, top-k, top-p and the repetition
    /// penalty, in the default order. An executor that samples by itself can take such a request whole.
    pub fn is_classic(&self) -> bool {
        let classic = SampleOpts {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            repetition_window: self.repetition_window,
            seed: self.seed,
            ..Self::nucleus(1.0, 1.0)
        };
        let running = |options: &SampleOpts| options.running().collect::<Vec<_>>();
        self.min_keep <= 1
            && self.logit_bias.is_empty()
            && running(self) == running(&classic)
            && (self.frequency_penalty, self.presence_penalty, self.dynamic_temp_range) == (0.0, 0.0, 0.0)
    }

    /// Resolves the options: [`SamplerChain::new`].
    ///
    /// # Errors
    /// As [`SamplerChain::new`].
    pub fn into_chain(self) -> Result<SamplerChain, SampleError> {
        SamplerChain::new(&self)
    }

    /// The stages that do something, in the order to run.
    pub(super) fn running(&self) -> impl Iterator<Item = StageKind> {
        let order = self.order.as_deref().unwrap_or(&StageKind::DEFAULT_ORDER);
        order.iter().copied().filter(|kind| self.is_on(*kind) && (!self.is_greedy() || kind.moves_likeliest()))
    }

    fn is_on(&self, kind: StageKind) -> bool {
        match kind {
            StageKind::Penalties => {
                let off = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) == (1.0, 0.0, 0.0);
                self.repetition_window > 0 && !off
            }
            StageKind::NoRepeatNgram => self.no_repeat_ngram_size > 0,
            StageKind::Dry => self.dry_multiplier > 0.0 && self.dry_base >= 1.0 && self.dry_window > 0,
            StageKind::Temperature => self.temperature != 1.0 || self.dynamic_temp_range > 0.0,
            StageKind::TopH => self.top_h > 0.0,
            StageKind::TopK => self.top_k > 0,
            StageKind::TypicalP => self.typical_p < 1.0,
            StageKind::TopP => self.top_p < 1.0,
            StageKind::MinP => self.min_p > 0.0,
            StageKind::TopNSigma => self.top_n_sigma > 0.0,
            StageKind::Epsilon => self.epsilon_cutoff > 0.0,
            StageKind::Eta => self.eta_cutoff > 0.0,
            StageKind::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            StageKind::Mirostat => self.mirostat > 0,
            StageKind::AdaptiveP => self.adaptive_target >= 0.0,
        }
    }

    /// Checks every field's range.
    ///
    /// # Errors
    /// `OutOfRange` naming the first field that no sampler can honour; `Conflict` for two controllers of one thing;
    /// `RepeatedStage` for an order that names a stage twice.
    pub fn validate(&self) -> Result<(), SampleError> {
        let check = |field, value: f32, ok: bool, expected| match ok {
            true => Ok(()),
            false => Err(SampleError::OutOfRange { field, expected, found: value.to_string() }),
        };
        let fraction = |field, x: f32| check(field, x, (0.0..=1.0).contains(&x), "a number from 0 to 1");
        let not_negative = |field, x: f32| check(field, x, x.is_finite() && x >= 0.0, "a number ≥ 0");
        let positive = |field, x: f32| check(field, x, x.is_finite() && x > 0.0, "a number > 0");
        let number = |field, x: f32| check(field, x, x.is_finite(), "a number");
        not_negative("temperature", self.temperature)?;
        not_negative("dynamic_temp_range", self.dynamic_temp_range)?;
        positive("dynamic_temp_exponent", self.dynamic_temp_exponent)?;
        fraction("top_p", self.top_p)?;
        fraction("min_p", self.min_p)?;
        fraction("typical_p", self.typical_p)?;
        number("top_n_sigma", self.top_n_sigma)?;
        fraction("top_h", self.top_h)?;
        fraction("epsilon_cutoff", self.epsilon_cutoff)?;
        fraction("eta_cutoff", self.eta_cutoff)?;
        fraction("xtc_probability", self.xtc_probability)?;
        fraction("xtc_threshold", self.xtc_threshold)?;
        check("mirostat", self.mirostat.into(), self.mirostat <= 2, "0, 1 or 2")?;
        positive("mirostat_tau", self.mirostat_tau)?;
        not_negative("mirostat_eta", self.mirostat_eta)?;
        check("adaptive_target", self.adaptive_target, self.adaptive_target <= 1.0, "a number ≤ 1")?;
        let decay = self.adaptive_decay;
        check("adaptive_decay", decay, (0.0..=0.99).contains(&decay), "a number from 0 to 0.99")?;
        positive("repetition_penalty", self.repetition_penalty)?;
        number("frequency_penalty", self.frequency_penalty)?;
        number("presence_penalty", self.presence_penalty)?;
        not_negative("dry_multiplier", self.dry_multiplier)?;
        not_negative("dry_base", self.dry_base)?;
        if self.is_on(StageKind::Mirostat) && self.is_on(StageKind::AdaptiveP) {
            return Err(SampleError::Conflict { field: "adaptive_target", other: "mirostat" });
        }
        let order = self.order.as_deref().unwrap_or_default();
        match order.iter().enumerate().find(|(i, kind)| order[..*i].contains(kind)) {
            Some((_, &stage)) => Err(SampleError::RepeatedStage { stage }),
            None => Ok(()),
        }
    }
}
