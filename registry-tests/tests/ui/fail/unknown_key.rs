use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(name = "x", description = "x", modeltype = ["x"])]
fn describe(_: &Config) -> Result<Decoder> { loop {} }

fn main() {}
