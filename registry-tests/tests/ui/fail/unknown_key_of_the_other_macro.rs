use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(name = "x", description = "x", gguf = ["x"], load = main)]
fn describe(_: &Config) -> Result<Decoder> { loop {} }

fn main() {}
