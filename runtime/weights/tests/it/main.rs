//! Integration tests of kinfolk-weights.

mod allocation;
mod config;
mod corpus;
mod directory;
mod fingerprint;
mod fixtures;
mod gguf;
mod gguf_bytes;
mod listing;
mod mutations;
mod quant;
mod reference_parser;
mod safetensors;
mod shards;
mod sniff;
