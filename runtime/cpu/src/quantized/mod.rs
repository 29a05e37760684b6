//! Products with quantised weights in integers.
//!
//! ```text
//! y[row] = Σ over groups of 32 columns:  w_scale · x_scale · (Σ codes · x_codes - offset · Σ x_codes) + minimum · x_scale · Σ x_codes
//! ```
//! Weights keep their codes and are only laid out anew ([`tiles`]); activations become codes of 16 bits with a scale per group
//! ([`activations`]); the sums of a group are exact integers, and its few steps in f32 are the same on every processor, in the same order,
//! whatever the number of tokens and threads ([`kernel`]). A scheme is a file that says where a block's codes, scales and minima are.

mod activations;
mod header;
mod kernel;
mod q4;
mod q5;
mod q6_k;
mod q8;
mod q_k;
mod scheme;
mod tiles;

pub(crate) use activations::{Codes, Scratch};
pub(crate) use tiles::{Projection, Tiles, forward_all, tile_bytes};
