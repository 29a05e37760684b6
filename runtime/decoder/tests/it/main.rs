//! Descriptions made from configs, and their binding to checkpoints made in memory or found in `registry-tests/fixtures`.

mod bind;
mod checkpoint;
mod config;
mod rope;
mod warnings;
