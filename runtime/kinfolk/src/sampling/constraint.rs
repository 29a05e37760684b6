//! What restricts the next token from outside the model, such as a grammar.

use std::fmt;

/// Tells which tokens may come next, for one reply.
///
/// The chain asks before any of its stages runs, so that whatever is chosen is allowed. With the feature `grammar`,
/// [`GrammarCompiler`](super::GrammarCompiler) makes constraints of JSON schemas, regular expressions and grammars.
pub trait Constraint: Send + fmt::Debug {
    /// Allows in `allowed`, which holds no token yet and is as wide as the logits, every token that may come next.
    ///
    /// # Errors
    /// If that cannot be told, for instance since it would take too long.
    fn allow(&mut self, allowed: &mut TokenMask) -> Result<(), ConstraintError>;

    /// Records the token that was chosen.
    ///
    /// # Errors
    /// If that token is not allowed.
    fn accept(&mut self, token: u32) -> Result<(), ConstraintError>;

    /// Whether nothing may follow but the end.
    fn is_complete(&self) -> bool;
}

/// Why a constraint cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConstraintError {
    /// What went wrong.
    pub reason: String,
}

/// A set of tokens, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    /// Token 32 i + j is bit j of word i.
    words: Vec<u32>,
    vocab_size: usize,
}

impl TokenMask {
    /// The empty set over a vocabulary.
    pub fn new(vocab_size: usize) -> TokenMask {
        TokenMask { words: vec![0; vocab_size.div_ceil(32)], vocab_size }
    }

    /// Empties the set, for a vocabulary of this size.
    pub(super) fn clear(&mut self, vocab_size: usize) {
        self.words.clear();
        self.words.resize(vocab_size.div_ceil(32), 0);
        self.vocab_size = vocab_size;
    }

    /// Tokens of the vocabulary, in the set or not.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Puts a token into the set; one outside the vocabulary is ignored.
    pub fn insert(&mut self, token: u32) {
        if (token as usize) < self.vocab_size {
            self.words[token as usize / 32] |= 1 << (token % 32);
        }
    }

    /// Whether a token is in the set.
    pub fn contains(&self, token: u32) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// The set as words: token 32 i + j is bit j of word i.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Keeps the tokens that are in the other set too, which may be over a smaller vocabulary.
    pub fn intersect(&mut self, other: &TokenMask) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(i).copied().unwrap_or(0);
        }
    }

    /// Puts in the tokens of another set given as [`words`](Self::words); those outside the vocabulary are ignored.
    pub fn insert_words(&mut self, words: &[u32]) {
        for (into, word) in self.words.iter_mut().zip(words) {
            *into |= word;
        }
        if let Some(last) = self.words.last_mut()
            && !self.vocab_size.is_multiple_of(32)
        {
            *last &= (1 << (self.vocab_size % 32)) - 1;
        }
    }
}
