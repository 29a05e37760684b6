kinfolk::register_lm_runner! {
    family = "x",
    description = "x",
    arche = ["x"],
    load = load,
}

fn main() {}
