//! Products with many tokens on the matrix unit.
//!
//! The formats' scales, one for 16 or 32 columns, would make the unit store its sums after every product, which costs it as much as the
//! product. Here the 256 columns of a *span* share a scale: weights and activations are integers of 16 bits, `w ≈ step · (256 · high + low)`,
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
pub(super) use forward::scratch_bytes;
use weights::Weights;

use super::activations::GROUP;
use crate::level::{Level, MANY_TOKENS};

/// Whether so many tokens are multiplied in spans.
pub(super) fn is_for(level: Level, n_tokens: usize) -> bool {
    level == Level::Amx && n_tokens >= MANY_TOKENS
}

/// Columns that share a scale.
const SPAN: usize = 256;

/// Groups of a span.
const SPAN_GROUPS: usize = SPAN / GROUP;

/// Columns that the unit multiplies at once.
const STEP: usize = 64;

/// Groups of a step.
const STEP_GROUPS: usize = STEP / GROUP;

/// Steps of a span.
const STEPS: usize = SPAN / STEP;

/// Tokens of a block, which are the rows of a matrix register.
const TOKENS: usize = 16;

/// The largest code of weights and activations: its upper byte is 127.
const LARGEST: f32 = 127.0 * 256.0;

/// The high and the low byte of a code, both with a sign, are in planes of their own.
const PLANES: usize = 2;
