//! The header of a safetensors file.
//!
//! Its types and its check that tensors tile the file exactly are the safetensors crate's. The crate's own reader is not used: it holds
//! the whole header as generic values first, which takes up to 48 bytes for two of a header that may have 100 million; of two entries
//! with one name it silently keeps the last; and it does not name the tensor whose shape and offsets disagree.

use std::fmt;

use safetensors::{
    SafeTensorError,
    tensor::{Metadata, TensorInfo},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};

use crate::{
    quote::{one_line, quoted},
    sniff::MAX_SAFETENSORS_HEADER_BYTES,
};

/// Key of the entry that is free text rather than a tensor.
const FREE_TEXT: &str = "__metadata__";

/// Reads and checks the header; returns where the data begins and what is there.
///
/// # Errors
/// The reason, for the caller to add the file to.
pub(super) fn read(file: &[u8]) -> Result<(usize, Metadata), String> {
    let Some((length, rest)) = file.split_first_chunk() else {
        return Err(format!("expected a header length of 8 bytes, found a file of {}", file.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_SAFETENSORS_HEADER_BYTES {
        return Err(format!("expected a header of at most {MAX_SAFETENSORS_HEADER_BYTES} bytes, found {length}"));
    }
    let Some((header, data)) = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)) else {
        return Err(format!("expected a header of {length} bytes, found {} (incomplete download?)", rest.len()));
    };
    let Entries(mut entries) = serde_json::from_slice(header)
        .map_err(|e| format!("expected a header that describes tensors, found {}", one_line(&e.to_string())))?;
    entries.iter().try_for_each(|(name, info)| check_span(name, info))?;

    entries.sort_by_key(|(_, info)| info.data_offsets);
    let metadata = Metadata::new(None, entries).map_err(|e| match e {
        SafeTensorError::InvalidOffset(name) => format!(
            "tensor {}: expected data that begins where the tensor before it ends, found a gap or overlap",
            quoted(&name)
        ),
        other => one_line(&other.to_string()),
    })?;
    if metadata.data_len() != data.len() {
        return Err(format!(
            "expected {} bytes of tensors, found {} (incomplete download?)",
            metadata.data_len(),
            data.len()
        ));
    }
    Ok((file.len() - data.len(), metadata))
}

/// Offsets must span what the shape takes.
fn check_span(name: &str, info: &TensorInfo) -> Result<(), String> {
    let n_elements = info.shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
    let n_bits = n_elements.and_then(|n| n.checked_mul(info.dtype.bitsize()));
    let (start, end) = info.data_offsets;
    match n_bits {
        Some(n_bits) if end.checked_sub(start).and_then(|n_bytes| n_bytes.checked_mul(8)) == Some(n_bits) => Ok(()),
        Some(n_bits) => Err(format!(
            "tensor {}: expected offsets that span {} bytes, found {start} to {end}",
            quoted(name),
            n_bits.div_ceil(8)
        )),
        None => Err(format!("tensor {}: the number of elements of its shape is too large", quoted(name))),
    }
}

/// The entries of the header in its order, free text left out.
struct Entries(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == FREE_TEXT {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let info = map.next_value().map_err(|e| A::Error::custom(format!("tensor {}: {e}", quoted(&name))))?;
            entries.push((name, info));
        }
        refuse_twins(&entries).map_err(A::Error::custom)?;
        Ok(Entries(entries))
    }
}

fn refuse_twins(entries: &[(String, TensorInfo)]) -> Result<(), String> {
    let mut names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("tensor {} is there twice", quoted(pair[0]))),
        None => Ok(()),
    }
}
