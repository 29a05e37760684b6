//! The tokens still in the running, with their logits.

use super::{
    constraint::TokenMask,
    selection::{self, Pick},
    softmax,
};

/// Up to this many candidates are listed; more stay in a table of the whole vocabulary, where a logit is found by its id.
const LISTED: usize = 1024;

/// One token in the running.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit, finite.
    pub logit: f32,
}

/// What a [`Stage`](super::Stage) works on: tokens with finite logits.
///
/// They start as a table, one slot per token of the vocabulary in id order, with minus infinity for what is out. Once a stage
/// leaves few, they are a list, likeliest first. Everything here works the same on both.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// One logit per slot. Minus infinity: out.
    logits: Vec<f32>,
    /// Token of each slot of a list. In a table the slot is the token.
    ids: Vec<u32>,
    is_list: bool,
    /// Slots that are not out.
    len: usize,
    /// Tokens that are out because they were forbidden, not because a stage cut them off.
    n_banned: usize,
    vocab_size: usize,
    /// Room for [`Softmax`], reused from step to step.
    weights: Vec<f32>,
    scores: Vec<f32>,
    picks: Vec<Pick>,
    spare_ids: Vec<u32>,
}

/// Logits that were not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NonFinite {
    pub nan: usize,
    pub plus_infinity: usize,
    pub minus_infinity: usize,
}

impl NonFinite {
    pub fn count(logits: &[f32]) -> NonFinite {
        let count = |is: fn(f32) -> bool| logits.iter().filter(|l| is(**l)).count();
        NonFinite {
            nan: count(f32::is_nan),
            plus_infinity: count(|l| l == f32::INFINITY),
            minus_infinity: count(|l| l == f32::NEG_INFINITY),
        }
    }
}

/// The distribution over the candidates: unnormalised weights by slot.
pub(super) struct Softmax<'a> {
    /// The largest logit.
    pub max: f32,
    /// e^(logit - max) of each slot.
    pub weights: &'a [f32],
    /// Their sum.
    pub total: f64,
    /// The logit of each slot.
    pub logits: &'a [f32],
}

impl Softmax<'_> {
    /// Expected distance of a logit from the largest one, at most 0.
    pub fn mean(&self) -> f64 {
        softmax::weighted_sum(self.weights, self.logits, self.max) / self.total
    }

    /// Tells of a weight whether its probability, rounded to f32, is at least this.
    pub fn is_at_least(&self, probability: f32) -> impl Fn(f32) -> bool + use<> {
        let total = self.total;
        // Few come near enough to need a division.
        let near = (f64::from(probability) * total * (1.0 - 1e-6)) as f32;
        move |weight| weight >= near && (f64::from(weight) / total) as f32 >= probability
    }

    /// Entropy in nats.
    pub fn entropy(&self) -> f64 {
        (libm::log(self.total) - self.mean()).max(0.0)
    }
}

impl Candidates {
    /// All tokens whose logit (index = token id) is finite.
    pub fn from_logits(logits: &[f32]) -> Candidates {
        let mut candidates = Candidates::default();
        candidates.refill(logits, None);
        candidates
    }

    /// Refills from `logits`, leaving out what is not finite or not allowed. Says what was not finite, if anything was.
    pub(super) fn refill(&mut self, logits: &[f32], allowed: Option<&TokenMask>) -> Option<NonFinite> {
        self.is_list = false;
        self.vocab_size = logits.len();
        self.logits.clear();
        // Zero has one sign here, so that equal logits compare equal.
        let keep = |l: &f32| if l.abs() < f32::INFINITY { l + 0.0 } else { f32::NEG_INFINITY };
        self.logits.extend(logits.iter().map(keep));
        if let Some(mask) = allowed {
            for (logits, word) in self.logits.chunks_mut(32).zip(mask.words()) {
                match *word {
                    u32::MAX => {}
                    0 => logits.fill(f32::NEG_INFINITY),
                    // Comparing with constants vectorises, shifting by each bit's place does not.
                    word => logits.iter_mut().zip(BITS).for_each(|(logit, bit)| {
                        *logit = if word & bit == 0 { f32::NEG_INFINITY } else { *logit };
                    }),
                }
            }
            let known = mask.vocab_size().min(self.logits.len());
            self.logits[known..].fill(f32::NEG_INFINITY);
        }
        self.len = selection::count(&self.logits, |l| l > f32::NEG_INFINITY);
        self.n_banned = self.vocab_size - self.len;
        let n_finite = match allowed {
            None => self.len,
            Some(_) => selection::count(logits, |l| l.abs() < f32::INFINITY),
        };
        // What a grammar leaves is often a handful, and then no stage needs a pass over the vocabulary.
        if allowed.is_some() {
            self.list_if_few();
        }
        (n_finite < logits.len()).then(|| NonFinite::count(logits))
    }

    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens of the vocabulary, in the running or not.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Candidates, and with them the tokens that a model, a bias or a constraint forbids and no stage has cut off since.
    /// llama.cpp keeps those in its list at minus infinity, and [`DynamicTemperature`](super::stages::DynamicTemperature)
    /// depends on the length of that list.
    pub fn len_with_banned(&self) -> usize {
        self.len + self.n_banned
    }

    /// The candidates, in id order or, once few are left, likeliest first as of when they became few.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> {
        let in_slots = self.logits.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        in_slots.map(|(slot, &logit)| Candidate { id: self.id(slot), logit })
    }

    /// The token of a slot.
    pub(super) fn id(&self, slot: usize) -> u32 {
        if self.is_list { self.ids.get(slot).copied().unwrap_or(u32::MAX) } else { slot as u32 }
    }

    fn slot(&self, id: u32) -> Option<usize> {
        let slot = if self.is_list { self.ids.iter().position(|i| *i == id)? } else { id as usize };
        (*self.logits.get(slot)? > f32::NEG_INFINITY).then_some(slot)
    }

    /// The logit of a candidate; `None` if it is not in the running.
    pub fn logit(&self, id: u32) -> Option<f32> {
        self.slot(id).and_then(|slot| self.logits.get(slot).copied())
    }

    /// The largest logit; minus infinity if nothing is left.
    pub fn max_logit(&self) -> f32 {
        selection::max(&self.logits)
    }

    /// The likeliest candidate, the lowest id on a tie.
    pub fn likeliest(&self) -> Option<Candidate> {
        let logit = *self.logits.get(selection::argmax(&self.logits).slot?)?;
        // A list is in the order of the logits it was made of, which a stage may have changed since.
        let equals =
            self.logits.iter().enumerate().filter(|(_, other)| **other == logit).map(|(slot, _)| self.id(slot));
        Some(Candidate { id: equals.min()?, logit })
    }

    /// Changes one candidate's logit. What overflows becomes the largest or smallest number; NaN changes nothing.
    pub fn change(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        if let Some(logit) = self.slot(id).and_then(|slot| self.logits.get_mut(slot)) {
            *logit = finite(change(*logit), *logit);
        }
    }

    /// Changes every candidate's logit, by the rules of [`change`](Self::change).
    pub fn change_all(&mut self, mut change: impl FnMut(Candidate) -> f32) {
        for slot in 0..self.logits.len() {
            let (id, logit) = (self.id(slot), self.logits[slot]);
            if logit > f32::NEG_INFINITY {
                self.logits[slot] = finite(change(Candidate { id, logit }), logit);
            }
        }
    }

    /// Forbids a token. Unlike what a stage cuts off it still counts in [`len_with_banned`](Self::len_with_banned).
    pub fn ban(&mut self, id: u32) {
        if let Some(logit) = self.slot(id).and_then(|slot| self.logits.get_mut(slot)) {
            *logit = f32::NEG_INFINITY;
            self.len -= 1;
            self.n_banned += 1;
        }
    }

    /// Forbids every candidate but the likeliest.
    pub(super) fn ban_all_but_likeliest(&mut self) {
        let counted = self.len_with_banned();
        self.keep_likeliest(1);
        self.n_banned = counted - self.len;
    }

    /// Divides every logit by a positive number.
    ///
    /// Where a quotient would overflow, the distances from the largest logit are divided instead: those are at most 0, so
    /// however small the divisor is, the likeliest token stays what it is.
    pub fn divide(&mut self, divisor: f32) {
        debug_assert!(divisor > 0.0);
        let size = |l: f32| if l > f32::NEG_INFINITY { l.abs() } else { 0.0 };
        if divisor >= 1.0 || selection::largest(&self.logits, size) / divisor < f32::INFINITY {
            self.logits.iter_mut().for_each(|l| *l /= divisor);
            return;
        }
        let max = selection::max(&self.logits);
        for logit in self.logits.iter_mut().filter(|l| **l > f32::NEG_INFINITY) {
            *logit = ((*logit - max) / divisor).max(f32::MIN);
        }
    }

    /// Keeps the `n` likeliest; of those that tie at the cut the lowest ids, as long as no earlier stage has listed them in
    /// another order.
    ///
    /// # Cost
    /// A partial selection: one pass over the candidates and about n log n moves, never a sort of the vocabulary.
    pub fn keep_likeliest(&mut self, n: usize) {
        if n >= self.len {
            // Forbidden tokens come after all others.
            self.n_banned = self.n_banned.min(n - self.len);
            return;
        }
        let mut picks = std::mem::take(&mut self.picks);
        selection::select_best(&self.logits, n, &mut picks);
        self.keep_picks(&mut picks);
        self.picks = picks;
    }

    /// Keeps those for which `keep` holds, but at least the `min_keep` likeliest.
    pub fn retain(&mut self, min_keep: usize, keep: impl Fn(Candidate) -> bool) {
        let kept = self.iter().filter(|c| keep(*c)).count();
        if kept < min_keep {
            return self.keep_likeliest(min_keep);
        }
        for slot in 0..self.logits.len() {
            let (id, logit) = (self.id(slot), self.logits[slot]);
            if logit > f32::NEG_INFINITY && !keep(Candidate { id, logit }) {
                self.logits[slot] = f32::NEG_INFINITY;
            }
        }
        self.len = kept;
        self.n_banned = 0;
        self.list_if_few();
    }

    /// Keeps those with a logit of `threshold` and more, but at least the `min_keep` likeliest.
    pub(super) fn retain_from(&mut self, threshold: f32, min_keep: usize) {
        // What is out stays out.
        let threshold = threshold.max(f32::MIN);
        let kept = selection::count(&self.logits, |l| l >= threshold);
        if kept < min_keep {
            return self.keep_likeliest(min_keep);
        }
        self.logits.iter_mut().for_each(|l| *l = if *l >= threshold { *l } else { f32::NEG_INFINITY });
        self.len = kept;
        self.n_banned = 0;
        self.list_if_few();
    }

    /// Forbids those with a logit below `threshold`, except the `min_keep` likeliest.
    pub(super) fn ban_below(&mut self, threshold: f32, min_keep: usize) {
        let counted = self.len_with_banned();
        self.retain_from(threshold, min_keep);
        self.n_banned = counted - self.len;
    }

    /// Keeps those of at least this probability, and those with a logit that is among the `min_keep` largest.
    pub(super) fn keep_probable(&mut self, probability: f32, min_keep: usize) {
        let mut picks = std::mem::take(&mut self.picks);
        selection::select_best(&self.logits, min_keep, &mut picks);
        let in_any_case = picks.iter().map(|pick| pick.score).fold(f32::INFINITY, f32::min);
        self.picks = picks;
        if let Some(softmax) = self.softmax() {
            let is_probable = softmax.is_at_least(probability);
            let kept = softmax.logits.iter().zip(softmax.weights).filter(|(_, weight)| is_probable(**weight));
            let threshold = kept.map(|(logit, _)| *logit).fold(in_any_case, f32::min);
            self.retain_from(threshold, min_keep);
        }
    }

    /// Drops those of at least this probability but the least likely of them, unless fewer than `min_keep` would be left.
    pub(super) fn drop_top_choices(&mut self, probability: f32, min_keep: usize) {
        let Some(softmax) = self.softmax() else { return };
        let is_probable = softmax.is_at_least(probability);
        let is_top = |(logit, weight): (&f32, &f32)| *logit > f32::NEG_INFINITY && is_probable(*weight);
        let in_slots = softmax.logits.iter().zip(softmax.weights).enumerate();
        // The later of equals is the less likely: ids are the tie-break everywhere.
        let (mut n_top, mut spared, mut least) = (0, 0, f32::INFINITY);
        for (slot, (_, weight)) in in_slots.filter(|(_, both)| is_top(*both)) {
            n_top += 1;
            if *weight <= least {
                (spared, least) = (slot, *weight);
            }
        }
        if n_top < 2 || self.len - (n_top - 1) < min_keep {
            return;
        }
        for (slot, (logit, weight)) in self.logits.iter_mut().zip(&self.weights).enumerate() {
            if slot != spared && is_top((logit, weight)) {
                *logit = f32::NEG_INFINITY;
            }
        }
        self.len -= n_top - 1;
    }

    /// Slots there are, of candidates and of what is out.
    pub(super) fn slots(&self) -> usize {
        self.logits.len()
    }

    /// Standard deviation of the logits, as that of a whole population; 0 if there is none.
    pub(super) fn standard_deviation(&self) -> f64 {
        let n = self.len as f64;
        let mean = sum_finite(&self.logits, |logit| logit) / n;
        let variance = sum_finite(&self.logits, |logit| (logit - mean) * (logit - mean)) / n;
        variance.sqrt()
    }

    /// The `n` likeliest candidates in order, ties by lower id unless an earlier stage has listed them in another order.
    pub fn top(&self, n: usize) -> Vec<Candidate> {
        let mut picks = Vec::new();
        selection::select_best(&self.logits, n, &mut picks);
        selection::sort(&mut picks);
        picks.iter().map(|pick| Candidate { id: self.id(pick.slot as usize), logit: pick.score }).collect()
    }

    /// Candidates with their probabilities, in the order of [`iter`](Self::iter): the softmax over what is left.
    pub fn probabilities(&self) -> Vec<(u32, f64)> {
        let mut weights = Vec::new();
        let total = softmax::weigh(&self.logits, selection::max(&self.logits), &mut weights);
        let in_slots =
            self.logits.iter().zip(&weights).enumerate().filter(|(_, (logit, _))| **logit > f32::NEG_INFINITY);
        in_slots.map(|(slot, (_, weight))| (self.id(slot), f64::from(*weight) / total)).collect()
    }

    /// Writes what [`probabilities`](Self::probabilities) gives, in f32.
    pub(super) fn write_probabilities(&mut self, into: &mut Vec<(u32, f32)>) {
        into.clear();
        let Some(total) = self.softmax().map(|softmax| softmax.total) else { return };
        let in_slots =
            self.logits.iter().zip(&self.weights).enumerate().filter(|(_, (logit, _))| **logit > f32::NEG_INFINITY);
        into.extend(in_slots.map(|(slot, (_, weight))| (self.id(slot), (f64::from(*weight) / total) as f32)));
    }

    /// The distribution over what is left. `None` if nothing is.
    pub(super) fn softmax(&mut self) -> Option<Softmax<'_>> {
        let max = selection::max(&self.logits);
        if max == f32::NEG_INFINITY {
            return None;
        }
        let total = softmax::weigh(&self.logits, max, &mut self.weights);
        Some(Softmax { max, weights: &self.weights, total, logits: &self.logits })
    }

    /// Keeps the shortest run of candidates, those with the highest scores first, whose share of the probability is `enough`;
    /// `score` makes a slot's score of its logit, and `min_keep` are kept in any case. Of equal scores, lower ids come first.
    pub(super) fn keep_share(
        &mut self,
        min_keep: usize,
        score: impl Fn(&Softmax<'_>, &mut Vec<f32>),
        enough: impl Fn(f64) -> bool,
    ) {
        let mut scores = std::mem::take(&mut self.scores);
        let mut picks = std::mem::take(&mut self.picks);
        if let Some(softmax) = self.softmax() {
            scores.clear();
            score(&softmax, &mut scores);
            let total = softmax.total;
            let scores: &[f32] = if scores.is_empty() { softmax.logits } else { &scores };
            selection::select_mass(scores, softmax.weights, &mut picks, |mass| enough(mass / total));
            if picks.len() < min_keep {
                selection::select_best(scores, min_keep, &mut picks);
            }
            self.keep_picks(&mut picks);
        }
        (self.scores, self.picks) = (scores, picks);
    }

    /// Keeps the slots that were picked, by whatever score.
    fn keep_picks(&mut self, picks: &mut [Pick]) {
        for pick in picks.iter_mut() {
            pick.score = self.logits.get(pick.slot as usize).copied().unwrap_or(f32::NEG_INFINITY);
        }
        self.n_banned = 0;
        self.len = picks.len();
        if picks.len() <= LISTED {
            return self.list(picks);
        }
        self.logits.fill(f32::NEG_INFINITY);
        for pick in picks.iter() {
            if let Some(logit) = self.logits.get_mut(pick.slot as usize) {
                *logit = pick.score;
            }
        }
    }

    fn list_if_few(&mut self) {
        if self.is_list || self.len > LISTED {
            return;
        }
        let mut picks = std::mem::take(&mut self.picks);
        selection::select_best(&self.logits, self.len, &mut picks);
        self.list(&mut picks);
        self.picks = picks;
    }

    fn list(&mut self, picks: &mut [Pick]) {
        selection::sort(picks);
        let mut ids = std::mem::take(&mut self.spare_ids);
        ids.clear();
        ids.extend(picks.iter().map(|pick| self.id(pick.slot as usize)));
        self.spare_ids = std::mem::replace(&mut self.ids, ids);
        self.logits.clear();
        self.logits.extend(picks.iter().map(|pick| pick.score));
        self.is_list = true;
    }

    /// Draws a candidate with its probability. `uniform` is from 0 to 1, without 1.
    pub fn draw(&mut self, uniform: f64) -> Option<Candidate> {
        let softmax = self.softmax()?;
        let mut left = uniform * softmax.total;
        let mut last = None;
        for (index, block) in softmax.weights.chunks(BLOCK).enumerate() {
            let weight = softmax::total(block);
            if left >= weight {
                left -= weight;
                continue;
            }
            for (offset, weight) in block.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                last = Some(index * BLOCK + offset);
                left -= f64::from(*weight);
                if left < 0.0 {
                    break;
                }
            }
            if left < 0.0 {
                break;
            }
        }
        // Rounding may leave a sliver: it belongs to the last candidate.
        let slot = last.or_else(|| softmax.weights.iter().rposition(|weight| *weight > 0.0))?;
        Some(Candidate { id: self.id(slot), logit: *self.logits.get(slot)? })
    }
}

/// The bits of a word of a [`TokenMask`].
const BITS: [u32; 32] = {
    let mut bits = [0; 32];
    let mut place = 0;
    while place < 32 {
        bits[place] = 1 << place;
        place += 1;
    }
    bits
};

/// Candidates whose weights a draw skips at once.
const BLOCK: usize = 512;

/// Logits stay finite: two infinities have no distance from each other.
fn finite(logit: f32, before: f32) -> f32 {
    if logit.is_nan() { before } else { logit.clamp(f32::MIN, f32::MAX) + 0.0 }
}

/// Sum over the finite logits, in an order that is the same on every platform.
fn sum_finite(logits: &[f32], value: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0f64; 4];
    let (blocks, rest) = logits.as_chunks::<4>();
    for block in blocks.iter().map(<[f32; 4]>::as_slice).chain([rest]) {
        for (lane, logit) in lanes.iter_mut().zip(block) {
            *lane += if *logit > f32::NEG_INFINITY { value(f64::from(*logit)) } else { 0.0 };
        }
    }
    lanes.iter().sum()
}
