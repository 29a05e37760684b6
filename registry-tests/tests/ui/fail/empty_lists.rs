use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(name = "x", description = " ", gguf = [], classes = [""])]
fn describe(_: &Config) -> Result<Decoder> { loop {} }

fn main() {}
