//! Small whole models for tests: checkpoints of `registry-tests/fixtures` and a family that describes them.

use std::{path::PathBuf, sync::Arc};

use kinfolk_decoder::{Activation, Config, Decoder, Mask, QkRows, Source};
use serde_json::Value;

use crate::{API_VERSION, Conventions, Family, LmRunner, LoadOptions, LoadRequest, load::load_described};

pub(crate) const LLAMA: &str = "llama";
/// Every layer sees 12 tokens.
pub(crate) const WINDOWED: &str = "mistral";
pub(crate) const QUANTISED: &str = "quant-llama/model-Q4_K_M.gguf";
/// Size of the vocabulary of each.
pub(crate) const VOCAB: usize = 320;

/// Describes any of these checkpoints. Not enrolled: tests load through it directly.
pub(crate) const FAMILY: Family = Family {
    name: "fixture",
    description: "Checkpoints of tests",
    model_types: &["llama", "mistral"],
    gguf: &[],
    classes: &[],
    arches: &[],
    probe: None,
    load,
    describe: Some(describe),
    conventions: Conventions { tool_calls: None, turn_ends: &[] },
    api_version: API_VERSION,
    crate_name: "kinfolk",
    crate_version: "0",
};

pub(crate) fn load(request: LoadRequest) -> anyhow::Result<Box<dyn LmRunner>> {
    load_described(&FAMILY, request)
}

fn describe(config: &Config) -> kinfolk_decoder::Result<Decoder> {
    let mut decoder = Decoder::llama_shaped(config, 10_000.0, Activation::Silu)?;
    decoder.names = decoder.names.with_gguf_qk_rows(QkRows::Pairs);
    let mask = Mask::from_config(config)?;
    decoder.attentions_mut().for_each(|a| a.mask = mask);
    Ok(decoder)
}

pub(crate) fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../registry-tests/fixtures", file].iter().collect()
}

pub(crate) fn source(file: &str) -> Source {
    Source::open(path(file)).unwrap()
}

/// A checkpoint whose config has some keys changed.
pub(crate) fn source_with(file: &str, changes: Value) -> Source {
    let path = path(file).join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let mut source = source(file);
    source.set_config(Config::from_json(path, &config.to_string()).unwrap());
    source
}

pub(crate) fn request(source: Source, choose: impl FnOnce(&mut LoadOptions)) -> LoadRequest {
    let mut options = LoadOptions::default();
    choose(&mut options);
    LoadRequest::new(Arc::new(source), options)
}

/// `n` tokens that look like nothing in particular.
pub(crate) fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 73 + 11) % VOCAB as u32).collect()
}

/// That logits or states are as near as those of passes of 32 tokens and more are to those of smaller ones: a matrix unit may compute the former.
#[track_caller]
pub fn assert_near(found: &[f32], expected: &[f32], what: impl std::fmt::Display) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let furthest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(furthest <= 2e-4 * largest, "{what}: {furthest} of {largest}");
}
