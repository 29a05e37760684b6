//! A host that writes one line, however many families its Cargo.toml names.

kinfolk::enroll!();

fn main() {
    for family in kinfolk::Registry::linked().families() {
        println!("{}", family.name);
    }
}
