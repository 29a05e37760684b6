//! A family that a host renames.

kinfolk::register_lm_runner! {
    family = "beta",
    description = "A renamed one",
    arches = ["beta"],
    load = load,
}

fn load(_: kinfolk::LoadRequest) -> anyhow::Result<Box<dyn kinfolk::LmRunner>> {
    anyhow::bail!("linked, and loads nothing")
}
