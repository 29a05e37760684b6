//! Products with weights of BF16, F16 and F32 in f32.
//!
//! ```text
//! y[row] = bias[row] + Σ over runs of 128 columns:  Σ w · x, column by column with fused multiply-adds
//! ```
//! Weights keep their type and are only laid out anew ([`tiles`]), so that a column of 32 rows is a few vector registers, to be multiplied with
//! one activation each time ([`kernel`]); activations of several tokens lie beside one another for that ([`tokens`]). The order of a sum
//! is the one above whatever the number of tokens and threads, and the instruction set, if it has fused multiply-adds.

mod kernel;
mod tiles;
mod tokens;

pub(crate) use tiles::{SCRATCH_BYTES, Tiles, tile_bytes};
pub(crate) use tokens::Tokens;
