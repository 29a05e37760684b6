//! A family behind a feature of the host.

kinfolk::register_lm_runner! {
    family = "gamma",
    description = "An optional one",
    arches = ["gamma"],
    load = load,
}

fn load(_: kinfolk::LoadRequest) -> anyhow::Result<Box<dyn kinfolk::LmRunner>> {
    anyhow::bail!("linked, and loads nothing")
}
