//! SentencePiece's unigram model: of all ways to cut a text into tokens, the one whose scores add up highest.
//!
//! The reading is that of llama.cpp (`llm_tokenizer_ugm`) and of `sentencepiece` itself: characters are normalised by a table
//! in the file, spaces become word marks, and a character without a token costs ten more than the least likely token.

use std::ops::Range;

use super::{
    charsmap::Charsmap,
    trie::Trie,
    vocabulary::{TokenKind, Vocabulary, WORD_MARK},
};
use crate::{Result, TextError};

/// How much less likely than every token a character without a token is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// What becomes of a text before it is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    /// Read as if a space stood in front.
    pub(crate) prefix: bool,
    /// Spaces at the ends are dropped, and of several between words one stays.
    pub(crate) merge: bool,
}

/// The tokens and scores of a unigram vocabulary.
#[derive(Debug)]
pub(crate) struct Unigram {
    tokens: Trie,
    /// Per id.
    scores: Vec<f64>,
    unknown: u32,
    unknown_score: f64,
    charsmap: Charsmap,
    spacing: Spacing,
}

/// The best way to cut the text up to some place.
#[derive(Clone, Copy)]
struct Best {
    /// The last token.
    id: u32,
    /// Where it starts.
    start: usize,
    /// `-inf`: no way leads here.
    score: f64,
}

/// A normalised text, and per byte the bytes of the text it comes from.
#[derive(Default)]
struct Normalised {
    bytes: Vec<u8>,
    origins: Vec<Range<usize>>,
}

impl Unigram {
    /// `scores` has one entry per id of `vocabulary`.
    pub(crate) fn new(
        vocabulary: &Vocabulary,
        scores: &[f32],
        unknown: u32,
        charsmap: Charsmap,
        spacing: Spacing,
    ) -> Result<Unigram> {
        let is_text = |kind| matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused);
        let texts = vocabulary.iter().filter(|&(_, _, kind)| is_text(kind));
        let tokens = Trie::new(texts.map(|(id, text, _)| (text, id)))?;
        let mut all = Vec::with_capacity(scores.len());
        let mut lowest = f64::INFINITY;
        for (id, &score) in (0u32..).zip(scores) {
            // Sums of scores that are no numbers would compare with nothing.
            let score = if score.is_nan() { f64::NEG_INFINITY } else { f64::from(score) };
            match vocabulary.kind(id) {
                Some(TokenKind::Normal) => lowest = lowest.min(score),
                // User-defined tokens go before all others.
                Some(TokenKind::UserDefined) => {
                    all.push(0.0);
                    continue;
                }
                _ => {}
            }
            all.push(score);
        }
        let lowest = if lowest.is_finite() { lowest } else { 0.0 };
        Ok(Unigram { tokens, scores: all, unknown, unknown_score: lowest - UNKNOWN_PENALTY, charsmap, spacing })
    }

    /// Encodes text that holds no added token; `emit` gets each token and the bytes of `text` it covers.
    ///
    /// # Errors
    /// `Encode` if the table of characters is damaged.
    /// # Cost
    /// O(bytes of the text), times the length of the longest token.
    pub(crate) fn encode(&self, text: &str, mut emit: impl FnMut(u32, Range<usize>)) -> Result<()> {
        let text = self.normalise(text)?;
        let mut pieces = self.cut(&text.bytes);
        // One unknown token stands for a run of characters without token.
        pieces.dedup_by(|(next, range), (id, before)| {
            let joins = *id == self.unknown && *next == self.unknown;
            if joins {
                before.end = range.end;
            }
            joins
        });
        for (id, range) in pieces {
            let origins = text.origins.get(range).unwrap_or_default();
            let start = origins.first().map_or(0, |origin| origin.start);
            emit(id, start..origins.last().map_or(start, |origin| origin.end));
        }
        Ok(())
    }

    fn normalise(&self, text: &str) -> Result<Normalised> {
        let mut out = Normalised::default();
        let mut in_word = false;
        let mut has_prefix = false;
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let damaged = || TextError::Encode { reason: "the vocabulary's table of characters is damaged".to_owned() };
            let (replacement, len) = match self.charsmap.longest_prefix(rest.as_bytes()).map_err(|_| damaged())? {
                // A key of the table may end inside a character, if the table is damaged.
                Some((replacement, len)) if rest.is_char_boundary(len) => (replacement, len),
                Some(_) => return Err(damaged()),
                None => {
                    let len = rest.chars().next().map_or(1, char::len_utf8);
                    (&rest.as_bytes()[..len], len)
                }
            };
            let origin = at..at + len;
            for &byte in replacement {
                if byte != b' ' {
                    if !in_word && (self.spacing.merge || self.spacing.prefix && !has_prefix) {
                        out.push_space(origin.start..origin.start);
                        has_prefix = true;
                    }
                    in_word = true;
                    out.push(byte, origin.clone());
                } else {
                    in_word = false;
                    if !self.spacing.merge {
                        out.push_space(origin.clone());
                    }
                }
            }
            at += len;
        }
        Ok(out)
    }

    /// The best way to cut a text.
    fn cut(&self, text: &[u8]) -> Vec<(u32, Range<usize>)> {
        let mut best = vec![Best { id: self.unknown, start: 0, score: f64::NEG_INFINITY }; text.len() + 1];
        best[0].score = 0.0;
        let mut at = 0;
        while at < text.len() {
            let so_far = best[at].score;
            let len = char_len(text[at]).min(text.len() - at);
            let mut has_token = false;
            let mut offer = |end: usize, id: u32, score: f64| {
                if score > best[end].score {
                    best[end] = Best { id, start: at, score };
                }
            };
            for (token_len, id) in self.tokens.prefixes(&text[at..]) {
                has_token |= token_len == len;
                let score = self.scores.get(id as usize).copied().unwrap_or(f64::NEG_INFINITY);
                offer(at + token_len, id, so_far + score);
            }
            if !has_token {
                offer(at + len, self.unknown, so_far + self.unknown_score);
            }
            at += len;
        }

        let mut pieces = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let Best { id, start, .. } = best[end];
            pieces.push((id, start..end));
            end = start;
        }
        pieces.reverse();
        pieces
    }
}

impl Normalised {
    fn push(&mut self, byte: u8, origin: Range<usize>) {
        self.bytes.push(byte);
        self.origins.push(origin);
    }

    fn push_space(&mut self, origin: Range<usize>) {
        for &byte in WORD_MARK.encode_utf8(&mut [0; 4]).as_bytes() {
            self.push(byte, origin.clone());
        }
    }
}

/// Bytes of the character that starts with this one.
fn char_len(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
        _ => 1,
    }
}
