//! Safetensors: single files, and sets of them tied together by an index or by their names.
//!
//! ```text
//! header length u64 | JSON { name: { dtype, shape, data_offsets } } | tensor bytes
//! ```
//!
//! Headers are read with the safetensors crate, which checks that the tensors tile the rest of the file exactly.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as _,
    ops::Range,
    path::{Path, PathBuf},
};

use safetensors::{SafeTensorError, SafeTensors};

use crate::{
    Dtype, Result, TensorInfo, WeightsError,
    file::{FileBytes, read_text},
};

/// Names of missing files or tensors listed in a message.
const MAX_LISTED: usize = 8;

/// The tensors of one file and where they lie in it.
pub(crate) type Table = Vec<(TensorInfo, Range<usize>)>;

/// Reads the header of one file.
pub(crate) fn parse(file: &FileBytes) -> Result<Table> {
    let (header_len, metadata) = SafeTensors::read_metadata(file.bytes()).map_err(|e| file.malformed(explain(&e)))?;
    let data_start = header_len + size_of::<u64>();
    let mut table = Table::with_capacity(metadata.tensors().len());
    for (name, info) in metadata.tensors() {
        let Some(dtype) = dtype(info.dtype) else {
            let known: Vec<&str> = DTYPES.iter().map(|(_, dtype)| dtype.name()).collect();
            return Err(file.malformed(format!(
                "tensor `{name}`: expected a dtype of {}, found {:?}",
                known.join(", "),
                info.dtype
            )));
        };
        // `read_metadata` has checked that the offsets lie in the file.
        let (start, end) = info.data_offsets;
        table.push((TensorInfo { name, dtype, shape: info.shape.clone() }, data_start + start..data_start + end));
    }
    Ok(table)
}

/// Types of the format and what they are here. The others (4 and 6 bits, complex numbers) appear in no published decoder.
const DTYPES: &[(safetensors::Dtype, Dtype)] = &[
    (safetensors::Dtype::F64, Dtype::F64),
    (safetensors::Dtype::F32, Dtype::F32),
    (safetensors::Dtype::F16, Dtype::F16),
    (safetensors::Dtype::BF16, Dtype::BF16),
    (safetensors::Dtype::I64, Dtype::I64),
    (safetensors::Dtype::I32, Dtype::I32),
    (safetensors::Dtype::I16, Dtype::I16),
    (safetensors::Dtype::I8, Dtype::I8),
    (safetensors::Dtype::U64, Dtype::U64),
    (safetensors::Dtype::U32, Dtype::U32),
    (safetensors::Dtype::U16, Dtype::U16),
    (safetensors::Dtype::U8, Dtype::U8),
    (safetensors::Dtype::BOOL, Dtype::Bool),
    (safetensors::Dtype::F8_E4M3, Dtype::F8_E4M3),
    (safetensors::Dtype::F8_E5M2, Dtype::F8_E5M2),
    (safetensors::Dtype::F8_E8M0, Dtype::F8_E8M0),
];

fn dtype(found: safetensors::Dtype) -> Option<Dtype> {
    DTYPES.iter().find(|(theirs, _)| *theirs == found).map(|(_, ours)| *ours)
}

/// The crate's error in this crate's words.
fn explain(error: &SafeTensorError) -> String {
    match error {
        SafeTensorError::HeaderTooSmall => "expected a header of 8 bytes or more, found less".into(),
        SafeTensorError::HeaderTooLarge => "expected a header of at most 100000000 bytes, found a larger one".into(),
        SafeTensorError::InvalidHeaderLength => {
            "expected the header that its length declares, found the end of the file (incomplete download?)".into()
        }
        SafeTensorError::InvalidHeader(_) => "expected a header in UTF-8, found other bytes".into(),
        SafeTensorError::InvalidHeaderDeserialization(e) | SafeTensorError::JsonError(e) => {
            format!("expected a header that describes tensors, found JSON that does not: {e}")
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "expected the tensors to end where the file ends, found otherwise (incomplete download?)".into()
        }
        SafeTensorError::InvalidOffset(name) => {
            format!(
                "tensor `{name}`: expected data that begins where the tensor before it ends, found a gap or overlap"
            )
        }
        SafeTensorError::TensorInvalidInfo => {
            "expected each tensor's offsets to span its shape, found one where they do not".into()
        }
        SafeTensorError::ValidationOverflow => "a tensor's shape is too large to count".into(),
        other => match other.source() {
            Some(cause) => format!("{other}: {cause}"),
            None => other.to_string(),
        },
    }
}

/// Opens exactly the files an index names and checks every (tensor, file) pair it lists.
///
/// # Errors
/// `Missing` if files are not there; `Malformed` if the index lies or names files elsewhere.
pub(crate) fn open_index(index: &Path) -> Result<Vec<(FileBytes, Table)>> {
    let weight_map = read_index(index)?;
    let directory = index.parent().unwrap_or(Path::new(""));
    let names: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    let absent: Vec<&str> = names.iter().copied().filter(|name| !directory.join(name).is_file()).collect();
    if !absent.is_empty() {
        return Err(missing(index, names.len(), &absent));
    }
    names.into_iter().map(|name| open_indexed(index, directory, name, &weight_map)).collect()
}

/// One file of an index: of its tensors, those that the index takes from it.
fn open_indexed(
    index: &Path,
    directory: &Path,
    name: &str,
    weight_map: &BTreeMap<String, String>,
) -> Result<(FileBytes, Table)> {
    let file = FileBytes::map(&directory.join(name))?;
    crate::sniff::expect_safetensors(&file)?;
    let mut table = parse(&file)?;
    table.retain(|(info, _)| weight_map.get(&info.name).is_some_and(|of| of == name));
    let found: BTreeSet<&str> = table.iter().map(|(info, _)| info.name.as_str()).collect();
    let expected = weight_map.iter().filter(|(_, of)| *of == name).map(|(tensor, _)| tensor.as_str());
    let lacking: Vec<&str> = expected.filter(|tensor| !found.contains(tensor)).collect();
    if !lacking.is_empty() {
        let reason = format!("expected `{name}` to hold {}, found no such tensor there", list(&lacking));
        return Err(WeightsError::Malformed { path: index.to_path_buf(), reason });
    }
    Ok((file, table))
}

/// The `weight_map` of an index: tensor name to file name.
fn read_index(index: &Path) -> Result<BTreeMap<String, String>> {
    let malformed = |reason: String| WeightsError::Malformed { path: index.to_path_buf(), reason };
    let text = read_text(index)?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| malformed(format!("expected a JSON index, found: {e}")))?;
    let map = json.get("weight_map").and_then(serde_json::Value::as_object);
    let map = map.filter(|map| !map.is_empty());
    let Some(map) = map else {
        return Err(malformed("expected an object `weight_map` of tensors and files, found none".into()));
    };
    let mut weight_map = BTreeMap::new();
    for (tensor, file) in map {
        let Some(file) = file.as_str().filter(|name| is_base_name(name)) else {
            return Err(malformed(format!(
                "tensor `{tensor}`: expected the name of a file beside the index, found {file}"
            )));
        };
        weight_map.insert(tensor.clone(), file.to_owned());
    }
    Ok(weight_map)
}

/// Whether a name stays in its directory on every system.
pub(crate) fn is_base_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

/// Opens the shards of a set that has no index, in order.
pub(crate) fn open_all(paths: Vec<PathBuf>) -> Result<Vec<(FileBytes, Table)>> {
    paths.iter().map(|path| open(path)).collect()
}

/// Opens one file.
fn open(path: &Path) -> Result<(FileBytes, Table)> {
    let file = FileBytes::map(path)?;
    crate::sniff::expect_safetensors(&file)?;
    let table = parse(&file)?;
    Ok((file, table))
}

fn missing(index: &Path, n_files: usize, absent: &[&str]) -> WeightsError {
    let reason = format!(
        "expected {n_files} files beside it, found {} missing: {} (incomplete download?)",
        absent.len(),
        list(absent)
    );
    WeightsError::Missing { path: index.to_path_buf(), reason }
}

fn list(names: &[&str]) -> String {
    let mut listed: Vec<String> = names.iter().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    if names.len() > MAX_LISTED {
        listed.push(format!("{} more", names.len() - MAX_LISTED));
    }
    listed.join(", ")
}
