//! Log-probabilities of chosen tokens and their alternatives.

use super::{selection, softmax};

/// How likely the model itself found a token, and what it found likeliest.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogProbs {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability; minus infinity if the model gave it none.
    pub logprob: f32,
    /// The likeliest tokens with theirs, likeliest first, ties by lower id.
    pub top: Vec<(u32, f32)>,
}

/// Natural logarithms of the raw distribution: the softmax of the logits (`[vocab]`, index = token id) as the model gave them,
/// before bias, penalties, temperature, truncation or a constraint.
///
/// `n_top` of 0 gives no alternatives. Logits that are not finite have no probability and take no part.
///
/// # Cost
/// Two passes over the logits, and a partial selection of `n_top`.
pub fn log_probabilities(logits: &[f32], token: u32, n_top: usize) -> TokenLogProbs {
    let Some(max) = selection::argmax(logits).slot.and_then(|slot| logits.get(slot).copied()) else {
        return TokenLogProbs { token, logprob: f32::NEG_INFINITY, top: Vec::new() };
    };
    let ln_total = libm::log(softmax::sum_exp(logits, max));
    // Distances first: a large logit would swallow the logarithm.
    let logprob = |logit: f32| (f64::from(logit) - f64::from(max) - ln_total) as f32;
    let mut picks = Vec::new();
    selection::select_best_finite(logits, n_top, &mut picks);
    selection::sort(&mut picks);
    let chosen = logits.get(token as usize).filter(|logit| logit.is_finite());
    TokenLogProbs {
        token,
        logprob: chosen.map_or(f32::NEG_INFINITY, |logit| logprob(*logit)),
        top: picks.iter().map(|pick| (pick.slot, logprob(pick.score))).collect(),
    }
}
