kinfolk::register_lm_runner! {
    family = "x",
    description = "x",
    arches = ["x"],
    load = load,
}

fn load(_: kinfolk::LoadRequest) -> Option<()> {
    None
}

fn main() {}
