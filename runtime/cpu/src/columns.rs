//! An output written by several threads.

use std::{marker::PhantomData, ops::Range};

use crate::{
    prefetch::{self, LINE},
    team::Team,
};

/// `[tokens, n_rows]`, to be written by several threads, each to other rows of every token.
pub(crate) struct Columns<'a> {
    first: *mut f32,
    n_tokens: usize,
    n_rows: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: it is a slice borrowed for writing; `part` leaves it to its caller that no two threads write to one place.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    pub fn new(out: &'a mut [f32], n_rows: usize) -> Columns<'a> {
        Columns { first: out.as_mut_ptr(), n_tokens: out.len() / n_rows.max(1), n_rows, borrowed: PhantomData }
    }

    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Numbers from a row of one token to that of the next.
    pub fn stride(&self) -> usize {
        self.n_rows
    }

    /// Where `rows` of `tokens` start.
    ///
    /// # Panics
    /// If they are not there.
    pub fn start(&self, tokens: Range<usize>, rows: Range<usize>) -> *mut f32 {
        assert!(tokens.start < tokens.end && tokens.end <= self.n_tokens, "tokens of the output");
        assert!(rows.start < rows.end && rows.end <= self.n_rows, "rows of the output");
        // SAFETY: within the borrowed slice, as just checked.
        unsafe { self.first.add(tokens.start * self.n_rows + rows.start) }
    }

    /// Has the processor fetch `rows` of `token`, to be written soon.
    pub fn ask_for(&self, token: usize, rows: Range<usize>) {
        for row in rows.step_by(LINE / size_of::<f32>()) {
            prefetch::to_write(self.first.wrapping_add(token * self.n_rows + row));
        }
    }

    /// `rows` of `token`.
    ///
    /// # Safety
    /// Nothing else may hold any of these rows.
    ///
    /// # Panics
    /// If they are not there.
    pub unsafe fn part(&self, token: usize, rows: Range<usize>) -> &'a mut [f32] {
        assert!(token < self.n_tokens && rows.start <= rows.end && rows.end <= self.n_rows, "within the output");
        // SAFETY: within the borrowed slice, as just checked, and the caller promises that nobody else holds this part.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(token * self.n_rows + rows.start), rows.len()) }
    }
}

/// Rows of successive tokens, which one thread has to itself.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only a matrix unit looks into it"))]
pub(crate) struct Cell<'a> {
    out: &'a Columns<'a>,
    tokens: Range<usize>,
    rows: Range<usize>,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "as above"))]
impl Cell<'_> {
    /// Cuts `out`, `[tokens, n_rows]`, into cells of `len.0` tokens (the last may be of fewer) and `len.1` rows, which must divide `n_rows`, and calls
    /// `work(first token, first row, cell)` for each. Each thread takes the next when it is done with one, the last tokens first.
    pub fn for_each(
        team: &Team,
        out: &mut [f32],
        n_rows: usize,
        len: (usize, usize),
        work: impl Fn(usize, usize, &mut Cell<'_>) + Sync,
    ) {
        let out = &Columns::new(out, n_rows);
        let across = n_rows / len.1;
        assert_eq!(across * len.1, n_rows, "cells of one width");
        let n_cells = out.n_tokens.div_ceil(len.0) * across;
        team.for_each_task(&mut vec![(); n_cells], 1, |i, _| {
            let i = n_cells - 1 - i;
            let (token, row) = (i / across * len.0, i % across * len.1);
            work(token, row, &mut Cell { out, tokens: token..out.n_tokens.min(token + len.0), rows: row..row + len.1 });
        });
    }

    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The rows of its `token`-th token.
    pub fn of_token(&mut self, token: usize) -> &mut [f32] {
        assert!(token < self.tokens.len(), "a token of the cell");
        // SAFETY: no two cells have a place in common, and this one is borrowed for as long as the result.
        unsafe { self.out.part(self.tokens.start + token, self.rows.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_everything_once() {
        for n_threads in [1, 3] {
            let team = Team::new(n_threads);
            for (n_tokens, n_rows, len) in [(1, 6, (1, 2)), (10, 6, (4, 3)), (7, 5, (7, 5)), (9, 4, (32, 1))] {
                let mut out = vec![0.0; n_tokens * n_rows];
                Cell::for_each(&team, &mut out, n_rows, len, |first_token, first_row, cell| {
                    for token in 0..cell.n_tokens() {
                        for (row, x) in cell.of_token(token).iter_mut().enumerate() {
                            *x += ((first_token + token) * n_rows + first_row + row + 1) as f32;
                        }
                    }
                });
                assert!(out.iter().enumerate().all(|(i, x)| *x == (i + 1) as f32), "{n_threads}, {n_tokens}, {len:?}");
            }
        }
    }
}
