//! Tokens to text, one at a time.

use std::sync::Arc;

use crate::tokenizer::vocabulary::{Joint, Vocabulary, tidied};

/// Makes text of tokens as they come. What it returns, put together, is what
/// [`Tokenizer::decode`](crate::Tokenizer::decode) makes of all the tokens at once.
///
/// A character whose bytes are spread over tokens comes out when its last byte is there. Bytes that can no longer become a
/// character come out as U+FFFD at once, in their place.
///
/// # Cost
/// O(bytes of the token) per token; nothing is decoded twice.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    skip_special: bool,
    /// The bytes of an unfinished character: at most three.
    pending: Vec<u8>,
    /// Whether the first bytes are yet to come, which may start with a space that is not the text's.
    at_start: bool,
    /// Whether a token was shown before, which the next is joined to.
    has_before: bool,
    /// The token before, where equal ones in a row count once.
    before: Option<u32>,
    /// The end of the token before, from the suffix that ends a word on: what becomes of it depends on whether another follows.
    word_end: String,
}

impl Detokenizer {
    pub(crate) fn new(vocabulary: Arc<Vocabulary>, skip_special: bool) -> Detokenizer {
        let at_start = vocabulary.strips_first_space;
        Detokenizer {
            vocabulary,
            skip_special,
            pending: Vec::new(),
            at_start,
            has_before: false,
            before: None,
            word_end: String::new(),
        }
    }

    /// Takes a token; returns the text that is certain now, possibly none.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.push_to(id, &mut text);
        text
    }

    /// [`push`](Self::push) onto a text.
    pub fn push_to(&mut self, id: u32, text: &mut String) {
        let vocabulary = Arc::clone(&self.vocabulary);
        let Some(bytes) = vocabulary.bytes(id) else { return };
        if self.skip_special && vocabulary.kind(id).is_some_and(|kind| kind.is_special()) {
            return;
        }
        match (&vocabulary.joint, vocabulary.text(id)) {
            (Joint::None, _) | (_, None) => self.write(&bytes, text),
            (joint, Some(token)) => {
                let joined = self.joined(joint, id, token);
                self.write(joined.as_bytes(), text);
            }
        }
    }

    /// What a token adds after the one before.
    fn joined(&mut self, joint: &Joint, id: u32, token: &str) -> String {
        let has_before = std::mem::replace(&mut self.has_before, true);
        match joint {
            Joint::Space if has_before => format!(" {token}"),
            Joint::None | Joint::Space => token.to_owned(),
            Joint::WordPiece { prefix, tidy } => {
                let joined = match token.strip_prefix(prefix.as_str()) {
                    _ if !has_before => token.to_owned(),
                    Some(inside) => inside.to_owned(),
                    None => format!(" {token}"),
                };
                if *tidy { tidied(&joined) } else { joined }
            }
            Joint::WordEnd { suffix } => {
                let (certain, open) = token.split_at(token.find(suffix.as_str()).unwrap_or(token.len()));
                let before = std::mem::replace(&mut self.word_end, open.to_owned());
                before.replace(suffix.as_str(), " ") + certain
            }
            Joint::Ctc { padding, delimiter, tidy } => {
                if self.before.replace(id) == Some(id) {
                    return String::new();
                }
                let without = if padding.is_empty() { token.to_owned() } else { token.replace(padding.as_str(), "") };
                if *tidy { tidied(&without).replace(delimiter.as_str(), " ") } else { without }
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8], text: &mut String) {
        if self.at_start && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.at_start = false;
        }
        if self.pending.is_empty() {
            let rest = decode_to(bytes, text);
            self.pending.extend_from_slice(rest);
        } else {
            let mut joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            let rest = decode_to(&joined, text);
            self.pending.extend_from_slice(rest);
        }
    }

    /// Ends the text; returns what was held back, as U+FFFD where it is no text.
    pub fn finish(mut self) -> String {
        let mut text = String::new();
        if let Joint::WordEnd { suffix } = &Arc::clone(&self.vocabulary).joint {
            let word_end = std::mem::take(&mut self.word_end).replace(suffix.as_str(), "");
            self.write(word_end.as_bytes(), &mut text);
        }
        text.push_str(&String::from_utf8_lossy(&self.pending));
        text
    }
}

/// Decodes all that is certain; returns the bytes of a character that may still be completed.
fn decode_to<'a>(mut bytes: &'a [u8], text: &mut String) -> &'a [u8] {
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return &[];
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(&String::from_utf8_lossy(valid));
        match error.error_len() {
            None => return rest,
            Some(invalid) => {
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = &rest[invalid..];
            }
        }
    }
}
