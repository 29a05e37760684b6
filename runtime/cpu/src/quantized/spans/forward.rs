//! The products of a matrix in spans.
//!
//! ```text
//! for each 8 strips of 32 rows:   sums 512 KiB with 512 tokens, in the second-level cache
//!     for each span:              activations 256 to 320 KiB, there as well
//!         for each strip:         weights 16 to 20 KiB, in the first-level cache
//!             for each 16 tokens: sums of a span in registers
//! ```

use std::{cell::RefCell, ops::Range};

use super::{
    super::{
        activations::GROUP,
        scheme::{Panel, ROWS},
        tiles::{Tiles, copy},
    },
    Block, SPAN_GROUPS, STEP_GROUPS, Spans, TOKENS, Weights,
    product::{Out, STRIP, Sums, Target, Tokens, Unit},
};
use crate::{
    activation::Gating,
    columns::Columns,
    prefetch::{self, LINE},
    team::{Team, share},
};

/// Strips whose sums are in the cache at once.
const STRIPS: usize = 8;

/// Blocks of tokens for which it is worth while to unpack all weights.
const SHARE_BLOCKS: usize = 16;

/// What a thread works with. One for the life of the thread, so that no product allocates.
struct Scratch {
    panels: Vec<Panel>,
    weights: [Weights; STRIP],
    /// `[strips, tokens]`
    sums: Vec<Sums>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { panels: Vec::new(), weights: [Weights::EMPTY; STRIP], sums: Vec::new() }) };
}

/// Bytes that a thread works in for `n_tokens` with up to `n_rows`.
pub(in super::super) fn scratch_bytes(n_rows: usize, n_tokens: usize) -> u64 {
    let n_strips = n_rows.div_ceil(STRIP * ROWS).min(STRIPS);
    ((n_strips * size_of::<Sums>()) as u64).saturating_mul((n_tokens as u64).saturating_add(TOKENS as u64))
}

/// Products to compute.
pub(in super::super) struct Pass<'a> {
    /// `[blocks, spans]`
    pub x: &'a [Block],
    /// `[n_rows]`
    pub bias: Option<&'a [f32]>,
    /// For rows of two matrices in turns: what of both is the output.
    pub gating: Option<Gating>,
    /// `[tokens, n_rows]`, or of half of the rows with a gating.
    pub out: Columns<'a>,
}

impl Tiles {
    /// As [`forward`](Tiles::forward).
    pub(in super::super) fn forward_in_spans(&self, team: &Team, pass: &Pass<'_>) {
        let n_blocks = pass.out.n_tokens().div_ceil(TOKENS);
        let n_strips = self.n_tiles().div_ceil(STRIP);
        // Threads share the tokens, since each then finds in its own caches what it has computed before and goes on with, if there are enough
        // to be worth unpacking all weights for; those who share tokens share the rows.
        let n_shares = team.n_threads().min(n_blocks / SHARE_BLOCKS).max(1);
        let n_runs = team.n_threads() / n_shares;
        team.for_each_range(n_shares * n_runs, |parts| {
            let unit = &Unit::new().expect("the level is only chosen where there is a unit");
            for part in parts {
                let blocks = share(n_blocks, part % n_shares, n_shares);
                let strips = share(n_strips, part / n_shares, n_runs);
                for first in strips.clone().step_by(STRIPS) {
                    let strips = first..(first + STRIPS).min(strips.end);
                    // SAFETY: no two parts have both tokens and strips in common.
                    unsafe { self.strips_in_spans(unit, strips, blocks.clone(), pass) };
                }
            }
        });
    }

    /// The products of `strips` with `blocks` of the tokens.
    ///
    /// # Safety
    /// Nothing else may hold these rows of these tokens in the output.
    unsafe fn strips_in_spans(&self, unit: &Unit, strips: Range<usize>, blocks: Range<usize>, pass: &Pass<'_>) {
        let Pass { x, bias, gating, ref out } = *pass;
        let n_tokens = blocks.len() * TOKENS;
        let tokens = blocks.start * TOKENS..(blocks.end * TOKENS).min(out.n_tokens());
        let spans = Spans::of(self.n_groups() * GROUP);
        let groups = |span| {
            let steps = spans.steps(span);
            steps.start * STEP_GROUPS..(steps.end * STEP_GROUPS).min(self.n_groups())
        };
        SCRATCH.with_borrow_mut(|Scratch { panels, weights, sums }| {
            panels.resize(SPAN_GROUPS, Panel::EMPTY);
            sums.resize(strips.len() * n_tokens, Sums::ZERO);
            for span in 0..spans.n_spans {
                for (strip, sums) in strips.clone().zip(sums.chunks_exact_mut(n_tokens)) {
                    self.fold(strip, groups(span), panels, weights);
                    let start = (span == 0).then(|| {
                        let mut start = Sums::ZERO;
                        if let Some(bias) = bias {
                            copy(&bias[self.rows_of_pair(strip)], start.0.as_flattened_mut());
                        }
                        start
                    });
                    // A strip is a pair of tiles.
                    let rows = self.output_of_pair(strip, gating);
                    let out = Out { columns: out, tokens: tokens.clone(), rows, gating };
                    let out = (span + 1 == spans.n_spans).then_some(out);
                    match strip + 1 {
                        next if next < strips.end => self.prefetch(next, groups(span)),
                        _ if span + 1 < spans.n_spans => self.prefetch(strips.start, groups(span + 1)),
                        _ => {}
                    }
                    // SAFETY: the caller's promise.
                    unsafe {
                        let to = Target { start: start.as_ref(), sums, out };
                        let x = Tokens {
                            blocks: &x[blocks.start * spans.n_spans..blocks.end * spans.n_spans],
                            n_spans: spans.n_spans,
                            span,
                        };
                        unit.accumulate(weights, x, spans.steps(span).len(), to);
                    }
                }
            }
        });
    }

    /// Asks for some groups of a strip's weights, while others are multiplied: each is a short run of memory, too short for the processor to
    /// see what comes.
    fn prefetch(&self, strip: usize, groups: Range<usize>) {
        for tile in strip * STRIP..((strip + 1) * STRIP).min(self.n_tiles()) {
            let tile = self.tile(tile);
            let at = |group| tile.len() * group / self.n_groups();
            for line in (at(groups.start)..at(groups.end)).step_by(LINE) {
                prefetch::second_level(&raw const tile[line]);
            }
        }
    }

    /// Unpacks some `groups` of a strip's tiles to `weights`, through `panels`. A tile that is not there leaves its weights as they are.
    fn fold(&self, strip: usize, groups: Range<usize>, panels: &mut [Panel], weights: &mut [Weights; STRIP]) {
        let panels = &mut panels[..groups.len()];
        let tiles = strip * STRIP..self.n_tiles();
        for (tile, weights) in tiles.zip(weights) {
            self.unpack(tile, groups.start, panels);
            // SAFETY: there is a matrix unit, so the processor has the instruction sets.
            unsafe { weights.fold(self.form(), self.bits(), panels) };
        }
    }
}
