//! A family whose crate lacks the prefix, so that the host has to list it.

kinfolk::register_lm_runner! {
    family = "mine",
    description = "One without the prefix",
    arches = ["mine"],
    load = load,
}

fn load(_: kinfolk::LoadRequest) -> anyhow::Result<Box<dyn kinfolk::LmRunner>> {
    anyhow::bail!("linked, and loads nothing")
}
