//! Exists because `links` needs a build script: `links = "kinfolk"` makes cargo refuse two copies of the waist in one
//! program, which would split the registry.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
