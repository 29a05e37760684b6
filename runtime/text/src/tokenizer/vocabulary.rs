//! The table of tokens: id to spelling and back, what kind each token is, and the bytes a spelling stands for.

use std::{borrow::Cow, collections::HashMap};

use super::{byte_level, rwkv};
use crate::{Result, TextError};

/// The word mark of SentencePiece, U+2581, written for a space.
pub(crate) const WORD_MARK: char = '▁';

/// No published vocabulary comes near; a file that claims more is damaged, and its table would be as large as it claims.
pub(crate) const MAX_TOKENS: usize = 1 << 23;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Text the model writes.
    Normal,
    /// Stands for text the vocabulary cannot spell.
    Unknown,
    /// Markup between the texts: turn marks, end marks.
    Control,
    /// Added by the model's makers and matched in text as a whole, but text all the same.
    UserDefined,
    /// A reserved place.
    Unused,
    /// One byte of a character that has no token.
    Byte(u8),
}

impl TokenKind {
    /// Whether the token is hidden when special tokens are skipped.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, TokenKind::Control | TokenKind::Unknown)
    }
}

/// How spellings stand for bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// In the byte alphabet of GPT-2; added tokens as they are.
    ByteLevel,
    /// As bytes with escapes, as RWKV's vocabularies have it.
    Escaped,
    /// As text in which some strings stand for others, [`WORD_MARK`] for a space above all.
    Pieces {
        /// Replaced in this order.
        replacements: Vec<(String, String)>,
        /// Whether added tokens are exempt. They are in a GGUF file, not in `tokenizer.json`.
        added_verbatim: bool,
    },
}

/// What decoding puts between tokens, or takes away where they meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Joint {
    /// Nothing: the text is the tokens' bytes.
    #[default]
    None,
    /// A space, as `tokenizers` does without a decoder.
    Space,
    /// A space, unless the token starts with the prefix, which goes. `tidy`: some spaces go again, see [`tidied`].
    WordPiece {
        /// `##`, as a rule.
        prefix: String,
        tidy: bool,
    },
    /// A space where the suffix was; nothing where it was at the end.
    WordEnd {
        /// `</w>`, as a rule.
        suffix: String,
    },
    /// Of equal tokens in a row one stays, and padding goes.
    Ctc { padding: String, delimiter: String, tidy: bool },
}

/// A stretch of text without the spaces that splitting English into words has put there. The order is that of `tokenizers`.
pub(crate) fn tidied(text: &str) -> String {
    const RULES: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    RULES.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[derive(Clone, Debug)]
struct Entry {
    text: Box<str>,
    kind: TokenKind,
}

/// The table of tokens.
#[derive(Clone)]
pub(crate) struct Vocabulary {
    entries: Vec<Option<Entry>>,
    ids: HashMap<Box<str>, u32>,
    spelling: Spelling,
    /// Whether the first space of a decoded text is the tokenizer's, not the text's.
    pub(crate) strips_first_space: bool,
    /// What happens between tokens.
    pub(crate) joint: Joint,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("len", &self.len()).field("spelling", &self.spelling).finish_non_exhaustive()
    }
}

impl Vocabulary {
    pub(crate) fn new(spelling: Spelling, strips_first_space: bool) -> Vocabulary {
        Vocabulary { entries: Vec::new(), ids: HashMap::new(), spelling, strips_first_space, joint: Joint::None }
    }

    /// How spellings stand for bytes.
    pub(crate) fn spelling(&self) -> &Spelling {
        &self.spelling
    }

    /// Enters a token. A later token of the same spelling takes the spelling over.
    ///
    /// # Errors
    /// `Vocabulary` under `key` if the id is out of all proportion.
    pub(crate) fn insert(&mut self, key: &str, id: u32, text: &str, kind: TokenKind) -> Result<()> {
        let place = id as usize;
        if place >= MAX_TOKENS {
            return Err(TextError::vocabulary(key, format!("expected ids below {MAX_TOKENS}, found {id}")));
        }
        if self.entries.len() <= place {
            self.entries.resize(place + 1, None);
        }
        self.entries[place] = Some(Entry { text: text.into(), kind });
        self.ids.insert(text.into(), id);
        Ok(())
    }

    /// Makes room for ids without a token.
    pub(crate) fn leave_holes(&mut self, n_tokens: usize) {
        self.entries.resize(n_tokens.min(MAX_TOKENS), None);
    }

    /// One more than the highest id.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn entry(&self, id: u32) -> Option<&Entry> {
        self.entries.get(id as usize)?.as_ref()
    }

    /// The spelling of a token; `None` for a hole.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.entry(id).map(|entry| &*entry.text)
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.entry(id).map(|entry| entry.kind)
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Every token there is, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        (0u32..).zip(&self.entries).filter_map(|(id, entry)| entry.as_ref().map(|entry| (id, &*entry.text, entry.kind)))
    }

    /// The bytes a token adds to the text; `None` for a hole.
    pub(crate) fn bytes(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        let Entry { text, kind } = self.entry(id)?;
        let added = matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined);
        Some(match (&self.spelling, kind) {
            (_, TokenKind::Byte(byte)) => Cow::Owned(vec![*byte]),
            (Spelling::ByteLevel, _) if added => Cow::Borrowed(text.as_bytes()),
            (Spelling::ByteLevel, _) => match byte_level::bytes_of(text) {
                Some(bytes) => Cow::Owned(bytes),
                None => Cow::Borrowed(text.as_bytes()),
            },
            (Spelling::Escaped, _) => Cow::Owned(rwkv::unescaped(text)),
            (Spelling::Pieces { added_verbatim: true, .. }, _) if added => Cow::Borrowed(text.as_bytes()),
            (Spelling::Pieces { replacements, .. }, _) => {
                let mut spelled = Cow::Borrowed(&**text);
                for (from, to) in replacements {
                    if spelled.contains(from.as_str()) {
                        spelled = Cow::Owned(spelled.replace(from, to));
                    }
                }
                match spelled {
                    Cow::Borrowed(spelled) => Cow::Borrowed(spelled.as_bytes()),
                    Cow::Owned(spelled) => Cow::Owned(spelled.into_bytes()),
                }
            }
        })
    }
}

/// The byte that a token spelled `<0xE9>` stands for.
pub(crate) fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_are_two_hex_digits_and_nothing_else() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xe9>"), Some(0xe9));
        for other in ["<0x0>", "<0x+A>", "<0x0A", "0x0A", "<0x0A>>", "<0xGG>"] {
            assert_eq!(byte_token(other), None, "{other}");
        }
    }

    #[test]
    fn an_id_out_of_all_proportion_is_an_error_and_allocates_nothing() {
        let mut vocabulary = Vocabulary::new(Spelling::ByteLevel, false);
        let error = vocabulary.insert("model.vocab", u32::MAX, "a", TokenKind::Normal).unwrap_err();
        assert!(error.to_string().contains("model.vocab"));
        assert_eq!(vocabulary.len(), 0);
    }
}
