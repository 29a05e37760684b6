//! A cursor over the header of a GGUF file whose every step is checked against the bytes that are there.

use gguf_rs_lib::format::GGUFValueType;

/// Where reading stopped and why; the caller adds the file.
pub(crate) struct ReadError {
    /// What was expected and what was found.
    pub reason: String,
}

pub(crate) type Result<T> = std::result::Result<T, ReadError>;

/// A [`ReadError`] from a message.
pub(crate) fn fail<T>(reason: String) -> Result<T> {
    Err(ReadError { reason })
}

/// The header bytes and how far they were read.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, offset: 0 }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The next `n` bytes, which hold `what`.
    pub fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.offset..];
        match usize::try_from(n).ok().and_then(|n| rest.get(..n)) {
            Some(taken) => {
                self.offset += taken.len();
                Ok(taken)
            }
            None => fail(format!(
                "byte offset {}: expected {n} bytes of {what}, found {} before the end of the file",
                self.offset,
                rest.len()
            )),
        }
    }

    pub fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let taken = self.take(N as u64, what)?;
        // `take` returned exactly N bytes.
        Ok(taken.first_chunk().copied().unwrap_or([0; N]))
    }

    /// A length, then as many bytes of UTF-8; for names, which are short.
    pub fn name(&mut self, what: &str, max_bytes: u64) -> Result<&'a str> {
        let start = self.offset;
        let length = self.u64(what)?;
        if length == 0 || length > max_bytes {
            return fail(format!("byte offset {start}: expected a {what} of 1 to {max_bytes} bytes, found {length}"));
        }
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes)
            .or_else(|_| fail(format!("byte offset {start}: expected a {what} in UTF-8, found other bytes")))
    }

    /// The tag that says how a value is stored.
    pub fn value_type(&mut self, what: &str) -> Result<GGUFValueType> {
        let start = self.offset;
        let id = self.u32(what)?;
        GGUFValueType::from_u32(id).or_else(|_| {
            fail(format!("byte offset {start}: expected a value type from 0 to 12 for {what}, found {id}"))
        })
    }
}
