//! Prints the instruction sets that products have a version for on this processor, the best last.
//!
//! `cargo run -p kinfolk-cpu --example levels`

#![expect(clippy::print_stdout, reason = "what it is for")]

fn main() {
    println!("levels: {}", kinfolk_cpu::levels().join(", "));
}
