//! Safetensors: single files, and sets of them tied together by an index or by their names.
//!
//! ```text
//! header length u64 | JSON { name: { dtype, shape, data_offsets } } | tensor bytes
//! ```

mod header;
mod index;

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{Dtype, Result, TensorInfo, file::FileBytes, quote::quoted};

pub(crate) use self::index::{MAX_INDEX_BYTES, check_index, is_base_name, open_index, parse_index, total_bytes};

/// The tensors of one file and where they lie in it.
pub(crate) type Table = Vec<(TensorInfo, Range<usize>)>;

/// Reads the header of one file.
pub(crate) fn parse(file: &FileBytes) -> Result<Table> {
    let (data_start, metadata) = header::read(file.bytes()).map_err(|reason| file.malformed(reason))?;
    let names = metadata.offset_keys();
    let mut table = Table::with_capacity(names.len());
    for name in names {
        let Some(info) = metadata.info(&name) else { continue };
        let Some(dtype) = dtype(info.dtype) else {
            let known: Vec<&str> = DTYPES.iter().map(|(_, dtype)| dtype.name()).collect();
            return Err(file.malformed(format!(
                "tensor {}: expected a dtype of {}, found {:?}",
                quoted(&name),
                known.join(", "),
                info.dtype
            )));
        };
        // The header was checked to describe exactly the bytes behind it.
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
