//! A host that lists a family in Cargo.toml and names it nowhere.

use kinfolk::Registry;

fn main() {
    let registry = Registry::linked();
    println!("{}", registry.families().len());
    println!("{}", registry.claim_name("alpha", None).expect_err("rustc drops what no code names"));
    println!("{}", registry.expect(["alpha"]).expect_err("rustc drops what no code names"));
}
