//! GGUF: one file of key/value metadata, tensor descriptors and tensor bytes, as llama.cpp defines it.
//!
//! ```text
//! "GGUF"  version u32  n_tensors u64  n_keys u64     24 bytes
//! n_keys    x { key, type u32, value }
//! n_tensors x { name, rank u32, dimensions u64 x rank, type u32, offset u64 }
//! padding to `general.alignment`
//! tensor bytes
//! ```
//!
//! Version 2 differs from 3 only in that 3 may be big-endian. gguf-rs-lib reads version 3 alone, so the fixed header is read here;
//! [`metadata`] and [`tensors`] say what else is.

mod metadata;
mod reader;
mod shards;
mod tensors;

use std::ops::Range;

use gguf_rs_lib::format::GGUF_DEFAULT_ALIGNMENT;

use self::{
    reader::{Reader, fail},
    tensors::Descriptor,
};
use crate::{Result, TensorInfo, WeightsError, file::FileBytes, quote::quoted};

pub use self::metadata::GgufMetadata;
pub(crate) use self::metadata::integer;
pub(crate) use self::shards::{ShardName, open_set, open_single};

/// Versions that are read.
const VERSIONS: [u32; 2] = [2, 3];

/// Tensors are padded to far less than this; a larger alignment is a damaged file.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// A parsed file: its metadata and where each tensor lies in it.
pub(crate) struct Gguf {
    pub metadata: GgufMetadata,
    pub tensors: Vec<(TensorInfo, Range<usize>)>,
}

/// Parses a file whose magic was seen. Reads the header only; tensor bytes are located, not touched.
pub(crate) fn parse(file: &FileBytes) -> Result<Gguf> {
    let bytes = file.bytes();
    let mut reader = Reader::new(bytes);
    let read = |reader: &mut Reader<'_>| -> reader::Result<(GgufMetadata, Vec<Descriptor>)> {
        let (n_tensors, n_keys) = fixed_header(reader)?;
        let metadata = GgufMetadata::read(file.path(), bytes, reader, n_keys)?;
        let descriptors = tensors::read(reader, n_tensors)?;
        Ok((metadata, descriptors))
    };
    let (metadata, descriptors) = read(&mut reader).map_err(|e| file.malformed(e.reason))?;
    let alignment = alignment(file, &metadata)?;
    let tensors = locate(file, descriptors, reader.offset() as u64, alignment)?;
    Ok(Gguf { metadata, tensors })
}

/// Parses no further than the metadata: enough to tell a model from a projector.
pub(crate) fn parse_metadata(file: &FileBytes) -> Result<GgufMetadata> {
    let mut reader = Reader::new(file.bytes());
    fixed_header(&mut reader)
        .and_then(|(_, n_keys)| GgufMetadata::read(file.path(), file.bytes(), &mut reader, n_keys))
        .map_err(|e| file.malformed(e.reason))
}

/// Counts of tensors and of keys.
fn fixed_header(reader: &mut Reader<'_>) -> reader::Result<(u64, u64)> {
    reader.take(4, "magic")?;
    let version = reader.u32("version")?;
    if VERSIONS.contains(&version.swap_bytes()) {
        return fail(
            "expected a little-endian GGUF file, found a big-endian one (convert it with gguf-convert-endian)".into(),
        );
    }
    if !VERSIONS.contains(&version) {
        return fail(format!("expected GGUF version 2 or 3, found version {version}"));
    }
    Ok((reader.u64("tensor count")?, reader.u64("metadata count")?))
}

fn alignment(file: &FileBytes, metadata: &GgufMetadata) -> Result<u64> {
    let alignment = metadata.u64("general.alignment")?.unwrap_or(GGUF_DEFAULT_ALIGNMENT as u64);
    if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT {
        return Ok(alignment);
    }
    Err(file.malformed(format!(
        "metadata key `general.alignment`: expected a power of two up to {MAX_ALIGNMENT}, found {alignment}"
    )))
}

/// Turns offsets into ranges of the file, all inside it, aligned and apart.
fn locate(
    file: &FileBytes,
    descriptors: Vec<Descriptor>,
    header_end: u64,
    alignment: u64,
) -> Result<Vec<(TensorInfo, Range<usize>)>> {
    let data_start = header_end.next_multiple_of(alignment);
    let file_len = file.bytes().len();
    let mut tensors = Vec::with_capacity(descriptors.len());
    for Descriptor { info, offset, n_bytes } in descriptors {
        if !offset.is_multiple_of(alignment) {
            return Err(file.malformed(format!(
                "tensor {}: expected an offset that is a multiple of {alignment}, found {offset}",
                quoted(&info.name)
            )));
        }
        let range = data_start.checked_add(offset).and_then(|start| usize::try_from(start).ok()).and_then(|start| {
            let end = start.checked_add(n_bytes)?;
            (end <= file_len).then_some(start..end)
        });
        let Some(range) = range else {
            return Err(file.malformed(format!(
                "tensor {}: expected {n_bytes} bytes at offset {offset} of the data at byte {data_start}, \
                 found a file of {file_len} bytes (incomplete download?)",
                quoted(&info.name)
            )));
        };
        tensors.push((info, range));
    }
    refuse_overlap(file, &tensors)?;
    Ok(tensors)
}

fn refuse_overlap(file: &FileBytes, tensors: &[(TensorInfo, Range<usize>)]) -> Result<()> {
    let mut by_place: Vec<_> = tensors.iter().filter(|(_, range)| !range.is_empty()).collect();
    by_place.sort_by_key(|(_, range)| range.start);
    for pair in by_place.windows(2) {
        let [(first, a), (second, b)] = pair else { continue };
        if b.start < a.end {
            return Err(file.malformed(format!(
                "tensors {} and {} overlap: expected the second to begin at byte {} or later, found {}",
                quoted(&first.name),
                quoted(&second.name),
                a.end,
                b.start
            )));
        }
    }
    Ok(())
}

/// The error of a file that lacks its siblings.
fn missing(file: &FileBytes, reason: String) -> WeightsError {
    WeightsError::Missing { path: file.path().to_path_buf(), reason }
}
