//! SentencePiece BPE: the vocabulary's scores say what to merge.
//!
//! Characters are joined pairwise into the token of the highest score that any neighbouring pair spells, the leftmost of
//! equals first, until no pair spells a token. A character without a token becomes its bytes. This is the reading of
//! llama.cpp (`llm_tokenizer_spm`) and of `sentencepiece` itself; a merge list could not say it, since lists order pairs
//! and here two pairs that spell the same token are equal.
//!
//! Control, unknown and byte tokens have scores too, but text never spells them.

use std::{cmp::Ordering, collections::BinaryHeap, ops::Range};

use super::vocabulary::{TokenKind, Vocabulary, WORD_MARK};

/// The scores of a SentencePiece vocabulary.
pub(crate) struct Spm {
    scores: Vec<f32>,
    /// Per byte, the token that stands for it.
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    /// Bytes of the longest token, so that hopeless pairs cost no lookup.
    longest: usize,
}

impl std::fmt::Debug for Spm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spm").field("longest", &self.longest).finish_non_exhaustive()
    }
}

/// One stretch of the text that is a token so far: a list node.
#[derive(Clone, Copy)]
struct Symbol {
    previous: usize,
    next: usize,
    start: usize,
    /// Bytes; 0 once merged into the symbol before.
    len: usize,
}

const NONE: usize = usize::MAX;

/// Two neighbouring symbols that together spell a token.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both when the pair was found. If they changed since, the pair is gone.
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl Spm {
    /// `scores` has one entry per id of `vocabulary`.
    pub(crate) fn new(vocabulary: &Vocabulary, scores: Vec<f32>, unknown: Option<u32>) -> Spm {
        let mut bytes = vec![None; 256];
        let mut longest = 0;
        for (id, text, kind) in vocabulary.iter() {
            match kind {
                TokenKind::Byte(byte) => bytes[usize::from(byte)] = Some(id),
                _ => longest = longest.max(text.len()),
            }
        }
        Spm { scores, bytes, unknown, longest }
    }

    /// Encodes text that holds no added token; `emit` gets each token and the bytes of `text` it covers.
    ///
    /// # Cost
    /// O(n log n) in the characters.
    pub(crate) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        space_prefix: bool,
        mut emit: impl FnMut(u32, Range<usize>),
    ) {
        let escaped = escape(text, space_prefix);
        let symbols = self.merge(vocabulary, &escaped);
        let mut origin = Origin { text, at: 0, skip_mark: space_prefix };
        let mut index = if symbols.is_empty() { NONE } else { 0 };
        while index != NONE {
            let symbol = symbols[index];
            let piece = &escaped[symbol.start..symbol.start + symbol.len];
            let range = origin.advance(piece.chars().count());
            match self.token(vocabulary, piece) {
                Some(id) => emit(id, range),
                None => self.emit_bytes(piece, range, &mut emit),
            }
            index = symbol.next;
        }
    }

    /// The token that text may spell this way.
    fn token(&self, vocabulary: &Vocabulary, piece: &str) -> Option<u32> {
        if piece.len() > self.longest {
            return None;
        }
        let id = vocabulary.id(piece)?;
        let kind = vocabulary.kind(id)?;
        matches!(kind, TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused).then_some(id)
    }

    fn merge(&self, vocabulary: &Vocabulary, text: &str) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, c))| Symbol {
                previous: index.checked_sub(1).unwrap_or(NONE),
                next: index + 1,
                start,
                len: c.len_utf8(),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let pair = |symbols: &[Symbol], left: usize, right: usize| {
            let (first, second) = (symbols.get(left)?, symbols.get(right)?);
            let len = first.len + second.len;
            let id = self.token(vocabulary, text.get(first.start..first.start + len)?)?;
            Some(Pair { score: *self.scores.get(id as usize)?, left, right, len })
        };

        let mut queue: BinaryHeap<Pair> =
            (1..symbols.len()).filter_map(|right| pair(&symbols, right - 1, right)).collect();
        while let Some(Pair { left, right, len, .. }) = queue.pop() {
            let (first, second) = (symbols[left], symbols[right]);
            if first.len == 0 || second.len == 0 || first.len + second.len != len {
                continue;
            }
            symbols[left].len = len;
            symbols[left].next = second.next;
            symbols[right].len = 0;
            if let Some(after) = symbols.get_mut(second.next) {
                after.previous = left;
            }
            queue.extend(pair(&symbols, first.previous, left));
            queue.extend(pair(&symbols, left, second.next));
        }
        symbols
    }

    /// A piece without a token, byte by byte; the unknown token where even bytes have none.
    fn emit_bytes(&self, piece: &str, range: Range<usize>, emit: &mut impl FnMut(u32, Range<usize>)) {
        let tokens: Option<Vec<u32>> = piece.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        match tokens {
            // The word mark may stand for a space, whose one byte in the text all three tokens then share.
            Some(tokens) if tokens.len() != range.len() => {
                tokens.into_iter().for_each(|id| emit(id, range.clone()));
            }
            Some(tokens) => {
                for (at, id) in range.zip(tokens) {
                    emit(id, at..at + 1);
                }
            }
            None => {
                if let Some(id) = self.unknown {
                    emit(id, range);
                }
            }
        }
    }
}

/// The text as the vocabulary spells it.
fn escape(text: &str, space_prefix: bool) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 4 + WORD_MARK.len_utf8());
    if space_prefix {
        escaped.push(WORD_MARK);
    }
    escaped.extend(text.chars().map(|c| if c == ' ' { WORD_MARK } else { c }));
    escaped
}

/// A place in the text before escaping, moved along by characters of the escaped one.
struct Origin<'a> {
    text: &'a str,
    at: usize,
    /// Whether the next character is the prefix, which the text does not have.
    skip_mark: bool,
}

impl Origin<'_> {
    fn advance(&mut self, mut n_chars: usize) -> Range<usize> {
        let start = self.at;
        if self.skip_mark && n_chars > 0 {
            self.skip_mark = false;
            n_chars -= 1;
        }
        self.at += self.text[start..].chars().take(n_chars).map(char::len_utf8).sum::<usize>();
        start..self.at
    }
}
