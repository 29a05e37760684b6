//! The executor on small whole models: the checkpoints of `registry-tests/fixtures`, described here by hand.

mod allocation;
mod batch;
mod cache;
mod errors;
mod fixtures;
mod hostile;
mod load;
mod longrope;
mod memory;
mod operations;
mod profile;
mod roles;
