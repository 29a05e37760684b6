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
    projections.iter().all(|Projection { tiles, .. }| has_kernel(tiles, tiles.n_tokens(x)))
}

/// All `outs` in one operation of the team. There must be a kernel.
pub(super) fn forward<'t, const N: usize>(team: &'t Team, x: &Activations<'_, 't>, outs: [Out<'_>; N]) {
    let [Out { tiles, .. }, ..] = outs[..] else { return };
    let x = Input::new(team, x, tiles);
    let n_pairs = outs.iter().map(|out| out.tiles.n_pairs()).sum();
    team.for_each_index(n_pairs, |indices| {
        SCRATCH.with_borrow_mut(|Scratch { sums, .. }| {
            let mut unit = None;
            for i in indices {
                let (Out { tiles, bias, gating, out }, pair) = find(&outs, i);
                x.multiply(&mut unit, tiles, *bias, pair, sums);
                if let Some(gating) = gating {
                    gating.apply_to_pairs(x.level, sums);
                }
                let rows = tiles.output_of_pair(pair, *gating);
                for (token, sums) in sums.iter().enumerate() {
                    // SAFETY: each thread has other indices, so these rows are nobody else's.
                    copy(sums.as_flattened(), unsafe { out.part(token, rows.clone()) });
                }
            }
        });
    });
}

/// Quantised activations, as the kernels read them.
struct Input<'a> {
    level: Level,
    n_tokens: usize,
    tokens: Tokens<'a>,
}

enum Tokens<'a> {
    Groups([&'a [Group]; MANY_TOKENS]),
    Words([&'a [Words]; MANY_TOKENS]),
    Blocks(&'a [amx::Block]),
}

impl<'a> Input<'a> {
    /// For products with `tiles` and others of as many columns.
    fn new<'t>(team: &'t Team, x: &'a Activations<'_, 't>, tiles: &Tiles) -> Input<'a> {
        let n_tokens = tiles.n_tokens(x);
        let level = tiles.level.for_tokens(n_tokens);
        let tokens = match level {
            Level::Amx => Tokens::Blocks(x.codes.blocks(team, x.x, tiles.n_cols)),
            Level::Avx2 => Tokens::Words(each(x.codes.words(team, x.x), tiles.n_groups())),
            _ => Tokens::Groups(each(x.codes.groups(team, x.x), tiles.n_groups())),
        };
        Input { level, n_tokens, tokens }
    }

    /// Makes `sums` the products of a pair of tiles with each token. `unit` is the thread's, and set up when first used.
    fn multiply(
        &self,
        unit: &mut Option<amx::Unit>,
        tiles: &Tiles,
        bias: Option<&[f32]>,
        pair: usize,
        sums: &mut Vec<Sums>,
    ) {
        let mut first: Sums = [[0.0; ROWS]; TILES];
        if let Some(bias) = bias {
            copy(&bias[tiles.rows_of_pair(pair)], first.as_flattened_mut());
        }
        sums.clear();
        sums.resize(self.n_tokens, first);
        let of_pair = pair * TILES..((pair + 1) * TILES).min(tiles.n_tiles());
        let bytes = [of_pair.start, of_pair.end - 1].map(|tile| tiles.tile(tile));
        let mut straight = |x: straight::Tokens<'_>| {
            for (n, bytes) in bytes.iter().enumerate().take(of_pair.len()) {
                with_scheme!(tiles.dtype, S => straight::accumulate::<S>(self.level, bytes, n, &x, sums), ());
            }
        };
        match &self.tokens {
            Tokens::Groups(x) => straight(straight::Tokens::Groups(&x[..self.n_tokens])),
            Tokens::Words(x) => straight(straight::Tokens::Words(&x[..self.n_tokens])),
            Tokens::Blocks(x) => {
                let new = || amx::Unit::new(self.n_tokens).expect("the level is only chosen where there is a unit");
                let unit = unit.get_or_insert_with(new);
                with_scheme!(tiles.dtype, S => unit.accumulate::<S>(bytes, x, sums), ());
            }
        }
    }
}

/// Each token's part of `x`.
fn each<T>(x: &[T], n_groups: usize) -> [&[T]; MANY_TOKENS] {
    let mut tokens: [&[T]; MANY_TOKENS] = [&[]; MANY_TOKENS];
    tokens.iter_mut().zip(x.chunks(n_groups)).for_each(|(token, x)| *token = x);
    tokens
}

/// A projection whose output several threads write.
pub(super) struct Out<'a> {
    pub tiles: &'a Tiles,
    pub bias: Option<&'a [f32]>,
    pub gating: Option<Gating>,
    pub out: Columns<'a>,
}

impl<'a> From<Projection<'a>> for Out<'a> {
    fn from(Projection { tiles, bias, out }: Projection<'a>) -> Out<'a> {
        Out { tiles, bias, gating: None, out: Columns::new(out, tiles.n_rows) }
    }
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
