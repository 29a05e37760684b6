//! Integration tests of kinfolk-weights.

mod fixtures;
mod quant;
