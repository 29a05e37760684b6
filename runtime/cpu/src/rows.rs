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

/// Rows of one matrix and of another that alternate in [`StoredRows::in_turns`]: half of what kernels compute together.
pub(crate) const TURN: usize = 16;

/// Of so many [in turns](StoredRows::in_turns), whether row `r` is the second's, and its number there.
pub(crate) fn turn(r: usize) -> (usize, usize) {
    (r / TURN % 2, r / (2 * TURN) * TURN + r % TURN)
}

impl StoredRows<'_> {
    /// Calls `with` with the rows of both matrices, [`TURN`] of the first, as many of the second, and so on. `None` if they differ in shape or type, or
    /// have rows that are no whole turn.
    pub fn in_turns<R>(pair: [&StoredRows<'_>; 2], with: impl FnOnce(&StoredRows<'_>) -> R) -> Option<R> {
        let StoredRows { dtype, n_rows, n_cols, .. } = *pair[0];
        let alike = |rows: &StoredRows<'_>| (rows.dtype, rows.n_rows, rows.n_cols) == (dtype, n_rows, n_cols);
        let all = n_rows.checked_mul(2).filter(|_| alike(pair[1]) && n_rows.is_multiple_of(TURN))?;
        let row = |r| {
            let (of, r) = turn(r);
            (pair[of].row)(r)
        };
        Some(with(&StoredRows { dtype, n_rows: all, n_cols, row: &row }))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_turns_are_all_rows_of_both_and_only_of_matrices_that_are_alike() {
        let bytes: Vec<u8> = (0..4 * 6 * TURN).map(|i| (i / 4) as u8).collect();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let n_rows = 3 * TURN;
        let joint = |dtype: Dtype, n_rows: usize, second: &[u8]| {
            let row_bytes = second.len() / n_rows;
            let (of_first, of_second) = (|r| &first[4 * r..][..4], |r| &second[r * row_bytes..][..row_bytes]);
            let pair = [
                &StoredRows { dtype: Dtype::F32, n_rows: 3 * TURN, n_cols: 1, row: &of_first },
                &StoredRows { dtype, n_rows, n_cols: 1, row: &of_second },
            ];
            StoredRows::in_turns(pair, |all| (0..all.n_rows).map(|r| (all.row)(r)[0]).collect::<Vec<u8>>())
        };
        let found = joint(Dtype::F32, n_rows, second).expect("matrices that are alike");
        let expected = (0..3).flat_map(|i| {
            let turn = i * TURN..(i + 1) * TURN;
            turn.clone().chain(turn.start + n_rows..turn.end + n_rows)
        });
        assert!(found.into_iter().map(usize::from).eq(expected));
        assert_eq!(joint(Dtype::F32, n_rows / 2, &second[..second.len() / 2]), None, "other rows");
        assert_eq!(joint(Dtype::BF16, n_rows, &second[..second.len() / 2]), None, "another type");
    }
}
