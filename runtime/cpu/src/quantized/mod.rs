//! Products with quantised weights in integers.
//!
//! ```text
//! y[row] = Σ over groups of 32 columns:  w_scale · x_scale · (Σ codes · x_codes - offset · Σ x_codes) + minimum · x_scale · Σ x_codes
//! ```
//! Weights keep their codes and are only laid out anew ([`tiles`]); activations become codes of 16 bits with a scale per group
//! ([`activations`]); the sums of a group are exact integers, and its few steps in f32 are the same on every processor, in the same order,
//! whatever the number of tokens and threads ([`kernel`]). Only a matrix unit that gets 32 tokens or more takes larger groups, of weights as of
//! activations ([`spans`]); and where a host asks for it, so many tokens have bytes and only some groups what these leave ([`kernel::bytes`]). A scheme is a file that says where a block's codes, scales and minima are.

mod activations;
mod header;
mod kernel;
mod q4;
mod q5;
mod q6_k;
mod q8;
mod q_k;
mod scheme;
#[cfg(target_arch = "x86_64")]
mod spans;
mod tiles;

use kinfolk_weights::Dtype;

#[cfg(target_arch = "x86_64")]
use crate::level::Level;

pub(crate) use activations::{Codes, Scratch};
pub(crate) use tiles::{Projection, Tiles, forward_all, tile_bytes};

/// Bytes that a thread works in for products of `n_tokens` with a matrix on a matrix unit, if there is one and a kernel for the type.
pub(crate) fn panel_bytes(dtype: Dtype, n_rows: usize, n_tokens: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if tile_bytes(dtype, n_rows, dtype.block_len()).is_some() && spans::is_for(Level::current(), n_tokens) {
        // A gate and what it opens for are one matrix.
        return spans::scratch_bytes(n_rows.saturating_mul(2), n_tokens);
    }
    let _ = (dtype, n_rows, n_tokens);
    0
}
