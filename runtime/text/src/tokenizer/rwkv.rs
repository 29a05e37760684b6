//! RWKV's world vocabulary: from each place on, the longest token. Tokens are bytes, spelled with escapes.

use std::ops::Range;

use super::{
    trie::Trie,
    vocabulary::{TokenKind, Vocabulary},
};
use crate::{Result, TextError};

/// The tokens of an RWKV vocabulary.
#[derive(Debug)]
pub(crate) struct Rwkv {
    tokens: Trie,
    unknown: Option<u32>,
}

impl Rwkv {
    pub(crate) fn new(vocabulary: &Vocabulary, unknown: Option<u32>) -> Result<Rwkv> {
        let texts = vocabulary.iter().filter(|&(_, _, kind)| kind != TokenKind::Control);
        Ok(Rwkv { tokens: Trie::new(texts.map(|(id, text, _)| (unescaped(text), id)))?, unknown })
    }

    /// Encodes text that holds no added token; `emit` gets each token and the bytes of `text` it covers.
    ///
    /// # Errors
    /// `Encode` for a byte without token in a vocabulary without an unknown token.
    pub(crate) fn encode(&self, text: &str, mut emit: impl FnMut(u32, Range<usize>)) -> Result<()> {
        let text = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let reason = || format!("the vocabulary has no token for byte 0x{byte:02x} and no unknown token");
            let (len, id) = match self.tokens.prefixes(&text[at..]).last() {
                Some(longest) => longest,
                None => (1, self.unknown.ok_or_else(|| TextError::Encode { reason: reason() })?),
            };
            emit(id, at..at + len);
            at += len;
        }
        Ok(())
    }
}

/// The bytes a spelling stands for: `\t`, `\n`, `\r`, `\xNN`, and whatever else follows a backslash as it is.
pub(super) fn unescaped(spelling: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(spelling.len());
    let mut rest = spelling.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else { break };
        rest = after;
        let hex = || Some(hex_digit(*after.first()?)? << 4 | hex_digit(*after.get(1)?)?);
        match (escape, hex()) {
            (b't', _) => out.push(b'\t'),
            (b'n', _) => out.push(b'\n'),
            (b'r', _) => out.push(b'\r'),
            (b'x', Some(byte)) => {
                out.push(byte);
                rest = &after[2..];
            }
            (other, _) => out.push(other),
        }
    }
    out
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        for (spelling, bytes) in [
            (r"\n\t\r\\", &b"\n\t\r\\"[..]),
            (r"\xe6\x97a", b"\xe6\x97a"),
            (r"\'\x", b"'x"),
            (r"\xg1\", b"xg1"),
            ("é", "é".as_bytes()),
        ] {
            assert_eq!(unescaped(spelling), bytes, "{spelling}");
        }
    }
}
