//! The byte alphabet of GPT-2: every byte written as one printable character.
//!
//! Byte-level vocabularies spell their tokens in it. Printable Latin-1 bytes stand for themselves; the other 68 are
//! moved, in order, to U+0100 and up.

/// First character for bytes that are not printable.
const MOVED: u32 = 0x100;

/// Whether the byte stands for itself.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

const fn byte_to_char() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut moved = MOVED;
    let mut byte = 0;
    while byte < 256 {
        if is_printable(byte as u8) {
            table[byte] = byte as u8 as char;
        } else if let Some(c) = char::from_u32(moved) {
            table[byte] = c;
            moved += 1;
        }
        byte += 1;
    }
    table
}

static CHARS: [char; 256] = byte_to_char();

/// Spells bytes in the alphabet.
pub(crate) fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARS[usize::from(byte)]).collect()
}

/// The byte a character stands for, if it is of the alphabet.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    if let Ok(byte) = u8::try_from(u32::from(c)) {
        return is_printable(byte).then_some(byte);
    }
    let nth = u32::from(c).checked_sub(MOVED)?;
    (0..=u8::MAX).filter(|&byte| !is_printable(byte)).nth(usize::try_from(nth).ok()?)
}

/// The bytes a spelling stands for; `None` if it holds a character that is not of the alphabet.
pub(crate) fn bytes_of(spelling: &str) -> Option<Vec<u8>> {
    spelling.chars().map(byte_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character_and_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let spelled = spell(&all);
        assert_eq!(spelled.chars().collect::<std::collections::HashSet<_>>().len(), 256);
        assert_eq!(bytes_of(&spelled), Some(all));
    }

    #[test]
    fn known_characters_are_where_gpt2_put_them() {
        assert_eq!(spell(b" \n"), "ĠĊ");
        assert_eq!(byte_of('Ń'), Some(0xad));
        assert_eq!(byte_of('▁'), None);
        assert_eq!(byte_of(' '), None);
    }
}
