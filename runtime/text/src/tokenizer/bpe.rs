//! Merge-list BPE over the words of a pre-tokenizer, for vocabularies that live in a GGUF file.

use std::ops::Range;

use tokenizers::{
    Model,
    models::bpe::{BPE, Vocab},
};

use super::{
    byte_level,
    pre_tokenizer::{Alphabet, PreTokenizer, Splitter},
    vocabulary::{Vocabulary, WORD_MARK},
};
use crate::{Result, TextError};

const MERGES: &str = "tokenizer.ggml.merges";

/// Merges, and the words they work in.
pub(crate) struct Bpe {
    model: BPE,
    splitter: Splitter,
    alphabet: Alphabet,
    /// The token for a run of line ends, which the merges of Gemma 4 do not build.
    whole_line_ends: bool,
}

impl std::fmt::Debug for Bpe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bpe").field("alphabet", &self.alphabet).finish_non_exhaustive()
    }
}

impl Bpe {
    /// Builds the merges. A merge is two tokens separated by a space.
    ///
    /// # Errors
    /// `Vocabulary` for a merge without separator, or of something that is no token.
    pub(crate) fn new(vocabulary: &Vocabulary, merges: &[String], pre_tokenizer: &PreTokenizer) -> Result<Bpe> {
        let tokens: Vocab = vocabulary.iter().map(|(id, text, _)| (text.to_owned(), id)).collect();
        let merges = merges
            .iter()
            .enumerate()
            .map(|(line, merge)| checked_halves(vocabulary, line, merge))
            .collect::<Result<_>>()?;
        let model = BPE::builder()
            .vocab_and_merges(tokens, merges)
            .ignore_merges(pre_tokenizer.ignore_merges)
            .byte_fallback(pre_tokenizer.alphabet == Alphabet::WordMarks)
            .build()
            .map_err(|error| TextError::vocabulary(MERGES, error.to_string()))?;
        Ok(Bpe {
            model,
            splitter: Splitter::new(pre_tokenizer)?,
            alphabet: pre_tokenizer.alphabet,
            whole_line_ends: pre_tokenizer.alphabet == Alphabet::WordMarks,
        })
    }

    /// Encodes text that holds no added token; `emit` gets each token and the bytes of `text` it covers.
    ///
    /// # Errors
    /// `Encode` as the merges say; not for a model this module built.
    pub(crate) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        mut emit: impl FnMut(u32, Range<usize>),
    ) -> Result<()> {
        for word in self.splitter.split(text) {
            let piece = &text[word.clone()];
            if self.whole_line_ends
                && piece.bytes().all(|byte| byte == b'\n')
                && let Some(id) = vocabulary.id(piece)
            {
                emit(id, word);
                continue;
            }
            let spelled = match self.alphabet {
                Alphabet::ByteLevel => byte_level::spell(piece.as_bytes()),
                Alphabet::WordMarks => piece.chars().map(|c| if c == ' ' { WORD_MARK } else { c }).collect(),
                Alphabet::Text => piece.to_owned(),
            };
            let tokens =
                self.model.tokenize(&spelled).map_err(|error| TextError::Encode { reason: error.to_string() })?;
            let mut origin = Origin { alphabet: self.alphabet, spelled: &spelled, piece, read: 0, at: 0 };
            for token in tokens {
                let start = origin.advance(token.offsets.0);
                let end = origin.advance(token.offsets.1);
                emit(token.id, word.start + start..word.start + end);
            }
        }
        Ok(())
    }
}

/// The two tokens of a merge, which spell a third. (The builder panics where the third is longer than every token.)
fn checked_halves(vocabulary: &Vocabulary, line: usize, merge: &str) -> Result<(String, String)> {
    let (left, right) = halves(line, merge)?;
    for token in [left.as_str(), right.as_str(), &format!("{left}{right}")] {
        if vocabulary.id(token).is_none() {
            let reason = format!("entry {line}: expected tokens of the vocabulary, found `{token}`");
            return Err(TextError::vocabulary(MERGES, reason));
        }
    }
    Ok((left, right))
}

/// The two tokens of a merge. Neither is empty, so a space in front belongs to the first.
pub(super) fn halves(line: usize, merge: &str) -> Result<(String, String)> {
    let separator = merge.char_indices().skip(1).find(|&(_, c)| c == ' ').map(|(at, _)| at);
    let (left, right) = separator.map(|at| (&merge[..at], &merge[at + 1..])).unwrap_or_default();
    if left.is_empty() || right.is_empty() {
        return Err(TextError::vocabulary(
            MERGES,
            format!("entry {line}: expected two tokens separated by a space, found `{merge}`"),
        ));
    }
    Ok((left.to_owned(), right.to_owned()))
}

/// A place in a word, moved along by bytes of its spelling.
struct Origin<'a> {
    alphabet: Alphabet,
    spelled: &'a str,
    piece: &'a str,
    read: usize,
    at: usize,
}

impl Origin<'_> {
    /// The place in the word that corresponds to a place in its spelling. Places come in ascending order.
    fn advance(&mut self, to: usize) -> usize {
        let to = to.max(self.read);
        let Some(stretch) = self.spelled.get(self.read..to) else {
            // Byte tokens of one character are counted as one byte each: inside it, spelling and text are the same.
            return self.at + (to - self.read).min(self.piece.len() - self.at);
        };
        let n_chars = stretch.chars().count();
        self.at += match self.alphabet {
            Alphabet::ByteLevel => n_chars,
            Alphabet::WordMarks | Alphabet::Text => {
                self.piece[self.at..].chars().take(n_chars).map(char::len_utf8).sum()
            }
        };
        self.read = to;
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A6: a merge line with no separator.
    #[test]
    fn a_merge_without_separator_is_an_error_that_names_the_key_and_the_line() {
        for merge in ["ab", "", " ", "a ", "ab "] {
            let message = halves(7, merge).unwrap_err().to_string();
            assert!(message.contains(MERGES) && message.contains('7'), "{message}");
        }
        assert_eq!(halves(0, "Ġ t").unwrap(), ("Ġ".to_owned(), "t".to_owned()));
        assert_eq!(halves(0, "é x").unwrap(), ("é".to_owned(), "x".to_owned()));
    }
}
