//! Tokens to text, one at a time.

use std::sync::Arc;

use crate::tokenizer::vocabulary::Vocabulary;

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
}

impl Detokenizer {
    pub(crate) fn new(vocabulary: Arc<Vocabulary>, skip_special: bool) -> Detokenizer {
        let at_start = vocabulary.strips_first_space;
        Detokenizer { vocabulary, skip_special, pending: Vec::new(), at_start }
    }

    /// Takes a token; returns the text that is certain now, possibly none.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.push_to(id, &mut text);
        text
    }

    /// [`push`](Self::push) onto a text.
    pub fn push_to(&mut self, id: u32, text: &mut String) {
        let Some(bytes) = self.vocabulary.bytes(id) else { return };
        if self.skip_special && self.vocabulary.kind(id).is_some_and(|kind| kind.is_special()) {
            return;
        }
        let mut bytes: &[u8] = &bytes;
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

    /// Ends the text; returns what was held back, as U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
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
