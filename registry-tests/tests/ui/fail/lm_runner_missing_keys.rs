kinfolk::register_lm_runner! {
    family = "x",
    arches = ["x"],
}

fn main() {}
