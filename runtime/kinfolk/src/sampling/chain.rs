//! The stages of one request, resolved once and run at every step.

use std::fmt;

use kinfolk_text::Tokenizer;

use super::{
    Candidates, Constraint, SampleError, SampleOpts, Stage, StageKind, Step, StepRng, TokenMask,
    candidates::NonFinite,
    selection,
    stages::{
        AdaptiveP, Dry, DynamicTemperature, Epsilon, Eta, MinP, Mirostat, MirostatV2, NoRepeatNgram, Penalties,
        SequenceBreakers, Temperature, TopH, TopK, TopNSigma, TopP, TypicalP, Xtc,
    },
};

/// Tokens from which mirostat 1 estimates the slope of the distribution, as in the paper.
const MIROSTAT_CONSIDERED: usize = 100;

/// Stages, constraint, generator and history of one request.
///
/// It prints itself: `penalties(repetition 1.1, window 64) → temperature 0.8 → top-k 40 → draw`.
#[derive(Debug)]
pub struct SamplerChain {
    stages: Vec<Box<dyn Stage>>,
    constraint: Option<Box<dyn Constraint>>,
    greedy: bool,
    rng: StepRng,
    history: Vec<u32>,
    candidates: Candidates,
    allowed: TokenMask,
    /// The vocabulary the stages were checked against.
    vocab_size: Option<usize>,
    has_warned: bool,
}

impl SamplerChain {
    /// Resolves the options: a stage that is switched off is not in the chain.
    ///
    /// # Errors
    /// Those of [`SampleOpts::validate`]; `NeedsTokenizer` if DRY is on with sequence breakers, whose tokens only
    /// [`with_tokenizer`](Self::with_tokenizer) can find.
    pub fn new(options: &SampleOpts) -> Result<SamplerChain, SampleError> {
        SamplerChain::resolve(options, |texts| match texts {
            [] => Ok(SequenceBreakers::default()),
            _ => Err(SampleError::NeedsTokenizer),
        })
    }

    /// Resolves the options for a model with this tokenizer.
    ///
    /// # Errors
    /// Those of [`SampleOpts::validate`], and of [`SequenceBreakers::from_texts`] if DRY is on.
    pub fn with_tokenizer(options: &SampleOpts, tokenizer: &Tokenizer) -> Result<SamplerChain, SampleError> {
        SamplerChain::resolve(options, |texts| SequenceBreakers::from_texts(texts, tokenizer))
    }

    fn resolve(
        options: &SampleOpts,
        breakers: impl Fn(&[String]) -> Result<SequenceBreakers, SampleError>,
    ) -> Result<SamplerChain, SampleError> {
        options.validate()?;
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if !options.logit_bias.is_empty() {
            stages.push(Box::new(options.logit_bias.clone()));
        }
        for kind in options.running() {
            stages.push(stage(kind, options, &breakers)?);
        }
        let seed = options.seed.unwrap_or_else(seed_from_time);
        Ok(SamplerChain { greedy: options.is_greedy(), ..SamplerChain::from_stages(stages, seed) })
    }

    /// A chain of these stages and a draw.
    pub fn from_stages(stages: Vec<Box<dyn Stage>>, seed: u64) -> SamplerChain {
        SamplerChain {
            stages,
            constraint: None,
            greedy: false,
            rng: StepRng::new(seed),
            history: Vec::new(),
            candidates: Candidates::default(),
            allowed: TokenMask::default(),
            vocab_size: None,
            has_warned: false,
        }
    }

    /// The stages, in the order they run.
    pub fn stages(&self) -> impl Iterator<Item = &dyn Stage> {
        self.stages.iter().map(|stage| &**stage)
    }

    /// Adds a stage behind all others.
    pub fn push_stage(&mut self, stage: Box<dyn Stage>) {
        self.insert_stage(usize::MAX, stage);
    }

    /// Adds a stage at this place of [`stages`](Self::stages); behind all others if there are not as many.
    pub fn insert_stage(&mut self, index: usize, stage: Box<dyn Stage>) {
        self.stages.insert(index.min(self.stages.len()), stage);
        self.vocab_size = None;
    }

    /// Restricts every token from here on.
    pub fn set_constraint(&mut self, constraint: Box<dyn Constraint>) {
        self.constraint = Some(constraint);
    }

    /// Whether a constraint says that nothing may follow but the end.
    pub fn is_complete(&self) -> bool {
        self.constraint.as_ref().is_some_and(|constraint| constraint.is_complete())
    }

    /// Checks the stages against the size of the vocabulary, so that a bad request fails before its prompt is computed.
    /// [`sample`](Self::sample) does it too.
    ///
    /// # Errors
    /// `OutsideVocabulary` for a token id that the model does not have.
    pub fn check_vocab(&mut self, vocab_size: usize) -> Result<(), SampleError> {
        if self.vocab_size != Some(vocab_size) {
            self.stages.iter().try_for_each(|stage| stage.check(vocab_size))?;
            self.vocab_size = Some(vocab_size);
        }
        Ok(())
    }

    /// Records tokens of the prompt, for the stages that look back. A constraint does not see them.
    pub fn accept_prompt(&mut self, tokens: &[u32]) {
        self.history.extend_from_slice(tokens);
    }

    /// Records a token of the reply.
    ///
    /// # Errors
    /// `Constraint` if the constraint does not allow it; the history holds it all the same.
    pub fn accept(&mut self, token: u32) -> Result<(), SampleError> {
        self.history.push(token);
        self.stages.iter_mut().for_each(|stage| stage.accept(token));
        match &mut self.constraint {
            Some(constraint) => Ok(constraint.accept(token)?),
            None => Ok(()),
        }
    }

    /// Chooses the next token from `logits` (`[vocab]`, index = token id). Values that are not finite are never chosen.
    /// [`accept`](Self::accept) is what records it.
    ///
    /// # Errors
    /// `NoFiniteLogit` if the model says nothing, `NothingLeft` if the constraint or a stage forbids all it says, `Constraint`
    /// if the constraint cannot go on, `OutsideVocabulary` from [`check_vocab`](Self::check_vocab).
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        if self.greedy && self.stages.is_empty() && self.constraint.is_none() {
            return self.likeliest(logits);
        }
        self.narrow(logits)?;
        let chosen = if self.greedy {
            self.candidates.likeliest()
        } else {
            let uniform = self.rng.uniform();
            self.candidates.draw(uniform)
        };
        // There is a candidate, or `narrow` had failed.
        chosen.map(|c| c.id).ok_or_else(|| SampleError::NothingLeft { by: "the draw".to_owned() })
    }

    /// Runs the constraint and all stages over `logits` and shows what is left to choose from.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn survivors(&mut self, logits: &[f32]) -> Result<&Candidates, SampleError> {
        self.narrow(logits)?;
        Ok(&self.candidates)
    }

    fn narrow(&mut self, logits: &[f32]) -> Result<(), SampleError> {
        self.check_vocab(logits.len())?;
        let allowed = match &mut self.constraint {
            Some(constraint) => {
                self.allowed.clear(logits.len());
                constraint.allow(&mut self.allowed)?;
                Some(&self.allowed)
            }
            None => None,
        };
        let non_finite = self.candidates.refill(logits, allowed);
        self.report(non_finite.unwrap_or_default(), logits.len())?;
        if self.candidates.is_empty() {
            return Err(SampleError::NothingLeft { by: "the constraint".to_owned() });
        }
        let mut step = Step::new(&self.history, &mut self.rng);
        for stage in &mut self.stages {
            stage.apply(&mut self.candidates, &mut step);
            if self.candidates.is_empty() {
                return Err(SampleError::NothingLeft { by: stage.to_string() });
            }
        }
        Ok(())
    }

    /// The greedy choice where nothing else is to be done: no candidates are made.
    fn likeliest(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        let argmax = selection::argmax(logits);
        if argmax.has_non_finite || argmax.slot.is_none() {
            self.report(NonFinite::count(logits), logits.len())?;
        }
        // `report` has failed if there is none.
        argmax.slot.map(|id| id as u32).ok_or_else(|| SampleError::NothingLeft { by: "the model".to_owned() })
    }

    fn report(&mut self, non_finite: NonFinite, vocab_size: usize) -> Result<(), SampleError> {
        let NonFinite { nan, plus_infinity, minus_infinity } = non_finite;
        let infinite = plus_infinity + minus_infinity;
        if nan + infinite == vocab_size {
            return Err(SampleError::NoFiniteLogit { nan, infinite, vocab_size });
        }
        // Minus infinity is how masks say no; anything else is a model gone wrong.
        if nan + plus_infinity > 0 && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(nan, plus_infinity, "logits are not finite; the sampler ignores them");
        }
        Ok(())
    }
}

/// The stage that the options ask for.
fn stage(
    kind: StageKind,
    options: &SampleOpts,
    breakers: impl Fn(&[String]) -> Result<SequenceBreakers, SampleError>,
) -> Result<Box<dyn Stage>, SampleError> {
    let o = options;
    let min_keep = o.min_keep.max(1);
    Ok(match kind {
        StageKind::Penalties => {
            let window = o.repetition_window;
            Box::new(Penalties::new(o.repetition_penalty, o.frequency_penalty, o.presence_penalty, window))
        }
        StageKind::NoRepeatNgram => Box::new(NoRepeatNgram { n: o.no_repeat_ngram_size }),
        StageKind::Dry => {
            let breakers = breakers(&o.dry_sequence_breakers)?;
            Box::new(Dry::new(o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_window, breakers))
        }
        StageKind::Temperature if o.dynamic_temp_range > 0.0 => Box::new(DynamicTemperature {
            temperature: o.temperature,
            range: o.dynamic_temp_range,
            exponent: o.dynamic_temp_exponent,
        }),
        StageKind::Temperature => Box::new(Temperature { temperature: o.temperature }),
        StageKind::TopH => Box::new(TopH { h: o.top_h, min_keep }),
        StageKind::TopK => Box::new(TopK { k: o.top_k, min_keep }),
        StageKind::TypicalP => Box::new(TypicalP { p: o.typical_p, min_keep }),
        StageKind::TopP => Box::new(TopP { p: o.top_p, min_keep }),
        StageKind::MinP => Box::new(MinP { p: o.min_p, min_keep }),
        StageKind::TopNSigma => Box::new(TopNSigma { n: o.top_n_sigma, min_keep }),
        StageKind::Epsilon => Box::new(Epsilon { epsilon: o.epsilon_cutoff, min_keep }),
        StageKind::Eta => Box::new(Eta { epsilon: o.eta_cutoff, min_keep }),
        StageKind::Xtc => Box::new(Xtc { probability: o.xtc_probability, threshold: o.xtc_threshold, min_keep }),
        StageKind::Mirostat if o.mirostat == 1 => {
            Box::new(Mirostat::new(o.mirostat_tau, o.mirostat_eta, MIROSTAT_CONSIDERED, min_keep))
        }
        StageKind::Mirostat => Box::new(MirostatV2::new(o.mirostat_tau, o.mirostat_eta, min_keep)),
        StageKind::AdaptiveP => Box::new(AdaptiveP::new(o.adaptive_target, o.adaptive_decay)),
    })
}

impl fmt::Display for SamplerChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.constraint.is_some() {
            f.write_str("constraint → ")?;
        }
        for stage in &self.stages {
            write!(f, "{stage} → ")?;
        }
        f.write_str(if self.greedy { "likeliest" } else { "draw" })
    }
}

fn seed_from_time() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library seeds its hashers from the system's entropy.
    RandomState::new().hash_one(std::time::SystemTime::now())
}
