//! Every key of `#[family]`, inside a module, with a renamed kinfolk.

mod runtime {
    pub use kinfolk::*;
}

mod inside {
    use kinfolk::decoder::{Config, Decoder, Result};

    #[crate::runtime::family(
        name = "every-key",
        description = "Every key there is",
        model_types = ["every_key"],
        gguf = ["everykey"],
        classes = ["EveryKeyForCausalLM"],
        tool_calls = "hermes",
        turn_ends = ["<|im_end|>", "<|IM_END|>"],
        probe = looks_like_it,
        crate = crate::runtime,
    )]
    pub fn describe(config: &Config) -> Result<Decoder> {
        Err(config.unsupported("model_type", "a test").into())
    }

    fn looks_like_it(source: &kinfolk::decoder::Source) -> bool {
        source.tensor_bytes() == 1
    }
}

fn main() {
    let family = inside::FAMILY;
    assert_eq!((family.name, family.crate_name), ("every-key", env!("CARGO_PKG_NAME")));
    assert_eq!((family.model_types, family.gguf, family.arches.len()), (&["every_key"][..], &["everykey"][..], 0));
    assert_eq!((family.conventions.tool_calls, family.conventions.turn_ends.len()), (Some("hermes"), 2));
    assert!(family.probe.is_some() && family.describe.is_some());
    assert!(kinfolk::Registry::linked().get("every-key").is_some());
}
