//! Products with few tokens, whose weights go from a tile to the product within registers: a panel would be written once and read once.

use super::{
    super::{
        activations::Words,
        kernel::{amx, straight},
    },
    *,
};
use crate::level::MANY_TOKENS;

/// Whether there is a kernel for so many tokens.
pub(super) fn has_kernel(tiles: &Tiles, n_tokens: usize) -> bool {
    match tiles.level.for_tokens(n_tokens) {
        Level::Amx => n_tokens < MANY_TOKENS,
        level => straight::is_for(level, tiles.form(), n_tokens),
    }
}

/// Whether the products are so short that waking the team for each would show.
pub(super) fn is_worth_joining(x: &Activations<'_, '_>, projections: &[Projection<'_>]) -> bool {
    projections.iter().all(|Projection { tiles, .. }| has_kernel(tiles, x.x.len() / tiles.n_cols.max(1)))
}

/// Quantised activations, as the kernels read them.
#[derive(Clone, Copy)]
enum Tokens<'a> {
    Groups([&'a [Group]; MANY_TOKENS]),
    Words([&'a [Words]; MANY_TOKENS]),
    Blocks(&'a [amx::Block]),
}

/// Each token's part of `x`.
fn tokens<T>(x: &[T], n_groups: usize) -> [&[T]; MANY_TOKENS] {
    let mut tokens: [&[T]; MANY_TOKENS] = [&[]; MANY_TOKENS];
    tokens.iter_mut().zip(x.chunks(n_groups)).for_each(|(token, x)| *token = x);
    tokens
}

/// The products of all `projections` in one operation of the team. There must be a kernel.
pub(super) fn forward<'t, const N: usize>(team: &'t Team, x: &Activations<'_, 't>, projections: [Projection<'_>; N]) {
    let [Projection { tiles: &Tiles { n_cols, level, .. }, .. }, ..] = projections[..] else { return };
    let n_tokens = x.x.len() / n_cols.max(1);
    let level = level.for_tokens(n_tokens);
    let x = match level {
        Level::Amx => Tokens::Blocks(x.codes.blocks(team, x.x, n_cols)),
        Level::Avx2 => Tokens::Words(tokens(x.codes.words(team, x.x), n_cols / GROUP)),
        _ => Tokens::Groups(tokens(x.codes.groups(team, x.x), n_cols / GROUP)),
    };
    let outs = projections.map(|p| Out { tiles: p.tiles, bias: p.bias, out: Columns::new(p.out, p.tiles.n_rows) });
    let n_pairs = outs.iter().map(|out| out.tiles.n_pairs()).sum();
    team.for_each_index(n_pairs, |indices| {
        SCRATCH.with_borrow_mut(|Scratch { sums, .. }| {
            let mut unit = None;
            for i in indices {
                let (out, pair) = find(&outs, i);
                let tiles = pair * TILES..((pair + 1) * TILES).min(out.tiles.n_tiles());
                let rows = tiles.start * ROWS..(tiles.end * ROWS).min(out.tiles.n_rows);
                let mut first: Sums = [[0.0; ROWS]; TILES];
                if let Some(bias) = out.bias {
                    copy(&bias[rows.clone()], first.as_flattened_mut());
                }
                sums.clear();
                sums.resize(n_tokens, first);
                let bytes = [tiles.start, tiles.end - 1].map(|tile| out.tiles.tile(tile));
                let mut straight = |x: straight::Tokens<'_>| {
                    for (n, bytes) in bytes.iter().enumerate().take(tiles.len()) {
                        with_scheme!(out.tiles.dtype, S => straight::accumulate::<S>(level, bytes, n, &x, sums), ());
                    }
                };
                match &x {
                    Tokens::Groups(x) => straight(straight::Tokens::Groups(&x[..n_tokens])),
                    Tokens::Words(x) => straight(straight::Tokens::Words(&x[..n_tokens])),
                    Tokens::Blocks(x) => {
                        let new = || amx::Unit::new(n_tokens).expect("the level is only chosen where there is a unit");
                        let unit = unit.get_or_insert_with(new);
                        with_scheme!(out.tiles.dtype, S => unit.accumulate::<S>(bytes, x, sums), ());
                    }
                }
                for (token, sums) in sums.iter().enumerate() {
                    // SAFETY: each thread has other indices, so these rows are nobody else's.
                    copy(sums.as_flattened(), unsafe { out.out.part(token, rows.clone()) });
                }
            }
        });
    });
}

/// A projection whose output several threads write.
struct Out<'a> {
    tiles: &'a Tiles,
    bias: Option<&'a [f32]>,
    out: Columns<'a>,
}

/// Which pair of tiles of which projection is the `i`-th of all.
fn find<'a, 'b>(outs: &'a [Out<'b>], i: usize) -> (&'a Out<'b>, usize) {
    let mut pair = i;
    for out in outs {
        match pair.checked_sub(out.tiles.n_pairs()) {
            Some(beyond) => pair = beyond,
            None => return (out, pair),
        }
    }
    unreachable!("an index of a pair")
}
