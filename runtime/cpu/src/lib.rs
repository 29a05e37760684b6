//! The CPU executor.
//!
//! Weights keep their stored codes. Those of the common block types are laid out anew at load and multiplied as integers, with activations
//! of 16 bits; those of other types are decoded row by row inside each product. Between products activations are f32, and so are keys and
//! values.
//! Every number is computed by one thread in one order, so results depend neither on the thread count nor on what else is in
//! the batch.

mod activation;
mod attention;
mod cache;
mod executor;
mod ffn;
mod linear;
mod load;
mod memory;
mod model;
mod norm;
mod quantized;
mod rotary;
mod simd;
mod supports;
mod team;
mod timers;

pub use executor::{CPU, CpuExecutor};
