//! The identity of a model's content, for what is kept beside it: a saved session of one checkpoint must not resume on another.

use std::{fmt, ops::Range};

use sha2::{Digest, Sha256};

use crate::{Result, Source};

/// Told first, so that another rule gives other fingerprints.
const RULE: &str = "kinfolk fingerprint 1";

/// Blocks read of each tensor, evenly spaced from its first bytes to its last.
const BLOCKS_PER_TENSOR: usize = 4;

/// Length of a block. Tensors no longer than all their blocks, as most norms are, are read whole.
const BLOCK_BYTES: usize = 1024;

/// Blocks read in all: at most 4 MiB, however large the model. Beyond it tensors are read at fewer places, and
/// beyond one place each, every second, third, … tensor is.
const MAX_BLOCKS: usize = 4096;

/// Identifies a model by its content: SHA-256 over its config, the names, types and shapes of its tensors, and samples of their bytes.
///
/// Equal for a copy, a renamed or moved file, other shards of the same tensors, and a config whose keys stand in another order. Of
/// the config all counts but its provenance (`_name_or_path`, `transformers_version`, GGUF's `general.*` but the architecture) and
/// GGUF's tokenizer. Two trainings of one shape differ, since training changes bytes everywhere; a change of a few bytes that no
/// sample sees is not noticed, so this is no checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The bytes, to be stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A fingerprint that was stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Fingerprint {
        Fingerprint(bytes)
    }
}

/// 64 lower-case hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Source {
    /// Identifies the model by its content.
    ///
    /// # Errors
    /// `Io` if a file cannot be read any more; `Malformed` of an outline, which has no bytes.
    ///
    /// # Cost
    /// Reads and hashes at most 4 MiB of tensor bytes, and the config: milliseconds where the file is cached; on a file never read
    /// before, the time of at most 4096 reads.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        let mut hash = Sha256::new();
        // With its length before it, no part can pass for the end of another.
        let mut tell = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        tell(RULE.as_bytes());
        self.config().tell_facts(&mut tell);
        let n_tensors = self.tensors().count();
        let blocks_per_tensor = (MAX_BLOCKS / n_tensors.max(1)).clamp(1, BLOCKS_PER_TENSOR);
        let stride = n_tensors.div_ceil(MAX_BLOCKS).max(1);
        for (index, info) in self.tensors().enumerate() {
            tell(info.name.as_bytes());
            tell(format!("{} {:?}", info.dtype, info.shape).as_bytes());
            if index.is_multiple_of(stride) {
                self.sample(info, blocks_per_tensor, BLOCK_BYTES, &mut tell)?;
            }
        }
        Ok(Fingerprint(hash.finalize().into()))
    }
}

/// Where `n` blocks of `block_len` lie in `n_bytes`, the first at the beginning and the last at the end; all of it if that is no more.
pub(crate) fn blocks(n_bytes: usize, n: usize, block_len: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = n_bytes <= n.saturating_mul(block_len);
    let n = if whole { 1 } else { n };
    (0..n).map(move |i| {
        let room = n_bytes.saturating_sub(block_len);
        // The middle where there is one block: ends of an embedding are tokens that training rarely meets.
        let start = if n == 1 { room / 2 } else { room / (n - 1) * i + room % (n - 1) * i / (n - 1) };
        if whole { 0..n_bytes } else { start..start + block_len }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_reach_from_the_first_byte_to_the_last() {
        for n_bytes in [0, 1, 10, 40] {
            assert!(blocks(n_bytes, 4, 10).eq(std::iter::once(0..n_bytes)), "{n_bytes}");
        }
        assert_eq!(blocks(41, 4, 10).collect::<Vec<_>>(), [0..10, 10..20, 20..30, 31..41]);
        assert_eq!(blocks(1010, 4, 10).collect::<Vec<_>>(), [0..10, 333..343, 666..676, 1000..1010]);
        assert!(blocks(30, 1, 10).eq(std::iter::once(10..20)));
    }

    #[test]
    fn a_fingerprint_is_written_in_hexadecimal() {
        let mut bytes = [0; 32];
        (bytes[0], bytes[31]) = (0x0a, 0xff);
        let fingerprint = Fingerprint::from_bytes(bytes);
        assert_eq!(fingerprint.to_string(), format!("0a{}ff", "00".repeat(30)));
        assert_eq!(fingerprint.as_bytes(), &bytes);
    }
}
