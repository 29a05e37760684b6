//! Weights as a file has them.

use kinfolk_weights::Dtype;

/// Rows of a matrix in their stored type.
pub(crate) struct StoredRows<'a> {
    pub dtype: Dtype,
    pub n_rows: usize,
    pub n_cols: usize,
    /// The bytes of a row, given its number.
    pub row: &'a (dyn Fn(usize) -> &'a [u8] + Sync),
}
