//! Products with weights of BF16, F16 and F32.
//!
//! ```text
//! y[row] = bias[row] + Σ over runs of 128 columns:  Σ w · x, column by column with fused multiply-adds
//! ```
//! Weights keep their type and are only laid out anew ([`tiles`]), so that a column of 32 rows is a few vector registers, to be multiplied with
//! one activation each time ([`kernel`]); activations of several tokens lie beside one another for that ([`tokens`]). The order of a sum
//! is the one above whatever the number of tokens and threads, and the instruction set, if it has fused multiply-adds.
//!
//! Where there is a matrix unit for BF16, it multiplies weights of 16 bits with 32 tokens and more ([`mod@unit`]), each activation being the sum
//! of two BF16 ([`planes`]):
//! ```text
//! y[row] = bias[row] + Σ over runs of 32 columns:  Σ w · low part of x  +  Σ w · high part of x
//! ```
//! Sums are in f32 here too, and each product is within 2⁻¹⁷ of its magnitude, or in F16 within 3 · 2⁻¹⁷. Nothing else changes: neither other
//! tokens, if there are 32 in all, nor threads have a part in a sum. Numbers below 2⁻¹²⁶ in BF16 or in activations count as zero.
//! What an infinite weight, or an infinite activation with weights in F16, gives may be NaN where it was infinite.

mod inputs;
mod kernel;
mod planes;
mod tiles;
mod tokens;
mod unit;

pub(crate) use inputs::Inputs;
pub(crate) use planes::PlaneBuffers;
pub(crate) use tiles::{SCRATCH_BYTES, Tiles, tile_bytes};
pub(crate) use unit::panel_bytes;
