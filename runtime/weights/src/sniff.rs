//! What a file is, told from its first bytes. Names lie: caches strip extensions and downloads keep them over error pages.

use crate::{Result, WeightFormat, WeightsError, file::FileBytes};

/// GGUF files of either byte order begin with this.
const GGUF_MAGIC: &[u8] = b"GGUF";

/// The safetensors header is JSON behind its length; its specification bounds it.
pub(crate) const MAX_SAFETENSORS_HEADER_BYTES: u64 = 100_000_000;

/// First bytes of files that people hand over in place of weights, and what to call them.
const KNOWN: &[(&[u8], &str)] = &[
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself (run `git lfs pull`)"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint (convert it to safetensors)"),
    (b"\x80\x02", "a Python pickle, perhaps a PyTorch checkpoint (convert it to safetensors)"),
    (b"\x80\x03", "a Python pickle, perhaps a PyTorch checkpoint (convert it to safetensors)"),
    (b"\x80\x04", "a Python pickle, perhaps a PyTorch checkpoint (convert it to safetensors)"),
    (b"\x80\x05", "a Python pickle, perhaps a PyTorch checkpoint (convert it to safetensors)"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (convert it to safetensors)"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"lmgg", "a llama.cpp file from before GGUF (convert it again)"),
    (b"fmgg", "a llama.cpp file from before GGUF (convert it again)"),
    (b"tjgg", "a llama.cpp file from before GGUF (convert it again)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
];

/// Tells the format of a file.
///
/// # Errors
/// `UnknownFormat`, saying what the bytes look like.
pub(crate) fn sniff(file: &FileBytes) -> Result<WeightFormat> {
    let bytes = file.bytes();
    if bytes.starts_with(GGUF_MAGIC) {
        return Ok(WeightFormat::Gguf);
    }
    if looks_like_safetensors(bytes) {
        return Ok(WeightFormat::Safetensors);
    }
    Err(unknown(file, "GGUF or safetensors"))
}

/// Checks that a file that must be GGUF, such as a shard, begins like one.
///
/// # Errors
/// `UnknownFormat`, saying what the bytes look like.
pub(crate) fn expect_gguf(file: &FileBytes) -> Result<()> {
    if file.bytes().starts_with(GGUF_MAGIC) {
        return Ok(());
    }
    Err(unknown(file, "GGUF"))
}

/// As [`expect_gguf`] for a safetensors shard.
pub(crate) fn expect_safetensors(file: &FileBytes) -> Result<()> {
    if looks_like_safetensors(file.bytes()) {
        return Ok(());
    }
    Err(unknown(file, "safetensors"))
}

fn unknown(file: &FileBytes, expected: &str) -> WeightsError {
    WeightsError::UnknownFormat {
        path: file.path().to_path_buf(),
        expected: expected.into(),
        found: describe(file.bytes()),
    }
}

/// A plausible header length followed by the `{` that the format demands there.
fn looks_like_safetensors(bytes: &[u8]) -> bool {
    match (bytes.first_chunk::<8>(), bytes.get(8)) {
        (Some(length), Some(b'{')) => u64::from_le_bytes(*length) <= MAX_SAFETENSORS_HEADER_BYTES,
        _ => false,
    }
}

/// Words for bytes that are no weights.
fn describe(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "an empty file".into();
    }
    if let Some((_, words)) = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*words).into();
    }
    let head = &bytes[..bytes.len().min(64)];
    if head.iter().all(|&b| b == 0) {
        return "zeros, perhaps an incomplete download".into();
    }
    let text = String::from_utf8_lossy(head).trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    if text.starts_with("<!doctype") || text.starts_with("<html") || text.starts_with("<?xml") {
        return "a web page, perhaps the error page of a download".into();
    }
    if text.starts_with('{') || text.starts_with('[') {
        return "JSON text".into();
    }
    let hex: Vec<String> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!("{} bytes that begin {}", bytes.len(), hex.join(" "))
}
