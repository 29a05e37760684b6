//! The key/value section of a GGUF file, kept as the file wrote it and decoded when asked.
//!
//! A vocabulary is two or three arrays of up to a few hundred thousand entries. Keeping their bytes and an index of keys costs
//! what the file costs; one value object per entry, as gguf-rs-lib keeps them, costs up to 32 times that for byte arrays,
//! which is more than a stranger's file may ask for. The library also refuses keys with a hyphen (`gpt-oss.block_count`) and
//! does not say which key a damaged value belongs to. So its type tags and limits are used here, and its scalars, while
//! walking the section is written out.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use gguf_rs_lib::format::{
    GGUF_MAX_METADATA_COUNT, GGUF_MAX_METADATA_KEY_LENGTH, GGUF_MAX_METADATA_NESTING_DEPTH, GGUFValueType,
    MetadataValue,
};

use super::reader::{self, Reader, fail};
use crate::{ConfigError, quote::quoted};

/// The least a key/value pair takes: key length, one byte of key, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;

type Result<T> = std::result::Result<T, ConfigError>;

/// The key/value section of a GGUF file. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct GgufMetadata {
    section: Arc<Section>,
}

#[derive(Debug, Default)]
struct Section {
    path: PathBuf,
    /// The header of the file up to the end of this section.
    header: Vec<u8>,
    entries: BTreeMap<String, Entry>,
}

/// One value: its type and where it lies in the header.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    bytes: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Scalar(GGUFValueType),
    Array { element: GGUFValueType, len: usize },
}

impl GgufMetadata {
    /// Reads `n_entries` pairs. The reader stands behind the file's fixed header and is left behind the section.
    pub(super) fn read(
        path: &Path,
        file: &[u8],
        reader: &mut Reader<'_>,
        n_entries: u64,
    ) -> reader::Result<GgufMetadata> {
        let room = reader.remaining() as u64 / MIN_ENTRY_BYTES;
        if n_entries > room.min(GGUF_MAX_METADATA_COUNT) {
            return fail(format!(
                "expected at most {} metadata keys in a file of this size, found a count of {n_entries}",
                room.min(GGUF_MAX_METADATA_COUNT)
            ));
        }
        let mut entries = BTreeMap::new();
        for _ in 0..n_entries {
            let start = reader.offset();
            let key = reader.name("metadata key", GGUF_MAX_METADATA_KEY_LENGTH as u64)?;
            let entry = Entry::read(reader, key)?;
            if entries.insert(key.to_owned(), entry).is_some() {
                return fail(format!("byte offset {start}: metadata key {} is there twice", quoted(key)));
            }
        }
        let header = file.get(..reader.offset()).unwrap_or_default().to_vec();
        Ok(GgufMetadata { section: Arc::new(Section { path: path.to_path_buf(), header, entries }) })
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.section.path
    }

    /// Every key, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.section.entries.keys().map(String::as_str)
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.section.entries.contains_key(key)
    }

    /// Entries of an array. `None` if the key is absent or holds no array.
    pub fn array_len(&self, key: &str) -> Option<usize> {
        match self.section.entries.get(key)?.kind {
            Kind::Array { len, .. } => Some(len),
            Kind::Scalar(_) => None,
        }
    }

    /// A text. `None` if absent.
    ///
    /// # Errors
    /// `Mistyped` if the value is no text; so for the others.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        const EXPECTED: &str = "a text in UTF-8";
        let Some(entry) = self.section.entries.get(key) else {
            return Ok(None);
        };
        if !matches!(entry.kind, Kind::Scalar(GGUFValueType::String)) {
            return Err(self.mistyped(key, EXPECTED));
        }
        let text = self.bytes_of(entry).get(8..).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.map(Some).ok_or_else(|| self.mistyped(key, EXPECTED))
    }

    /// A switch.
    ///
    /// # Errors
    /// `Mistyped` if the value is no switch.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.scalar(key, "a boolean", |value| value.as_bool())
    }

    /// An integer of any width that fits.
    ///
    /// # Errors
    /// `Mistyped` if the value is no integer or is negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.scalar(key, "an integer of at least 0", |value| integer(value).and_then(|value| u64::try_from(value).ok()))
    }

    /// A real number; integers are accepted.
    ///
    /// # Errors
    /// `Mistyped` if the value is no number.
    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.scalar(key, "a number", |value| value.as_f64().or_else(|| integer(value).map(|value| value as f64)))
    }

    /// An array of texts.
    ///
    /// # Errors
    /// `Mistyped` if the value is no array of texts or one of them is not UTF-8.
    pub fn strs(&self, key: &str) -> Result<Option<Vec<&str>>> {
        const EXPECTED: &str = "an array of texts in UTF-8";
        let Some((entry, element, len)) = self.array(key, EXPECTED)? else {
            return Ok(None);
        };
        if element != GGUFValueType::String {
            return Err(self.mistyped(key, EXPECTED));
        }
        let mut texts = Vec::with_capacity(len);
        let mut rest = self.bytes_of(entry);
        while let Some((length, tail)) = rest.split_first_chunk::<8>() {
            // The section was walked with these lengths when it was read, so they fit.
            let length = u64::from_le_bytes(*length) as usize;
            let Some((text, tail)) = tail.split_at_checked(length) else {
                break;
            };
            texts.push(std::str::from_utf8(text).map_err(|_| self.mistyped(key, EXPECTED))?);
            rest = tail;
        }
        Ok(Some(texts))
    }

    /// An array of floats (F32 or F64 elements; integers are refused, since a score stored as a byte is a damaged file).
    ///
    /// # Errors
    /// `Mistyped` if the value is no such array.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        const EXPECTED: &str = "an array of floats";
        let Some((entry, element, _)) = self.array(key, EXPECTED)? else {
            return Ok(None);
        };
        let bytes = self.bytes_of(entry);
        match element {
            GGUFValueType::F32 => Ok(Some(each(bytes, f32::from_le_bytes))),
            GGUFValueType::F64 => Ok(Some(each(bytes, |b| f64::from_le_bytes(b) as f32))),
            _ => Err(self.mistyped(key, EXPECTED)),
        }
    }

    /// An array of integers of any width that fit i64.
    ///
    /// # Errors
    /// `Mistyped` if the value is no such array.
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>> {
        const EXPECTED: &str = "an array of integers";
        let Some((entry, element, _)) = self.array(key, EXPECTED)? else {
            return Ok(None);
        };
        let bytes = self.bytes_of(entry);
        Ok(Some(match element {
            GGUFValueType::U8 => each(bytes, |b| u8::from_le_bytes(b).into()),
            GGUFValueType::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
            GGUFValueType::U16 => each(bytes, |b| u16::from_le_bytes(b).into()),
            GGUFValueType::I16 => each(bytes, |b| i16::from_le_bytes(b).into()),
            GGUFValueType::U32 => each(bytes, |b| u32::from_le_bytes(b).into()),
            GGUFValueType::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
            GGUFValueType::I64 => each(bytes, i64::from_le_bytes),
            GGUFValueType::U64 => {
                let wide = each(bytes, u64::from_le_bytes);
                let fits: std::result::Result<_, _> = wide.into_iter().map(i64::try_from).collect();
                fits.map_err(|_| self.mistyped(key, "an array of integers that fit i64"))?
            }
            _ => return Err(self.mistyped(key, EXPECTED)),
        }))
    }

    /// An array of switches.
    ///
    /// # Errors
    /// `Mistyped` if the value is no such array.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        const EXPECTED: &str = "an array of booleans";
        let Some((entry, element, _)) = self.array(key, EXPECTED)? else {
            return Ok(None);
        };
        match element {
            GGUFValueType::Bool => Ok(Some(self.bytes_of(entry).iter().map(|&b| b != 0).collect())),
            _ => Err(self.mistyped(key, EXPECTED)),
        }
    }

    /// The value under `key`, if it is there, is no array, and can be read.
    pub(crate) fn value(&self, key: &str) -> Option<MetadataValue> {
        let entry = self.section.entries.get(key)?;
        match entry.kind {
            Kind::Scalar(kind) => MetadataValue::read_from(&mut self.bytes_of(entry), kind).ok(),
            Kind::Array { .. } => None,
        }
    }

    /// The value under `key` as the file wrote it: its type in words, and its bytes.
    pub(crate) fn raw(&self, key: &str) -> Option<(String, &[u8])> {
        let entry = self.section.entries.get(key)?;
        Some((format!("{:?}", entry.kind), self.bytes_of(entry)))
    }

    /// The value under `key` through `want`, which says whether it is of the right type.
    fn scalar<T>(
        &self,
        key: &str,
        expected: &'static str,
        want: impl FnOnce(&MetadataValue) -> Option<T>,
    ) -> Result<Option<T>> {
        if !self.contains(key) {
            return Ok(None);
        }
        let wanted = self.value(key).and_then(|value| want(&value));
        wanted.map(Some).ok_or_else(|| self.mistyped(key, expected))
    }

    fn array(&self, key: &str, expected: &'static str) -> Result<Option<(&Entry, GGUFValueType, usize)>> {
        let Some(entry) = self.section.entries.get(key) else {
            return Ok(None);
        };
        match entry.kind {
            Kind::Array { element, len } => Ok(Some((entry, element, len))),
            Kind::Scalar(_) => Err(self.mistyped(key, expected)),
        }
    }

    fn bytes_of(&self, entry: &Entry) -> &[u8] {
        self.section.header.get(entry.bytes.clone()).unwrap_or_default()
    }

    /// An error that says what is under `key` instead.
    pub(crate) fn mistyped(&self, key: &str, expected: &'static str) -> ConfigError {
        let found = self.section.entries.get(key).map_or("nothing".into(), |entry| self.describe(entry));
        ConfigError::Mistyped { path: self.section.path.clone(), key: key.to_owned(), expected, found }
    }

    fn describe(&self, entry: &Entry) -> String {
        let bytes = self.bytes_of(entry);
        match entry.kind {
            Kind::Array { element, len } => format!("an array of {len} {element}"),
            Kind::Scalar(GGUFValueType::String) => {
                let text = String::from_utf8_lossy(bytes.get(8..).unwrap_or_default());
                format!("the text {}", quoted(&text))
            }
            Kind::Scalar(kind) => match MetadataValue::read_from(&mut { bytes }, kind) {
                Ok(value) => format!("{kind} {}", value.to_string_representation()),
                Err(_) => format!("a damaged {kind}"),
            },
        }
    }
}

impl Entry {
    /// Steps over one value, noting where it lies.
    fn read(reader: &mut Reader<'_>, key: &str) -> reader::Result<Entry> {
        let what = format!("metadata key {}", quoted(key));
        let kind = reader.value_type(&what)?;
        if kind == GGUFValueType::Array {
            let element = reader.value_type(&what)?;
            let len = reader.u64(&what)?;
            let start = reader.offset();
            skip_array(reader, element, len, &what, 1)?;
            let len =
                usize::try_from(len).or_else(|_| fail(format!("{what}: an array of {len} entries is too long")))?;
            return Ok(Entry { kind: Kind::Array { element, len }, bytes: start..reader.offset() });
        }
        let start = reader.offset();
        skip_array(reader, kind, 1, &what, 1)?;
        Ok(Entry { kind: Kind::Scalar(kind), bytes: start..reader.offset() })
    }
}

/// Steps over `len` values of one type.
fn skip_array(
    reader: &mut Reader<'_>,
    element: GGUFValueType,
    len: u64,
    what: &str,
    depth: usize,
) -> reader::Result<()> {
    if depth > GGUF_MAX_METADATA_NESTING_DEPTH {
        return fail(format!("{what}: arrays are nested deeper than {GGUF_MAX_METADATA_NESTING_DEPTH}"));
    }
    match element {
        GGUFValueType::String => {
            for _ in 0..len {
                let length = reader.u64(what)?;
                reader.take(length, what)?;
            }
        }
        GGUFValueType::Array => {
            for _ in 0..len {
                let element = reader.value_type(what)?;
                let len = reader.u64(what)?;
                skip_array(reader, element, len, what, depth + 1)?;
            }
        }
        // Every other type has a size; 1 keeps a new one from being skipped for nothing.
        fixed => {
            let size = fixed.size_in_bytes().unwrap_or(1) as u64;
            reader.take(len.saturating_mul(size), what)?;
        }
    }
    Ok(())
}

/// The integer a value holds, if it is one.
pub(crate) fn integer(value: &MetadataValue) -> Option<i128> {
    Some(match value {
        MetadataValue::U8(v) => (*v).into(),
        MetadataValue::I8(v) => (*v).into(),
        MetadataValue::U16(v) => (*v).into(),
        MetadataValue::I16(v) => (*v).into(),
        MetadataValue::U32(v) => (*v).into(),
        MetadataValue::I32(v) => (*v).into(),
        MetadataValue::U64(v) => (*v).into(),
        MetadataValue::I64(v) => (*v).into(),
        _ => return None,
    })
}

/// Decodes elements of `N` bytes.
fn each<const N: usize, T>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| decode(*chunk)).collect()
}
