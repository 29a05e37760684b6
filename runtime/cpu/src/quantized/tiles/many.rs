//! Products with many tokens, whose weights are unpacked to panels once for all of them.

use super::*;
use crate::quantized::activations::RUN;
#[cfg(target_arch = "x86_64")]
use crate::quantized::{
    activations::{Bytes, Words},
    kernel::bytes,
};

/// Groups unpacked at a time: of two tiles 22 KiB of bytes or 38 of words, which stay in the first-level cache beside some tokens' groups.
const PANEL_GROUPS: usize = RUN;

/// Few tokens, at most: they are given half as many groups at a time, since their sums cost little to take up again.
const FEW: usize = 16;

/// Groups of tokens that are multiplied with all rows of a thread before the next are: they stay in the second-level cache, and so do their
/// outputs.
const CHUNK_GROUPS: usize = 12 * 1024;

/// Tokens for which it is worth while to unpack all weights.
const SHARE: usize = 128;

/// A product.
pub(super) struct Many<'a, T: Token> {
    pub tiles: &'a Tiles,
    pub level: Level,
    /// `[tokens, `[`T::len`](Token::len)`]`
    pub x: &'a [T],
    pub bias: Option<&'a [f32]>,
    pub gating: Option<Gating>,
    pub out: &'a Columns<'a>,
}

impl<T: Token> Many<'_, T> {
    pub fn forward(&self, team: &Team) {
        let n_tokens = self.out.n_tokens();
        let n_blocks = n_tokens.div_ceil(TOKENS);
        // Threads share tokens where there are many, since each then finds in its own caches what it has quantised, and rows where there are not.
        let n_shares = team.n_threads().min(n_tokens / SHARE).max(1);
        let n_runs = team.n_threads() / n_shares;
        let n_chunks = (n_tokens * self.tiles.n_groups()).div_ceil(CHUNK_GROUPS * n_shares);
        team.for_each_range(n_shares * n_runs, |parts| {
            SCRATCH.with_borrow_mut(|scratch| {
                for (part, chunk) in parts.flat_map(|part| (0..n_chunks).map(move |chunk| (part, chunk))) {
                    let blocks = share(n_blocks, part % n_shares * n_chunks + chunk, n_shares * n_chunks);
                    let tokens = blocks.start * TOKENS..(blocks.end * TOKENS).min(n_tokens);
                    for pair in share(self.tiles.n_pairs(), part / n_shares, n_runs) {
                        // SAFETY: no two parts have both tokens and pairs in common.
                        unsafe { self.multiply(pair, tokens.clone(), scratch) };
                    }
                }
            });
        });
    }

    /// The products of a pair of tiles with `tokens`.
    ///
    /// # Safety
    /// Nothing else may hold these rows of these tokens in the output.
    unsafe fn multiply(&self, pair: usize, tokens: Range<usize>, scratch: &mut Scratch) {
        let (panels, sums) = T::scratch(scratch);
        let n_groups = self.tiles.n_groups();
        let of_each = T::len(n_groups);
        let tiles = pair * TILES..((pair + 1) * TILES).min(self.tiles.n_tiles());
        let rows = self.tiles.rows_of_pair(pair);
        let of_out = self.tiles.output_of_pair(pair, self.gating);
        let mut first: Sums = [[0.0; ROWS]; TILES];
        if let Some(bias) = self.bias {
            copy(&bias[rows], first.as_flattened_mut());
        }
        sums.clear();
        sums.resize(tokens.len(), first);
        panels.resize(TILES * PANEL_GROUPS, T::Panel::EMPTY);
        // Of nearly equal length: the last would otherwise be a short one.
        let n_runs = T::n_runs(n_groups, tokens.len());
        for run in 0..n_runs {
            let groups = share(n_groups, run, n_runs);
            let of_token = T::place(n_groups, &groups);
            for (tile, panels) in tiles.clone().zip(panels.chunks_exact_mut(PANEL_GROUPS)) {
                self.tiles.ask_ahead(tile, &groups);
                self.tiles.unpack(tile, groups.start, &mut panels[..groups.len()]);
            }
            let (a, b) = panels.split_at(PANEL_GROUPS);
            let panels = &[&a[..groups.len()], &b[..groups.len()]][..tiles.len()];
            for (block, sums) in sums.chunks_mut(TOKENS).enumerate() {
                let first = tokens.start + block * TOKENS;
                let mut x: [&[T]; TOKENS] = [&[]; TOKENS];
                for (x, token) in x.iter_mut().zip(first..).take(sums.len()) {
                    *x = &self.x[token * of_each..][of_token.clone()];
                }
                let outputs = if run + 1 == n_runs { first..first + sums.len() } else { 0..0 };
                outputs.clone().for_each(|token| self.out.ask_for(token, of_out.clone()));
                T::accumulate(self.level, self.tiles.form(), panels, &x[..sums.len()], sums);
                if let Some(gating) = self.gating.filter(|_| !outputs.is_empty()) {
                    gating.apply_to_pairs(self.level, sums);
                }
                for (token, sums) in outputs.zip(sums) {
                    // SAFETY: the caller's promise.
                    copy(sums.as_flattened(), unsafe { self.out.part(token, of_out.clone()) });
                }
            }
        }
    }
}

/// A group of a token, as many tokens are multiplied.
pub(super) trait Token: Sync + Sized {
    /// What weights are unpacked to.
    type Panel: Unpacked;

    /// A thread's panels and sums.
    fn scratch(scratch: &mut Scratch) -> (&mut Vec<Self::Panel>, &mut Vec<Sums>);

    /// Runs of groups that are unpacked one after the other for so many tokens.
    fn n_runs(n_groups: usize, n_tokens: usize) -> usize {
        n_groups.div_ceil(if n_tokens > FEW { PANEL_GROUPS } else { PANEL_GROUPS / 2 })
    }

    /// How many there are of a token of `n_groups`.
    fn len(n_groups: usize) -> usize {
        n_groups
    }

    /// Where among them a run is.
    fn place(_n_groups: usize, run: &Range<usize>) -> Range<usize> {
        run.clone()
    }

    /// As [`kernel::accumulate`].
    fn accumulate(level: Level, form: Form, panels: &[&[Self::Panel]], x: &[&[Self]], sums: &mut [Sums]);
}

impl Token for Group {
    type Panel = Panel;

    fn scratch(scratch: &mut Scratch) -> (&mut Vec<Panel>, &mut Vec<Sums>) {
        (&mut scratch.panels, &mut scratch.sums)
    }

    fn accumulate(level: Level, form: Form, panels: &[&[Panel]], x: &[&[Group]], sums: &mut [Sums]) {
        kernel::accumulate(level, form, panels, x, sums);
    }
}

#[cfg(target_arch = "x86_64")]
impl Token for Words {
    type Panel = words::Panel;

    fn scratch(scratch: &mut Scratch) -> (&mut Vec<words::Panel>, &mut Vec<Sums>) {
        (&mut scratch.words, &mut scratch.sums)
    }

    fn accumulate(level: Level, form: Form, panels: &[&[words::Panel]], x: &[&[Words]], sums: &mut [Sums]) {
        words::accumulate(level, form, panels, x, sums);
    }
}

#[cfg(target_arch = "x86_64")]
impl Token for Bytes {
    type Panel = Panel;

    fn scratch(scratch: &mut Scratch) -> (&mut Vec<Panel>, &mut Vec<Sums>) {
        (&mut scratch.panels, &mut scratch.sums)
    }

    // Whatever the number of tokens, since each run has its own rests.
    fn n_runs(n_groups: usize, _n_tokens: usize) -> usize {
        Bytes::n_runs(n_groups)
    }

    fn len(n_groups: usize) -> usize {
        Bytes::len(n_groups)
    }

    fn place(n_groups: usize, run: &Range<usize>) -> Range<usize> {
        Bytes::place(n_groups, run.start)
    }

    fn accumulate(level: Level, form: Form, panels: &[&[Panel]], x: &[&[Bytes]], sums: &mut [Sums]) {
        bytes::accumulate(level, form, panels, x, sums);
    }
}

/// What groups of a tile are unpacked to.
pub(in super::super) trait Unpacked: Clone {
    const EMPTY: Self;

    /// Becomes group `group` of a tile's `block`.
    fn unpack<S: Scheme>(&mut self, block: &[u8], fields: &<S::Header as Header>::Fields, group: usize);
}

impl Unpacked for Panel {
    const EMPTY: Panel = Panel::EMPTY;

    #[inline(always)]
    fn unpack<S: Scheme>(&mut self, block: &[u8], fields: &<S::Header as Header>::Fields, group: usize) {
        scheme::unpack::<S>(block, fields, group, &mut self.scaling, |k, codes| self.codes[k] = codes);
    }
}

#[cfg(target_arch = "x86_64")]
impl Unpacked for words::Panel {
    const EMPTY: words::Panel = words::Panel::EMPTY;

    #[inline(always)]
    fn unpack<S: Scheme>(&mut self, block: &[u8], fields: &<S::Header as Header>::Fields, group: usize) {
        scheme::unpack::<S>(block, fields, group, &mut self.scaling, |k, codes| {
            self.codes[k] = words::widened(S::FORM, &codes);
        });
    }
}

compiled_per_level!(pub(super) unpack = unpack_each [S: Scheme, P: Unpacked] (tile: &[u8], first: usize, panels: &mut [P]));

#[inline(always)]
fn unpack_each<S: Scheme, P: Unpacked>(tile: &[u8], first: usize, panels: &mut [P]) {
    let of_block = S::BLOCK_LEN / GROUP;
    let (mut group, mut panels) = (first, panels);
    while !panels.is_empty() {
        let block = &tile[group / of_block * S::TILE_BYTES..][..S::TILE_BYTES];
        let fields = S::Header::fields(block, Portable);
        let within = group % of_block;
        let (now, rest) = panels.split_at_mut((of_block - within).min(panels.len()));
        for (i, panel) in now.iter_mut().enumerate() {
            panel.unpack::<S>(block, &fields, within + i);
        }
        group += now.len();
        panels = rest;
    }
}
