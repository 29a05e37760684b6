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

impl StoredRows<'_> {
    /// Calls `with` with the rows of `bytes`, which are one behind the other.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_bytes<R>(
        dtype: Dtype,
        n_rows: usize,
        n_cols: usize,
        bytes: &[u8],
        with: impl FnOnce(&StoredRows<'_>) -> R,
    ) -> R {
        let row_bytes = bytes.len() / n_rows;
        with(&StoredRows { dtype, n_rows, n_cols, row: &|r| &bytes[r * row_bytes..(r + 1) * row_bytes] })
    }
}
