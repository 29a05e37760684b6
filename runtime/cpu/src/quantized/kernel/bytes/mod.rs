//! The product of unpacked tiles with many tokens whose activations are bytes, and two bytes in the groups that need them most.
//!
//! Per row and token, in this order and with fused multiply-adds:
//!
//! ```text
//! for each group of a run:       s = Σ codes · x_codes - offset · Σ x_codes            at most 32 · 255 · 128 < 2²¹
//!                                acc += (s · w_scale) · x_scale
//!                                acc += minimum · (x_scale · Σ x_codes)                if the scheme has minima; of both bytes
//! for each rest of the run:      the first two of these with its codes and scale, and the weights of its group
//! ```
//! With scales for halves, `s · w_scale` is the sum of both. Integer sums start with the bits of a number whose distance to the next is 1, so that what
//! they end with are the bits of `number + s`, and `(number + s) · w_scale - number · w_scale` is one step to `s · w_scale`, exactly: the
//! product of a scale and that number is an f32 for all that headers hold.

mod avx512;

use super::{Sums, TILES};
use crate::{
    level::{Level, MANY_TOKENS},
    quantized::{
        activations::{Bytes, GROUP, N_STARTS, ROUND},
        scheme::{Form, Lanes, Panel, ROWS},
    },
};

/// Whether a level takes this kernel for so many tokens.
pub(in super::super) fn is_for(level: Level, n_tokens: usize) -> bool {
    level == Level::Avx512Vnni && n_tokens >= MANY_TOKENS
}

/// As [`accumulate`](super::accumulate), of groups and of the rests that follow them.
///
/// # Panics
/// If there are more tiles, more tokens than sums, fewer groups than panels, or a rest is of no group of the run.
pub(in super::super) fn accumulate(level: Level, form: Form, tiles: &[&[Panel]], x: &[&[Bytes]], sums: &mut [Sums]) {
    let n_groups = tiles.first().map_or(0, |tile| tile.len());
    assert!(tiles.len() <= TILES && tiles.iter().all(|tile| tile.len() == n_groups), "tiles of one length");
    assert!(x.len() <= sums.len(), "a sum for every token");
    assert!(x.iter().all(|x| x.len() >= n_groups), "as many groups for every token");
    match level {
        // SAFETY: a level is only made where the processor has its instruction sets.
        Level::Avx512Vnni => unsafe { avx512::accumulate(form, tiles, x, sums) },
        _ => defined(form, tiles, x, sums),
    }
}

/// The definition, in plain Rust.
fn defined(form: Form, tiles: &[&[Panel]], x: &[&[Bytes]], sums: &mut [Sums]) {
    for (x, sums) in x.iter().zip(sums) {
        for (tile, sums) in tiles.iter().zip(sums) {
            let (groups, rests) = x.split_at(tile.len());
            for (panel, x) in tile.iter().zip(groups) {
                add_product(form, panel, x, sums);
                if form == Form::Minimum {
                    for (sum, minimum) in sums.iter_mut().zip(panel.scaling.minima) {
                        *sum = minimum.mul_add(x.scaled_sum, *sum);
                    }
                }
            }
            for rest in rests {
                add_product(form, &tile[rest.group as usize], rest, sums);
            }
        }
    }
}

fn add_product(form: Form, panel: &Panel, x: &Bytes, sums: &mut Lanes) {
    let mut products = [[0i32; ROWS]; 2];
    for (k, codes) in panel.codes.iter().enumerate() {
        for (i, code) in codes.iter().enumerate() {
            products[k / 4][i / 4] += i32::from(*code) * i32::from(x.codes[4 * k + i % 4]);
        }
    }
    for (row, sum) in sums.iter_mut().enumerate() {
        let [first, second] = [products[0][row], products[1][row]];
        let scales = panel.scaling.scales.map(|scales| scales[row]);
        let of = |sum: i32, scale: f32| f32::from_bits(sum as u32).mul_add(scale, scale * -ROUND);
        let product = match form {
            Form::Offset(_) => of(first + second + x.starts[form.start()], scales[0]),
            Form::OffsetOfHalves(_) => {
                of(second + x.starts[form.start() + 1], scales[1]) + of(first + x.starts[form.start()], scales[0])
            }
            Form::Minimum => of(first + second + ROUND.to_bits() as i32, scales[0]),
        };
        *sum = product.mul_add(x.scale, *sum);
    }
}
