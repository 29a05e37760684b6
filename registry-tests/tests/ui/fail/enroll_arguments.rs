kinfolk::enroll!("kinfolk-llama");

fn main() {}
