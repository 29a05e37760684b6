use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(name = "x", description = "x", gguf = ["x", "y", "x"], model_types = ["Qwen3-MoE", "qwen3_moe"])]
fn describe(_: &Config) -> Result<Decoder> { loop {} }

fn main() {}
