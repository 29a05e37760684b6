//! Tensor descriptors of a GGUF file.
//!
//! Written out rather than read with gguf-rs-lib because the library reports a type it does not know without saying which tensor
//! has it, and that name is what tells a person which file to fetch instead.

use gguf_rs_lib::format::{GGUF_MAX_DIMENSIONS, GGUF_MAX_TENSOR_COUNT};

use super::reader::{Reader, Result, fail};
use crate::{Dtype, TensorInfo, quote::quoted};

/// The least a descriptor takes: name length, one byte of name, rank, type, offset.
const MIN_DESCRIPTOR_BYTES: u64 = 8 + 1 + 4 + 4 + 8;

/// Names are shorter than this in every file llama.cpp writes (its own limit is 63).
const MAX_NAME_BYTES: u64 = 1024;

/// Type ids that GGUF files once used; llama.cpp no longer reads them.
const RETIRED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

/// A tensor and where its bytes begin, counted from the start of the data section.
pub(super) struct Descriptor {
    pub info: TensorInfo,
    pub offset: u64,
    pub n_bytes: usize,
}

/// Reads `n_tensors` descriptors.
pub(super) fn read(reader: &mut Reader<'_>, n_tensors: u64) -> Result<Vec<Descriptor>> {
    let room = (reader.remaining() as u64 / MIN_DESCRIPTOR_BYTES).min(GGUF_MAX_TENSOR_COUNT);
    if n_tensors > room {
        return fail(format!("expected at most {room} tensors in a file of this size, found a count of {n_tensors}"));
    }
    (0..n_tensors).map(|_| read_one(reader)).collect()
}

fn read_one(reader: &mut Reader<'_>) -> Result<Descriptor> {
    let name = reader.name("tensor name", MAX_NAME_BYTES)?;
    let what = format!("tensor {}", quoted(name));
    let rank = reader.u32(&what)? as usize;
    if rank > GGUF_MAX_DIMENSIONS {
        return fail(format!("{what}: expected at most {GGUF_MAX_DIMENSIONS} dimensions, found {rank}"));
    }
    // The file writes the innermost dimension first.
    let mut shape = vec![0; rank];
    for size in shape.iter_mut().rev() {
        let found = reader.u64(&what)?;
        *size = usize::try_from(found).or_else(|_| fail(format!("{what}: a dimension of {found} is too large")))?;
    }
    let dtype = dtype(reader.u32(&what)?, &what)?;
    let offset = reader.u64(&what)?;
    let n_bytes = n_bytes(&shape, dtype, &what)?;
    Ok(Descriptor { info: TensorInfo { name: name.to_owned(), dtype, shape }, offset, n_bytes })
}

fn dtype(id: u32, what: &str) -> Result<Dtype> {
    if let Some(dtype) = Dtype::from_gguf_id(id) {
        return Ok(dtype);
    }
    match RETIRED.iter().find(|(retired, _)| *retired == id) {
        Some((_, name)) => fail(format!(
            "{what}: tensor type {id} ({name}) was retired from the format; find or make a newer quantisation of this model"
        )),
        None => fail(format!("{what}: expected a tensor type that this build knows, found type {id}")),
    }
}

fn n_bytes(shape: &[usize], dtype: Dtype, what: &str) -> Result<usize> {
    let row = shape.last().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block_len()) {
        return fail(format!(
            "{what}: expected rows of a multiple of {} elements for {dtype}, found rows of {row}",
            dtype.block_len()
        ));
    }
    let n_elements = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
    match n_elements.and_then(|n| dtype.bytes_for(n)) {
        Some(n) => Ok(n),
        None => fail(format!("{what}: the number of elements of shape {shape:?} is too large")),
    }
}
