//! DRY, don't repeat yourself.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use kinfolk_text::{EncodeOptions, Tokenizer};

use crate::sampling::{Candidates, SampleError, Stage, Step};

/// Makes tokens less likely that would prolong a repetition (text-generation-webui PR 5677).
///
/// If the end of the context, L tokens of it, is somewhere earlier in the window and a token follows there, that token's
/// logit falls by multiplier · base^(L - allowed_length), provided that L is at least `allowed_length`. The longest L counts.
/// Repetitions do not reach back over a sequence breaker, and a token that is a breaker by itself is never penalised.
///
/// As llama.cpp: a window not longer than `allowed_length` is off, and so are a multiplier of 0 and a base below 1.
#[derive(Clone, Debug)]
pub struct Dry {
    /// Penalty of the shortest repetition that has one.
    pub multiplier: f32,
    /// Growth of the penalty with each token more.
    pub base: f32,
    /// Tokens that may repeat unpunished.
    pub allowed_length: usize,
    /// How many of the latest tokens are looked at.
    pub window: usize,
    /// What repetitions do not reach over.
    pub breakers: SequenceBreakers,
    /// By distance from the end: how far the context up to there agrees with the end. Reused.
    runs: Vec<usize>,
    /// By token: the longest repetition it would prolong. Reused.
    longest: HashMap<u32, usize>,
}

impl Dry {
    /// The stage with empty working memory.
    pub fn new(multiplier: f32, base: f32, allowed_length: usize, window: usize, breakers: SequenceBreakers) -> Dry {
        Dry { multiplier, base, allowed_length, window, breakers, runs: Vec::new(), longest: HashMap::new() }
    }

    /// Finds which tokens would prolong a repetition, and how long each is.
    fn find(&mut self, window: &[u32]) {
        self.longest.clear();
        let limit = self.breakers.since_last(window);
        if window.len() <= self.allowed_length || limit < self.allowed_length {
            return;
        }
        common_suffixes(window, &mut self.runs);
        for (distance, run) in self.runs.iter().enumerate().skip(1) {
            let run = (*run).min(limit);
            if run >= self.allowed_length
                && let Some(&next) = window.get(window.len() - distance)
                && !self.breakers.is_single(next)
            {
                let longest = self.longest.entry(next).or_default();
                *longest = run.max(*longest);
            }
        }
    }

    fn penalty(&self, run: usize) -> f32 {
        // The natural logarithm of the largest f32: a higher power would overflow.
        const LARGEST: f32 = 88.722_84;
        let exponent = run.saturating_sub(self.allowed_length);
        let most = if self.base > 1.000_001 { (LARGEST / libm::logf(self.base)) as usize } else { usize::MAX };
        self.multiplier * libm::powf(self.base, exponent.min(most) as f32)
    }
}

/// Writes, for every distance d from the end of `window`, how many tokens before it equal the last tokens: the Z-function of
/// the window read backwards.
fn common_suffixes(window: &[u32], runs: &mut Vec<usize>) {
    let n = window.len();
    let at = |i: usize| window[n - 1 - i];
    runs.clear();
    runs.resize(n, 0);
    // The stretch known to agree with the end that reaches furthest back.
    let (mut left, mut right) = (0, 0);
    for d in 1..n {
        let mut run = if d < right { runs[d - left].min(right - d) } else { 0 };
        while d + run < n && at(run) == at(d + run) {
            run += 1;
        }
        if d + run > right {
            (left, right) = (d, d + run);
        }
        runs[d] = run;
    }
}

impl Stage for Dry {
    fn apply(&mut self, candidates: &mut Candidates, step: &mut Step<'_>) {
        if self.multiplier == 0.0 || self.base < 1.0 {
            return;
        }
        let history = step.history();
        self.find(&history[history.len().saturating_sub(self.window)..]);
        for (token, run) in &self.longest {
            candidates.change(*token, |logit| logit - self.penalty(*run));
        }
    }
}

impl fmt::Display for Dry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dry {} (base {}, allowed length {}, ", self.multiplier, self.base, self.allowed_length)?;
        match self.window {
            usize::MAX => f.write_str("whole context)"),
            window => write!(f, "window {window})"),
        }
    }
}

/// Runs of tokens that repetitions do not reach over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceBreakers {
    /// What may follow each first token. Shared, since thousands of tokens may end with the beginning of one text.
    tails: BTreeMap<u32, Vec<Arc<[u32]>>>,
}

/// Longest text of a breaker that is looked at, in bytes.
const MAX_BREAKER_BYTES: usize = 40;
/// Most tokens of a breaker after its first.
const MAX_TAIL: usize = 20;
/// Most breakers a request may name: each costs a look at every token of the vocabulary.
const MAX_BREAKERS: usize = 64;

impl SequenceBreakers {
    /// Breakers given as tokens. Empty runs are ignored.
    pub fn from_tokens<'a>(sequences: impl IntoIterator<Item = &'a [u32]>) -> SequenceBreakers {
        let mut breakers = SequenceBreakers::default();
        for (head, tail) in sequences.into_iter().filter_map(<[u32]>::split_first) {
            breakers.add(*head, &tail.into());
        }
        breakers
    }

    /// Breakers given as texts. A token that contains the text is a breaker by itself; one that ends with a beginning of it
    /// is, together with the tokens of the rest.
    ///
    /// # Errors
    /// `OutOfRange` for more than 64 texts, or one of more than 40 bytes.
    /// # Cost
    /// Reads the vocabulary once, for every text; encodes what may follow each beginning of a text once: tens of milliseconds for the usual
    /// few, below a second for the most and longest over 262,144 tokens.
    pub fn from_texts(texts: &[String], tokenizer: &Tokenizer) -> Result<SequenceBreakers, SampleError> {
        let field = "dry_sequence_breakers";
        if texts.len() > MAX_BREAKERS {
            let found = format!("{}", texts.len());
            return Err(SampleError::OutOfRange { field, expected: "at most 64 texts", found });
        }
        if let Some(long) = texts.iter().find(|text| text.len() > MAX_BREAKER_BYTES) {
            let found = format!("{} bytes", long.len());
            return Err(SampleError::OutOfRange { field, expected: "texts of at most 40 bytes", found });
        }
        let texts: Vec<BreakerText<'_>> = texts.iter().filter_map(|text| BreakerText::new(text, tokenizer)).collect();
        let mut breakers = SequenceBreakers::default();
        let alone = Arc::from([]);
        for id in 0..tokenizer.vocab_size() as u32 {
            let Some(piece) = tokenizer.token_bytes(id) else { continue };
            for text in &texts {
                if text.is_within(&piece) {
                    breakers.add(id, &alone);
                } else {
                    text.rests_after(&piece).for_each(|rest| breakers.add(id, rest));
                }
            }
        }
        Ok(breakers)
    }

    fn add(&mut self, head: u32, tail: &Arc<[u32]>) {
        let tails = self.tails.entry(head).or_default();
        if !tails.contains(tail) {
            tails.push(Arc::clone(tail));
        }
    }

    /// Whether the token is a breaker without any after it.
    fn is_single(&self, token: u32) -> bool {
        self.tails.get(&token).is_some_and(|tails| tails.iter().any(|tail| tail.is_empty()))
    }

    /// Tokens at the end of a window after its last breaker; all if there is none.
    fn since_last(&self, window: &[u32]) -> usize {
        if self.tails.is_empty() {
            return window.len();
        }
        for (start, head) in window.iter().enumerate().rev() {
            let after = &window[start + 1..];
            let tails = self.tails.get(head).into_iter().flatten();
            if let Some(longest) = tails.filter(|tail| after.starts_with(tail)).map(|tail| tail.len()).max() {
                return after.len() - longest;
            }
        }
        window.len()
    }
}

/// A breaker that is a text, with what it takes to find it in tokens.
struct BreakerText<'t> {
    first: u8,
    bytes: &'t [u8],
    /// Tokens of the rest, by how many bytes of the text a token ends with; none where the rest is no text.
    rests: Vec<Option<Arc<[u32]>>>,
}

impl<'t> BreakerText<'t> {
    /// `None` for the empty text, which breaks nothing.
    fn new(text: &'t str, tokenizer: &Tokenizer) -> Option<BreakerText<'t>> {
        let rest = |overlap: usize| {
            let mut tokens = tokenizer.encode(text.get(overlap..)?, EncodeOptions::default()).ok()?;
            tokens.truncate(MAX_TAIL);
            Some(tokens.into())
        };
        let bytes = text.as_bytes();
        Some(BreakerText { first: *bytes.first()?, bytes, rests: (0..bytes.len()).map(rest).collect() })
    }

    fn is_within(&self, piece: &[u8]) -> bool {
        self.places(piece).any(|end| end.starts_with(self.bytes))
    }

    /// The rests of the text whose beginnings the token ends with.
    fn rests_after(&self, piece: &[u8]) -> impl Iterator<Item = &Arc<[u32]>> {
        self.places(piece)
            .filter(|end| self.bytes.starts_with(end))
            .filter_map(|end| self.rests.get(end.len())?.as_ref())
    }

    /// What the token is from each place where the text could begin.
    fn places<'a>(&self, piece: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let first = self.first;
        piece.iter().enumerate().filter(move |(_, byte)| **byte == first).map(|(start, _)| &piece[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_suffixes_equal_their_definition() {
        for seed in 0..200u64 {
            let token = |i: u64| ((i * i * 2654435761 + seed * (i + 7)) >> 7) as u32 % (2 + seed as u32 % 3);
            let window: Vec<u32> = (0..seed % 40).map(token).collect();
            let mut runs = Vec::new();
            common_suffixes(&window, &mut runs);
            for d in 1..window.len() {
                let (early, late) = (&window[..window.len() - d], &window[..]);
                let run = early.iter().rev().zip(late.iter().rev()).take_while(|(a, b)| a == b).count();
                assert_eq!(runs[d], run, "{window:?} at {d}");
            }
        }
    }
}
