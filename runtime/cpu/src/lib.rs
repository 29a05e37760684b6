//! The CPU executor.
//!
//! Weights keep their stored codes and are laid out anew at load. Those of the common block types are multiplied as integers, with activations
//! of 16 bits, and those of BF16, F16 and F32 in f32; block types without a kernel are decoded row by row inside each product. Between
//! products activations are f32, and so are keys and values.
//! Every number is computed by one thread in one order, so results do not depend on the thread count; nor on what else is in the batch, but
//! that from 32 tokens on a matrix unit may multiply weights of 16 bits, with activations of 16 bits or more, and from 32 of one sequence on
//! queries with keys, and values with what these give, in planes that together hold 16 bits.

mod activation;
mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
mod arena;
mod attention;
mod buffers;
mod cache;
mod columns;
mod dense;
mod executor;
mod exp;
mod f16;
mod ffn;
mod level;
mod linear;
mod load;
mod memory;
mod model;
mod norm;
mod peaks;
#[cfg(feature = "testing")]
mod product;
mod quantized;
mod rotary;
mod rows;
mod simd;
mod supports;
mod team;
mod timers;

pub use executor::{CPU, CpuExecutor};
#[cfg(feature = "testing")]
pub use product::{Product, levels};
