use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(gguf = ["x"])]
fn describe(_: &Config) -> Result<Decoder> { loop {} }

fn main() {}
