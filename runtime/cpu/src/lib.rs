//! The CPU executor.
//!
//! Weights stay as the checkpoint stores them and are decoded row by row inside each product; activations, keys and values are f32.
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
mod rotary;
mod simd;
mod supports;
mod team;

pub use executor::{CPU, CpuExecutor};
