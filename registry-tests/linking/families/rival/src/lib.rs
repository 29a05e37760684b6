//! A family that claims another's name.

kinfolk::register_lm_runner! {
    family = "rival",
    description = "A second claimant",
    arches = ["rival", "alpha"],
    load = load,
}

fn load(_: kinfolk::LoadRequest) -> anyhow::Result<Box<dyn kinfolk::LmRunner>> {
    anyhow::bail!("linked, and loads nothing")
}
