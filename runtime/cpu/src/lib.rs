//! The CPU executor.
//!
//! Weights keep their stored codes and are laid out anew at load. Those of the common block types are multiplied as integers, with activations
//! of 16 bits, and those of BF16, F16 and F32 in f32; block types without a kernel are decoded row by row inside each product. Between
//! products activations are f32, and so are keys and values.
//! Every number is computed by one thread in one order, so results do not depend on the thread count. In passes of fewer than 32 tokens they
//! do not depend on what else is in the batch either, and products with quantised weights not on the processor. From 32 tokens on a matrix unit (AMX) may
//! multiply weights, and from 32 of one sequence on queries with keys, and values with what these give, in planes that together hold 16 bits.
//! Logits of the fixtures are then up to 5e-3 from where they are in smaller passes, and those of real models with quantised weights up to 0.2
//! (root of the mean square 0.005 to 0.02); llama.cpp's 8 bits move these by up to 1.5.
//!
//! Kernels are those of the processor's best instruction set, unless a host says another of its [`levels`] before it loads a model.

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
mod prefetch;
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
pub use level::{LevelError, levels, use_level};
#[cfg(feature = "testing")]
pub use product::Product;
