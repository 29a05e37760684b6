//! Random weights, quantised by llama.cpp.

use std::{
    io::{self, Write},
    ptr, thread,
};

use llama_cpp_sys_2::{GGML_TYPE_F32, ggml_quantize_chunk};

use super::gguf::Tensor;
use crate::random::mix;

/// Rows that are in memory at once, on all threads together.
const BATCH_ROWS: usize = 4096;

/// Writes a tensor: weights of a norm are 1, those of a matrix are nearly normal with a variance of 1 ÷ columns, so that what goes
/// through keeps its size. `seed` tells the tensors of a file apart.
pub fn write(file: &mut impl Write, tensor: &Tensor, seed: u64) -> io::Result<()> {
    if tensor.rows.is_none() {
        assert_eq!(tensor.dtype, GGML_TYPE_F32, "vectors are not quantised");
        return file.write_all(&1f32.to_le_bytes().repeat(tensor.columns));
    }
    let rows = tensor.n_rows();
    let row_bytes = tensor.row_bytes();
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    for first in (0..rows).step_by(BATCH_ROWS) {
        let n_rows = BATCH_ROWS.min(rows - first);
        let mut bytes = vec![0; n_rows * row_bytes];
        let rows_each = n_rows.div_ceil(n_threads);
        thread::scope(|scope| {
            for (i, own) in bytes.chunks_mut(rows_each * row_bytes).enumerate() {
                scope.spawn(move || fill(own, tensor, seed, first + i * rows_each));
            }
        });
        file.write_all(&bytes)?;
    }
    Ok(())
}

/// Makes the rows from `first_row` on that `bytes` have room for.
fn fill(bytes: &mut [u8], tensor: &Tensor, seed: u64, first_row: usize) {
    let columns = tensor.columns;
    let mut weights = vec![0.0; columns];
    for (i, row) in bytes.chunks_exact_mut(tensor.row_bytes()).enumerate() {
        let start = seed << 40 | ((first_row + i) * columns) as u64;
        for (j, weight) in weights.iter_mut().enumerate() {
            *weight = normal(start + j as u64) / (columns as f32).sqrt();
        }
        // SAFETY: reads one row of `columns` weights and writes the bytes of one row, as many as `row` has; no importance is given,
        // which none of the types needs.
        let written = unsafe {
            ggml_quantize_chunk(
                tensor.dtype,
                weights.as_ptr(),
                row.as_mut_ptr().cast(),
                0,
                1,
                columns as i64,
                ptr::null(),
            )
        };
        assert_eq!(written, row.len(), "bytes of a row");
    }
}

/// The sum of four uniform numbers, scaled to a variance of 1.
fn normal(seed: u64) -> f32 {
    let bits = mix(seed);
    let sum: u32 = (0..4).map(|i| (bits >> (16 * i)) as u32 & 0xFFFF).sum();
    (sum as f32 / 65_536.0 - 2.0) * 3f32.sqrt()
}
