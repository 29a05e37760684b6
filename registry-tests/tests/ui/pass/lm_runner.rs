//! A runner written by hand.

kinfolk::register_lm_runner! {
    family = "by-hand",
    description = "Refuses",
    arches = ["ByHand"],
    load = refuse::load,
}

mod refuse {
    use kinfolk::{LmRunner, LoadRequest};

    pub fn load(_: LoadRequest) -> anyhow::Result<Box<dyn LmRunner>> {
        anyhow::bail!("a test")
    }
}

fn main() {
    assert!(FAMILY.describe.is_none() && FAMILY.probe.is_none());
    assert_eq!(kinfolk::auto_runner_name("by hand", None), Some("by-hand"));
}
