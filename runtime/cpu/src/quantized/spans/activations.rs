//! Activations in spans.

use super::{super::activations::ROUND, LARGEST, PLANES, SPAN, STEP, STEPS, Spans, TOKENS};
use crate::{
    buffers::{Buffer, Buffers},
    level::{Level, compiled_per_level},
    team::Team,
};

/// A span of sixteen tokens, as the unit reads it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in super::super) struct Block {
    /// `[step][plane][token][column]`, of which a span may have fewer steps.
    pub(super) codes: [[[[i8; STEP]; TOKENS]; PLANES]; STEPS],
    /// What a code of one is worth.
    pub(super) steps: [f32; TOKENS],
}

impl Block {
    /// Of tokens that are zero.
    pub const EMPTY: Block = Block { codes: [[[[0; STEP]; TOKENS]; PLANES]; STEPS], steps: [0.0; TOKENS] };
}

/// `[blocks of 16 tokens, spans]` of `x`, rows of `n_cols`. What is missing of the last step and the last block is zero.
pub(in super::super) fn quantize<'t>(
    team: &'t Team,
    buffers: &'t Buffers<Block>,
    x: &[f32],
    n_cols: usize,
) -> Buffer<'t, Block> {
    let level = Level::current();
    let n_tokens = x.len() / n_cols;
    let n_blocks = n_tokens.div_ceil(TOKENS);
    let spans = Spans::of(n_cols);
    let mut blocks = buffers.take(n_blocks * spans.n_spans, Block::EMPTY);
    // Threads share tokens here as in the product, so that each finds what it needs in its own caches.
    team.for_each_chunk(&mut blocks, spans.n_spans, |i, blocks| {
        for (span, block) in blocks.iter_mut().enumerate() {
            let steps = spans.steps(span);
            let columns = steps.start * STEP..(steps.end * STEP).min(n_cols);
            for (t, token) in (i * TOKENS..(i + 1) * TOKENS).enumerate() {
                let x = if token < n_tokens { &x[token * n_cols..][columns.clone()] } else { &[] };
                put(level, x, steps.len(), t, block);
            }
        }
    });
    blocks
}

compiled_per_level!(put = quantize_token [] (x: &[f32], n_steps: usize, t: usize, block: &mut Block));

/// Makes `x` token `t` of `block`, in `n_steps` steps. NaN and infinity make the whole span NaN.
#[inline(always)]
fn quantize_token(x: &[f32], n_steps: usize, t: usize, block: &mut Block) {
    let mut padded = [0.0; SPAN];
    padded[..x.len()].copy_from_slice(x);
    let padded = &padded[..n_steps * STEP];
    let mut largest = [0u32; 16];
    for x in padded.as_chunks::<16>().0 {
        for lane in 0..16 {
            // Without its sign a float orders like its bits, NaN above all.
            largest[lane] = largest[lane].max(x[lane].to_bits() & 0x7fff_ffff);
        }
    }
    let largest = f32::from_bits(largest.into_iter().fold(0, u32::max));
    block.steps[t] = if largest.is_finite() { largest / LARGEST } else { f32::NAN };
    // Below this, the reciprocal of a step overflows; such a span is as good as zero.
    let inverse = if largest > 1e-30 { LARGEST / largest } else { 0.0 };
    for (x, codes) in padded.as_chunks::<STEP>().0.iter().zip(&mut block.codes) {
        // Loops of one kind of step each, which the compiler makes vectors of.
        let mut whole = [0u32; STEP];
        for i in 0..STEP {
            // The last 16 bits are the number's, with its sign.
            whole[i] = (x[i] * inverse + ROUND).to_bits();
        }
        let (mut high, mut low) = ([0i8; STEP], [0i8; STEP]);
        for i in 0..STEP {
            high[i] = (whole[i].wrapping_add(128) >> 8) as i8;
            low[i] = whole[i] as i8;
        }
        (codes[0][t], codes[1][t]) = (high, low);
    }
}
