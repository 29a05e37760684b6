//! WordPiece, as BERT's vocabularies have it: each word is cut into the longest tokens from its start.
//!
//! The reading is that of llama.cpp (`llm_tokenizer_wpm`), whose files spell the start of a word with a word mark where
//! BERT's own spell its inside with `##`. It parts from BERT's in that words may be of any length, that a character keeps only the
//! first part of its decomposition, and that the other line ends are white space.

use std::ops::Range;

use unicode_normalization::char::decompose_canonical;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

use super::{
    trie::Trie,
    vocabulary::{TokenKind, Vocabulary, WORD_MARK},
};
use crate::{Result, TextError};

/// The tokens of a WordPiece vocabulary, and what becomes of a text before.
#[derive(Debug)]
pub(crate) struct WordPiece {
    tokens: Trie,
    unknown: Option<u32>,
    lowercase: bool,
    strip_accents: bool,
}

/// A word as the vocabulary spells it, and where each of its characters comes from.
#[derive(Default)]
struct Word {
    spelled: String,
    /// Per character: its place in `spelled`, and in the text.
    origins: Vec<(usize, Range<usize>)>,
}

impl WordPiece {
    pub(crate) fn new(
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
        lowercase: bool,
        strip_accents: bool,
    ) -> Result<WordPiece> {
        let texts = vocabulary.iter().filter(|(_, _, kind)| *kind != TokenKind::Control);
        let tokens = Trie::new(texts.map(|(id, text, _)| (text, id)))?;
        Ok(WordPiece { tokens, unknown, lowercase, strip_accents })
    }

    /// Encodes text that holds no added token; `emit` gets each token and the bytes of `text` it covers.
    ///
    /// # Errors
    /// `Encode` for a word without tokens in a vocabulary without an unknown token.
    pub(crate) fn encode(&self, text: &str, mut emit: impl FnMut(u32, Range<usize>)) -> Result<()> {
        let mut word = Word::default();
        for (at, c) in text.char_indices() {
            let range = at..at + c.len_utf8();
            if c.is_whitespace() {
                self.end(&mut word, &mut emit)?;
                continue;
            }
            let c = if self.strip_accents { base(c) } else { c };
            let group = c.general_category_group();
            let is_dropped = matches!(c, '\0' | char::REPLACEMENT_CHARACTER)
                || group == GeneralCategoryGroup::Other && c.general_category() != GeneralCategory::Unassigned
                || self.strip_accents && group == GeneralCategoryGroup::Mark;
            if is_dropped {
                continue;
            }
            let stands_alone = group == GeneralCategoryGroup::Punctuation
                || (group == GeneralCategoryGroup::Symbol && c < '\u{7f}')
                || is_ideograph(c);
            let c = if self.lowercase { c.to_lowercase().next().unwrap_or(c) } else { c };
            if stands_alone {
                self.end(&mut word, &mut emit)?;
            }
            word.push(c, range);
            if stands_alone {
                self.end(&mut word, &mut emit)?;
            }
        }
        self.end(&mut word, &mut emit)
    }

    /// Cuts the word, if there is one, and makes room for the next.
    fn end(&self, word: &mut Word, emit: &mut impl FnMut(u32, Range<usize>)) -> Result<()> {
        let Word { spelled, origins } = std::mem::take(word);
        let (Some((_, first)), Some((_, last))) = (origins.first(), origins.last()) else { return Ok(()) };
        let whole = first.start..last.end;
        let Some(tokens) = self.cut(spelled.as_bytes()) else {
            let reason = || format!("the vocabulary has no tokens for `{spelled}` and no unknown token");
            let unknown = self.unknown.ok_or_else(|| TextError::Encode { reason: reason() })?;
            emit(unknown, whole);
            return Ok(());
        };
        let mut origins = origins.into_iter().peekable();
        let mut start = 0;
        for (id, len) in tokens {
            start += len;
            let mut range: Option<Range<usize>> = None;
            while let Some((_, origin)) = origins.next_if(|(at, _)| *at < start) {
                range = Some(range.map_or(origin.start, |range| range.start)..origin.end);
            }
            // A token of the word mark alone covers nothing.
            emit(id, range.unwrap_or(whole.start..whole.start));
        }
        Ok(())
    }

    /// The longest tokens from the start on, with their lengths in bytes; `None` if they do not reach the end.
    fn cut(&self, mut word: &[u8]) -> Option<Vec<(u32, usize)>> {
        let mut tokens = Vec::new();
        while !word.is_empty() {
            let (len, id) = self.tokens.prefixes(word).last()?;
            tokens.push((id, len));
            word = word.get(len..)?;
        }
        Some(tokens)
    }
}

impl Word {
    fn push(&mut self, c: char, range: Range<usize>) {
        if self.spelled.is_empty() {
            self.spelled.push(WORD_MARK);
        }
        self.origins.push((self.spelled.len(), range));
        self.spelled.push(c);
    }
}

/// The first character of the canonical decomposition.
fn base(c: char) -> char {
    let mut first = None;
    decompose_canonical(c, |part| {
        first.get_or_insert(part);
    });
    first.unwrap_or(c)
}

/// Ideographs, each of which is a word.
fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0x2f800..=0x2fa1f)
}
