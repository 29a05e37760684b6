//! A host with two families that claim one name.

use std::path::Path;

use kinfolk::{Registry, auto_runner_name};

kinfolk::enroll!();

fn main() {
    println!("{}", Registry::linked().claim_name("alpha", None).expect_err("two claim it"));
    println!("{}", Registry::linked().expect([]).expect_err("two claim it"));
    println!("{:?}", auto_runner_name("alpha", Some(Path::new("rival-7b/model.gguf"))));
    println!("{:?}", auto_runner_name("rival", None));
}
