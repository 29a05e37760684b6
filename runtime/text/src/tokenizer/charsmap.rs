//! SentencePiece's precompiled table of characters: what stands for what before a text is cut.
//!
//! Layout, all little-endian: the size of the trie in bytes (u32); the trie, a double array of u32; replacements, each
//! ended by a zero byte. A unit of the array holds, from the low bits up: the byte that leads to it (0-7), whether a value hangs
//! below (8), whether the offset is shifted by 8 more (9), the offset to its children (10-30); or, with bit 31 set, a value: where
//! a replacement starts. The child of `node` under a byte is at `node ^ offset ^ byte`.

use super::trie::MAX_TOKEN_BYTES;
use crate::{Result, TextError};

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// The table; empty if a model normalises nothing.
#[derive(Default)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl std::fmt::Debug for Charsmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Charsmap").field("n_units", &self.units.len()).finish_non_exhaustive()
    }
}

/// A table that points outside itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl Charsmap {
    /// Reads a table.
    ///
    /// # Errors
    /// `Vocabulary` if the sizes it claims do not fit its own.
    pub(crate) fn new(blob: &[u8]) -> Result<Charsmap> {
        if blob.is_empty() {
            return Ok(Charsmap::default());
        }
        let damaged = || {
            let reason = format!("expected a table of characters that ends where it says, found {} bytes", blob.len());
            TextError::vocabulary(KEY, reason)
        };
        let (size, rest) = blob.split_first_chunk::<4>().ok_or_else(damaged)?;
        let size = usize::try_from(u32::from_le_bytes(*size)).map_err(|_| damaged())?;
        let (units, replacements) = rest.split_at_checked(size).ok_or_else(damaged)?;
        let (units, odd) = units.as_chunks::<4>();
        if !odd.is_empty() || replacements.is_empty() {
            return Err(damaged());
        }
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Charsmap { units, replacements: replacements.to_vec() })
    }

    /// What stands for the longest entry a text starts with, and that entry's length in bytes.
    ///
    /// # Errors
    /// `Damaged` if the table points outside itself.
    pub(crate) fn longest_prefix(&self, text: &[u8]) -> std::result::Result<Option<(&[u8], usize)>, Damaged> {
        let Some(&root) = self.units.first() else { return Ok(None) };
        let mut node = offset(root);
        let mut longest = None;
        // A damaged table may lead in circles.
        for (at, &byte) in text.iter().take(MAX_TOKEN_BYTES).enumerate() {
            if byte == 0 {
                break;
            }
            node ^= u32::from(byte);
            let unit = self.unit(node)?;
            if unit & LABEL != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit & HAS_VALUE != 0 {
                longest = Some((self.unit(node)? & !IS_VALUE, at + 1));
            }
        }
        let Some((start, len)) = longest else { return Ok(None) };
        let replacement = self.replacements.get(start as usize..).ok_or(Damaged)?;
        let end = replacement.iter().position(|&byte| byte == 0).ok_or(Damaged)?;
        Ok(Some((&replacement[..end], len)))
    }

    fn unit(&self, node: u32) -> std::result::Result<u32, Damaged> {
        self.units.get(node as usize).copied().ok_or(Damaged)
    }
}

const IS_VALUE: u32 = 1 << 31;
const LABEL: u32 = IS_VALUE | 0xff;
const HAS_VALUE: u32 = 1 << 8;

fn offset(unit: u32) -> u32 {
    (unit >> 10) << ((unit & (1 << 9)) >> 6)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A table with `A` -> `a`, `AB` -> `x y`, written by hand: the root's children are at 256 ^ byte, those of `A` at 512 ^ byte.
    pub(crate) fn table() -> Vec<u8> {
        let mut units = vec![0u32; 1024];
        units[0] = 256 << 10;
        units[256 ^ 0x41] = ((256 ^ 0x41 ^ 512) << 10) | HAS_VALUE | 0x41;
        units[512] = IS_VALUE;
        units[512 ^ 0x42] = ((512 ^ 0x42 ^ 768) << 10) | HAS_VALUE | 0x42;
        units[768] = IS_VALUE | 2;
        let mut blob = 4096u32.to_le_bytes().to_vec();
        blob.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        blob.extend(b"a\0x y\0");
        blob
    }

    #[test]
    fn the_longest_entry_wins() {
        let charsmap = Charsmap::new(&table()).unwrap();
        assert_eq!(charsmap.longest_prefix(b"ABC"), Ok(Some((&b"x y"[..], 2))));
        assert_eq!(charsmap.longest_prefix(b"AC"), Ok(Some((&b"a"[..], 1))));
        assert_eq!(charsmap.longest_prefix(b"BA"), Ok(None));
        assert_eq!(charsmap.longest_prefix(b""), Ok(None));
        assert_eq!(Charsmap::default().longest_prefix(b"A"), Ok(None));
    }

    #[test]
    fn a_table_that_points_outside_itself_is_an_error() {
        let blob = table();
        for cut in [3, 10, 4100] {
            assert!(Charsmap::new(&blob[..cut]).is_err(), "{cut}");
        }
        let unfinished = Charsmap::new(&blob[..4101]).unwrap();
        assert_eq!(unfinished.longest_prefix(b"A"), Err(Damaged));
        let mut outside = blob;
        outside[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Charsmap::new(&outside).unwrap().longest_prefix(b"A"), Err(Damaged));
    }
}
