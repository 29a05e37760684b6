//! Sets of safetensors files joined by `*.safetensors.index.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::{Table, open};
use crate::{
    Result, WeightsError,
    file::{FileBytes, read_text},
    quote::{one_line, quoted, quoted_list},
};

/// The index of the largest published models (90 thousand tensors) is under 10 MiB.
pub(crate) const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Opens exactly the files an index names and checks every (tensor, file) pair it lists.
///
/// # Errors
/// `Missing` if files are not there; `Malformed` if the index lies or names files elsewhere.
pub(crate) fn open_index(index: &Path) -> Result<Vec<(FileBytes, Table)>> {
    let weight_map = read_index(index)?;
    let names = present(index, &weight_map)?;
    names.into_iter().map(|name| open_indexed(index, name, &weight_map)).collect()
}

/// Checks that every file an index names is there.
///
/// # Errors
/// As [`open_index`].
pub(crate) fn check_index(index: &Path) -> Result<()> {
    present(index, &read_index(index)?).map(|_| ())
}

/// Names of the files of an index, all of which are there.
fn present<'a>(index: &Path, weight_map: &'a BTreeMap<String, String>) -> Result<BTreeSet<&'a str>> {
    let names: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    let absent: Vec<&str> = names.iter().copied().filter(|name| !index.with_file_name(name).is_file()).collect();
    if absent.is_empty() { Ok(names) } else { Err(missing(index, names.len(), &absent)) }
}

/// One file of an index: of its tensors, those that the index takes from it.
fn open_indexed(index: &Path, name: &str, weight_map: &BTreeMap<String, String>) -> Result<(FileBytes, Table)> {
    let (file, mut table) = open(&index.with_file_name(name))?;
    table.retain(|(info, _)| weight_map.get(&info.name).is_some_and(|of| of == name));
    let found: BTreeSet<&str> = table.iter().map(|(info, _)| info.name.as_str()).collect();
    let expected = weight_map.iter().filter(|(_, of)| *of == name).map(|(tensor, _)| tensor.as_str());
    let lacking: Vec<&str> = expected.filter(|tensor| !found.contains(tensor)).collect();
    if !lacking.is_empty() {
        let reason =
            format!("expected `{name}` to hold {}, found no such tensor there", quoted_list(lacking.iter().copied()));
        return Err(WeightsError::Malformed { path: index.to_path_buf(), reason });
    }
    Ok((file, table))
}

/// What is read of an index.
#[derive(Deserialize)]
struct Index {
    /// Tensor name to file name.
    weight_map: BTreeMap<String, String>,
}

fn read_index(index: &Path) -> Result<BTreeMap<String, String>> {
    parse_index(index, &read_text(index, MAX_INDEX_BYTES)?)
}

/// Reads the text of an index: tensor name to file name. `index` is what messages name.
///
/// # Errors
/// `Malformed` if it is none, is empty, or names files elsewhere.
pub(crate) fn parse_index(index: &Path, text: &str) -> Result<BTreeMap<String, String>> {
    let malformed = |reason: String| WeightsError::Malformed { path: index.to_path_buf(), reason };
    let Index { weight_map } = serde_json::from_str(text).map_err(|e| {
        malformed(format!("expected an object `weight_map` of tensors and files, found {}", one_line(&e.to_string())))
    })?;
    if weight_map.is_empty() {
        return Err(malformed("expected an object `weight_map` of tensors and files, found an empty one".into()));
    }
    if let Some((tensor, file)) = weight_map.iter().find(|(_, file)| !is_base_name(file)) {
        let (tensor, file) = (quoted(tensor), quoted(file));
        return Err(malformed(format!("tensor {tensor}: expected the name of a file beside the index, found {file}")));
    }
    Ok(weight_map)
}

/// Bytes of all tensors together, if an index says so: not every one does.
pub(crate) fn total_bytes(text: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Index {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        total_size: serde_json::Number,
    }
    let Index { metadata: Metadata { total_size } } = serde_json::from_str(text).ok()?;
    // Some writers put a float.
    total_size.as_u64().or_else(|| total_size.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
}

/// Whether a name stays in its directory on every system.
pub(crate) fn is_base_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

fn missing(index: &Path, n_files: usize, absent: &[&str]) -> WeightsError {
    let reason = format!(
        "expected {n_files} files beside it, found {} missing: {} (incomplete download?)",
        absent.len(),
        quoted_list(absent.iter().copied())
    );
    WeightsError::Missing { path: index.to_path_buf(), reason }
}
