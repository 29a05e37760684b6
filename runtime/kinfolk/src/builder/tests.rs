use kinfolk_weights::WeightFormat;

use super::{ConfigSource, LmRunnerBuilder};
use crate::{
    fixture::{LLAMA, QUANTISED, path, source},
    sampling::SampleOpts,
};

fn reason(result: anyhow::Result<Box<dyn crate::LmRunner>>) -> String {
    result.err().expect("it built").to_string()
}

#[test]
fn what_only_a_session_could_honour_is_refused_by_build() {
    let builder = || LmRunnerBuilder::new().weights(path(LLAMA));
    assert!(reason(builder().stream(|_| {}).build()).starts_with("`stream` needs text"));
    assert!(reason(builder().sample(SampleOpts::greedy()).build()).starts_with("`sample` needs a generation"));
    assert!(reason(LmRunnerBuilder::new().build()).starts_with("no weights"));
    let error = builder().stream(|_| {}).embedder().err().unwrap().to_string();
    assert_eq!(error, "`stream` needs text: expected `session()`, found `embedder()`");
    let error = builder().sample(SampleOpts::greedy()).embedder().err().unwrap().to_string();
    assert_eq!(error, "`sample` needs a generation: expected `session()`, found `embedder()`");
}

#[test]
fn the_format_and_packing_are_known_before_the_load() {
    let resolved = |file: &str, packed: Option<bool>| {
        let mut builder = LmRunnerBuilder::new().weights(path(file));
        if let Some(packed) = packed {
            builder = builder.packed_weights(packed);
        }
        (builder.resolved_format().unwrap(), builder.resolved_packed().unwrap())
    };
    assert_eq!(resolved(QUANTISED, None), (WeightFormat::Gguf, true));
    assert_eq!(resolved(QUANTISED, Some(false)), (WeightFormat::Gguf, false));
    assert_eq!(resolved(LLAMA, Some(true)), (WeightFormat::Safetensors, false), "f32 is nothing packed");
}

#[test]
fn a_config_from_elsewhere_is_the_one_that_counts() {
    let elsewhere = path("mistral").join("config.json");
    let mut builder = LmRunnerBuilder::new().source(source(LLAMA)).config(ConfigSource::JsonFile(elsewhere));
    assert_eq!(builder.open().unwrap().config().architectures()[0], "mistral");
    let explicit = Box::new(source("mistral").config().clone());
    let mut builder = LmRunnerBuilder::new().source(source(LLAMA)).config(ConfigSource::Explicit(explicit));
    assert_eq!(builder.open().unwrap().config().architectures()[0], "mistral");
    let nowhere = ConfigSource::JsonFile(path("nowhere.json"));
    let text = reason(LmRunnerBuilder::new().source(source(LLAMA)).config(nowhere).build());
    assert!(text.starts_with("cannot read `") && text.contains("nowhere.json"), "{text}");
}

#[test]
fn weights_that_are_not_there_are_named() {
    let text = reason(LmRunnerBuilder::new().weights("/nowhere/model.gguf").build());
    assert!(text.contains("/nowhere/model.gguf"), "{text}");
}
