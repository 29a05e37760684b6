//! A family whose registration is in a private module that nothing else uses: the first thing a linker drops.

mod registration {
    kinfolk::register_lm_runner! {
        family = "alpha",
        description = "In a module nobody uses",
        arches = ["alpha"],
        load = load,
    }

    fn load(_: kinfolk::LoadRequest) -> anyhow::Result<Box<dyn kinfolk::LmRunner>> {
        anyhow::bail!("linked, and loads nothing")
    }
}
