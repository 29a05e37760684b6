//! A host that has its family only with a feature.

kinfolk::enroll!();

fn main() {
    println!("{}", kinfolk::Registry::linked().families().len());
}
