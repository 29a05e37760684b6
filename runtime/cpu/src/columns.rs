//! An output written by several threads.

use std::{marker::PhantomData, ops::Range};

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
