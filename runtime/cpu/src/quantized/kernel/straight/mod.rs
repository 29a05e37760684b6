//! Few tokens, straight from a tile.
//!
//! A panel would be written once and read once or not much more often. Here codes go from memory to the product within registers, in the
//! steps of the definition.

mod avx2;
pub(super) mod avx512;

use super::{super::scheme::Scheme, *};
use crate::{level::MANY_TOKENS, quantized::activations::Words};

/// The tokens, as the level multiplies them.
pub(in super::super) enum Tokens<'a> {
    Groups(&'a [&'a [Group]]),
    Words(&'a [&'a [Words]]),
}

/// Whether this is the kernel for so many tokens.
pub(in super::super) fn is_for(level: Level, form: Form, n_tokens: usize) -> bool {
    match (level, form) {
        (Level::Avx512Vnni, _) => n_tokens < MANY_TOKENS,
        // With so few registers, more tokens make it worth while to unpack weights once for all.
        (Level::Avx2 | Level::AvxVnni, Form::OffsetOfHalves(_)) => n_tokens <= 4,
        (Level::Avx2 | Level::AvxVnni, _) => n_tokens <= 8,
        (Level::Scalar | Level::Amx, _) => false,
    }
}

/// Adds the product of a `tile` with tokens to `sums`, that of the `n`-th tile of each token.
///
/// # Panics
/// If there are more tokens than sums, or the level multiplies others.
pub(in super::super) fn accumulate<S: Scheme>(level: Level, tile: &[u8], n: usize, x: &Tokens<'_>, sums: &mut [Sums]) {
    match (level, x) {
        // SAFETY: a level is only made where the processor has its instruction sets.
        (Level::Avx512Vnni, Tokens::Groups(x)) => unsafe { avx512::accumulate::<S>(tile, n, x, sums) },
        // SAFETY: as above.
        (Level::AvxVnni, Tokens::Groups(x)) => unsafe { avx2::with_vnni::accumulate::<S>(tile, n, x, sums) },
        // SAFETY: as above.
        (Level::Avx2, Tokens::Words(x)) => unsafe { avx2::without_vnni::accumulate::<S>(tile, n, x, sums) },
        _ => unreachable!("tokens as the level multiplies them"),
    }
}

/// Calls `$some::<S, tokens>($tile, $n, x, sums)` with about equally many tokens at a time, no more than the last of `$count`.
macro_rules! for_each_share {
    ($some:ident, $most:expr, $tile:expr, $n:expr, $x:expr, $sums:expr, [$($count:literal),*]) => {{
        let (mut x, mut sums) = ($x, $sums);
        assert!(x.len() <= sums.len(), "a sum for every token");
        while !x.is_empty() {
            let now = if x.len() <= $most { x.len() } else { x.len().div_ceil(x.len().div_ceil($most)) };
            match now {
                $($count => $some::<S, $count>($tile, $n, x, sums),)*
                _ => unreachable!("no more tokens than that"),
            }
            (x, sums) = (&x[now..], &mut sums[now..]);
        }
    }};
}
use for_each_share;
