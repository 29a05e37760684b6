use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(name = "x", description = "x", gguf = ["x"])]
fn describe(_: &str) -> Result<Decoder> { loop {} }

fn main() {}
