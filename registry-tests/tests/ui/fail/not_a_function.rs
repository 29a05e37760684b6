use kinfolk::decoder::{Config, Decoder, Result};

#[kinfolk::family(name = "x", description = "x", gguf = ["x"])]
struct Describe;

fn main() {}
