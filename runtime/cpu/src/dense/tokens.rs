//! Activations in the order in which the kernels read them.
//!
//! ```text
//! tokens 0..12:  column 0 of all 12 | column 1 of all 12 | …      tokens 12..24:  …      the rest in blocks of 8, 4, 2 and 1
//! ```

use std::ops::Deref;

use crate::{buffers::Buffer, team::Team};

/// Tokens of a block, the most first.
pub(super) const WIDTHS: [usize; 5] = [12, 8, 4, 2, 1];

/// The inputs of a projection in blocks of tokens.
pub(crate) struct Tokens<'a, 't> {
    n_tokens: usize,
    /// Even: a column of zeros follows an odd number.
    n_cols: usize,
    values: Values<'a, 't>,
}

enum Values<'a, 't> {
    AsTheyLie(&'a [f32]),
    LaidOut(Buffer<'t, f32>),
}

/// Tokens side by side.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// Tokens, one of [`WIDTHS`].
    pub width: usize,
    /// `[n_cols, width]`
    values: &'a [f32],
}

impl Deref for Values<'_, '_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Values::AsTheyLie(values) => values,
            Values::LaidOut(values) => values,
        }
    }
}

impl<'a, 't> Tokens<'a, 't> {
    /// Lays out `x`, `[tokens, n_cols]`.
    ///
    /// # Cost
    /// Copies nothing where a single token already lies as it should.
    pub fn new(team: &'t Team, x: &'a [f32], n_cols: usize) -> Tokens<'a, 't> {
        let (n_tokens, padded) = (x.len() / n_cols, n_cols.next_multiple_of(2));
        if n_tokens == 1 && padded == n_cols {
            return Tokens { n_tokens, n_cols, values: Values::AsTheyLie(x) };
        }
        let mut values = team.floats.take(n_tokens * padded, 0.0);
        team.for_each_chunk(&mut values, WIDTHS[0] * padded, |chunk, values| {
            let mut x = &x[chunk * WIDTHS[0] * n_cols..];
            let mut values = values;
            while !values.is_empty() {
                let width = width(values.len() / padded);
                let (block, others) = values.split_at_mut(width * padded);
                interleave(&x[..width * n_cols], n_cols, width, block);
                (values, x) = (others, &x[width * n_cols..]);
            }
        });
        Tokens { n_tokens, n_cols: padded, values: Values::LaidOut(values) }
    }

    pub fn len(&self) -> usize {
        self.n_tokens
    }

    /// The block that starts with token `first`.
    pub fn block(&self, first: usize) -> Block<'_> {
        let width = width(self.n_tokens - first);
        Block { width, values: &self.values[first * self.n_cols..][..width * self.n_cols] }
    }
}

impl<'a> Block<'a> {
    /// The values of columns `first..first + n`, `[n, width]`.
    pub fn columns(&self, first: usize, n: usize) -> &'a [f32] {
        &self.values[first * self.width..][..n * self.width]
    }
}

/// Tokens of the next block where there are `n`, at least 1, left.
fn width(n: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width <= n).expect("the last width is 1")
}

/// Columns interleaved before the next are: a line of the cache of each token.
const LINE: usize = 16;

/// `[width, n_cols]` to `[n_cols, width]`.
fn interleave(x: &[f32], n_cols: usize, width: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_mut(LINE * width).enumerate() {
        let first = i * LINE;
        for (token, x) in x.chunks_exact(n_cols).enumerate() {
            for (column, out) in (first..).zip(out.chunks_exact_mut(width)) {
                out[token] = x.get(column).copied().unwrap_or(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_activation_is_where_its_block_says() {
        let team = Team::new(2);
        for n_tokens in [1, 2, 3, 11, 12, 13, 31, 100] {
            for n_cols in [1, 2, 7, 20] {
                let x: Vec<f32> = (0..n_tokens * n_cols).map(|i| i as f32 + 1.0).collect();
                let tokens = Tokens::new(&team, &x, n_cols);
                let mut first = 0;
                while first < n_tokens {
                    let block = tokens.block(first);
                    for token in 0..block.width {
                        for column in 0..n_cols.next_multiple_of(2) {
                            let expected = if column < n_cols { x[(first + token) * n_cols + column] } else { 0.0 };
                            assert_eq!(block.columns(column, 1)[token], expected, "{n_tokens} by {n_cols}");
                        }
                    }
                    first += block.width;
                }
                assert_eq!(first, n_tokens);
            }
        }
    }
}
