//! Mirostat.

use std::fmt;

use crate::sampling::{Candidates, Stage, Step};

/// Keeps the surprise of the reply near a target, by a top-k that it computes from an estimate of the distribution's slope
/// (Basu et al. 2021, arXiv:2007.14966).
///
/// k = (ε 2^μ / (1 - n^-ε))^(1/s) with n tokens in the vocabulary, ε = s - 1 and s estimated from the likeliest
/// tokens; after each token μ falls by rate · (surprise - target), surprise being -log2 of the token's
/// probability among those kept. μ starts at twice the target.
///
/// In llama.cpp it replaces every stage but bias and temperature; here it comes after whichever stages are on. Where the slope
/// gives no k, as for a flat distribution, everything stays: llama.cpp ends with one token there, by an accident of a
/// conversion.
#[derive(Clone, Debug)]
pub struct Mirostat {
    surprise: Surprise,
    /// Likeliest tokens from which the slope is estimated.
    considered: usize,
    min_keep: usize,
}

impl Mirostat {
    /// A target in bits, and how fast to correct. `considered` is 100 in the paper and in llama.cpp.
    pub fn new(target: f32, rate: f32, considered: usize, min_keep: usize) -> Mirostat {
        Mirostat { surprise: Surprise::new(target, rate), considered, min_keep }
    }

    /// The current bound on the surprise, in bits.
    pub fn mu(&self) -> f32 {
        self.surprise.mu
    }

    /// How many tokens to keep; `None` if the estimate says nothing.
    fn k(&self, candidates: &Candidates) -> Option<usize> {
        let likeliest = candidates.top(self.considered);
        let (mut products, mut squares) = (0.0, 0.0);
        for (i, pair) in likeliest.windows(2).enumerate() {
            let t = libm::log((i + 2) as f64 / (i + 1) as f64);
            // The logarithm of a ratio of probabilities is a difference of logits.
            products += t * (f64::from(pair[0].logit) - f64::from(pair[1].logit));
            squares += t * t;
        }
        let s = products / squares;
        let epsilon = s - 1.0;
        let power = libm::exp2(f64::from(self.surprise.mu));
        let n = candidates.vocab_size() as f64;
        // The limit at ε = 0, where the formula is 0 / 0.
        let ratio =
            if epsilon.abs() < 1e-6 { power / libm::log(n) } else { epsilon * power / (1.0 - libm::pow(n, -epsilon)) };
        let k = libm::pow(ratio, 1.0 / s);
        // A slope of 0 makes an infinite power, and k nothing or infinite by the size of the vocabulary alone.
        (s > 0.0 && k.is_finite()).then_some(k as usize)
    }
}

impl Stage for Mirostat {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        if let Some(k) = self.k(candidates) {
            candidates.keep_likeliest(k.max(self.min_keep).max(1));
        }
        self.surprise.expect(candidates);
    }

    fn accept(&mut self, token: u32) {
        self.surprise.accept(token);
    }
}

impl fmt::Display for Mirostat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mirostat (target {}, rate {})", self.surprise.target, self.surprise.rate)
    }
}

/// The control loop of both versions.
#[derive(Clone, Debug)]
pub(super) struct Surprise {
    pub target: f32,
    pub rate: f32,
    pub mu: f32,
    /// What was left to choose from, with probabilities. Reused.
    left: Vec<(u32, f32)>,
}

impl Surprise {
    pub fn new(target: f32, rate: f32) -> Surprise {
        Surprise { target, rate, mu: 2.0 * target, left: Vec::new() }
    }

    /// Remembers what is left to choose from.
    pub fn expect(&mut self, candidates: &mut Candidates) {
        candidates.write_probabilities(&mut self.left);
    }

    /// Moves μ by what was chosen. A token that was not there to choose says nothing.
    pub fn accept(&mut self, token: u32) {
        if let Some((_, probability)) = self.left.iter().find(|(id, p)| *id == token && *p > 0.0) {
            let mu = self.mu - self.rate * (-libm::log2f(*probability) - self.target);
            self.mu = mu.clamp(f32::MIN, f32::MAX);
        }
    }
}
