//! GGUF.

use crate::ConfigError;

/// The key/value section of a GGUF file.
#[derive(Clone, Debug, Default)]
pub struct GgufMetadata {}

type Result<T> = std::result::Result<T, ConfigError>;

impl GgufMetadata {
    /// Every key, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        [].iter().copied()
    }

    /// A text. `None` if absent.
    ///
    /// # Errors
    /// `Mistyped` if the value is no text; so for the others.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        let _ = key;
        unreachable!()
    }

    /// A switch.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        let _ = key;
        unreachable!()
    }

    /// An integer of any width that fits.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        let _ = key;
        unreachable!()
    }

    /// A real number; integers are accepted.
    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        let _ = key;
        unreachable!()
    }

    /// An array of texts.
    pub fn strs(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let _ = key;
        unreachable!()
    }

    /// An array of floats (F32 or F64 elements; integers are refused, since a score stored as a byte is a damaged file).
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        let _ = key;
        unreachable!()
    }

    /// An array of integers of any width that fit i64.
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>> {
        let _ = key;
        unreachable!()
    }
}
