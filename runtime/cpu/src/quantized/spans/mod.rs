//! Products with many tokens on the matrix unit.
//!
//! The formats' scales, one for 16 or 32 columns, would make the unit store its sums after every product, which costs it as much as the
//! product. Here the columns of a *span*, 256 or so, share a scale: weights and activations are integers of 16 bits, `w ≈ step · (256 · high + low)`,
//! and likewise `x`, and the unit sums over a whole span
//!
//! ```text
//! Σ high_w · high_x      and      Σ high_w · low_x + low_w · high_x      in i32, exactly
//! y += (256 · first + second) · 256 · step_w · step_x
//! ```
//! leaving out the lowest term, `Σ low_w · low_x`. A weight is off by up to a step, 1/32512 of its row's largest in the span; an
//! activation by half a step, 1/65024 of its token's largest; and the term left out has 74² · √256 steps² as its mean, 1e-4 of what a sum of
//! 256 products usually is. For what that does to logits see `PERFORMANCE.md`.

mod activations;
mod forward;
mod product;
mod weights;

pub(super) use activations::{Block, quantize};
pub(super) use forward::{Pass, scratch_bytes};
use weights::Weights;

use std::ops::Range;

use super::activations::GROUP;
use crate::{
    level::{Level, MANY_TOKENS},
    team::share,
};

/// Whether so many tokens are multiplied in spans.
pub(super) fn is_for(level: Level, n_tokens: usize) -> bool {
    level == Level::Amx && n_tokens >= MANY_TOKENS
}

/// Columns that the unit multiplies at once.
const STEP: usize = 64;

/// Groups of a step.
const STEP_GROUPS: usize = STEP / GROUP;

/// Steps of a span, at most.
const STEPS: usize = 5;

/// Steps of most spans. A span's sums cost about as much as two steps, whatever its length.
const USUAL_STEPS: usize = 4;

/// Columns of a span and its groups, at most.
const SPAN: usize = STEPS * STEP;
const SPAN_GROUPS: usize = SPAN / GROUP;

/// How columns fall into spans of nearly the same number of steps.
#[derive(Clone, Copy)]
struct Spans {
    n_steps: usize,
    n_spans: usize,
}

impl Spans {
    fn of(n_cols: usize) -> Spans {
        let n_steps = n_cols.div_ceil(STEP);
        Spans { n_steps, n_spans: n_steps.div_ceil(STEPS).max(n_steps / USUAL_STEPS) }
    }

    fn steps(self, span: usize) -> Range<usize> {
        share(self.n_steps, span, self.n_spans)
    }
}

/// Tokens of a block, which are the rows of a matrix register.
const TOKENS: usize = 16;

/// The largest code of weights and activations: its upper byte is 127.
const LARGEST: f32 = 127.0 * 256.0;

/// The high and the low byte of a code, both with a sign, are in planes of their own.
const PLANES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_take_every_step_once_and_are_of_nearly_one_length() {
        assert_eq!(Spans::of(0).n_spans, 0);
        for n_steps in 1..=100 {
            let spans = Spans::of(n_steps * STEP);
            let all: Vec<_> = (0..spans.n_spans).map(|span| spans.steps(span)).collect();
            assert!(all.iter().cloned().flatten().eq(0..n_steps), "{all:?}");
            let (least, most) = (n_steps / spans.n_spans, n_steps.div_ceil(spans.n_spans));
            assert!(all.iter().all(|steps| (least..=most).contains(&steps.len())) && most <= STEPS, "{all:?}");
            assert!(least >= USUAL_STEPS || n_steps < 12, "{all:?}");
        }
        assert_eq!(Spans::of(3 * STEP + 32).steps(0), 0..4, "a step that is not full is one");
    }
}
