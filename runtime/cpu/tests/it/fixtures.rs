//! Small models with everything the executor has, and ways to run them.

use std::{path::PathBuf, sync::Arc};

use kinfolk_cpu::CPU;
use kinfolk_decoder::{
    Activation, Cache, Cancel, Config, Decoder, Executor, ForwardError, LoadContext, LoadError, Mask, Model, Moe,
    QkRows, Sequence, Source, Want,
};

/// Two plain layers of full attention.
pub const LLAMA: &str = "llama";
/// Two layers that see 12 tokens each.
pub const WINDOWED: &str = "mistral";
/// Four experts per layer, two at a time, and norms on queries and keys.
pub const EXPERTS: &str = "qwen3_moe";

/// Every kind of cache and feed-forward.
pub const ALL: [&str; 3] = [LLAMA, WINDOWED, EXPERTS];

/// Size of every fixture's vocabulary.
pub const VOCAB: u32 = 320;
/// Longest sequence of every fixture, in tokens.
pub const CONTEXT: usize = 256;

pub fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../registry-tests/fixtures", file].iter().collect()
}

pub fn source(file: &str) -> Source {
    Source::open(path(file)).unwrap()
}

/// Describes whichever of the fixtures `config` is of.
pub fn try_describe(config: &Config) -> kinfolk_decoder::Result<Decoder> {
    let mut decoder = Decoder::llama_shaped(config, 10_000.0, Activation::Silu)?;
    decoder.names = decoder.names.with_gguf_qk_rows(QkRows::Pairs);
    match config.architectures().first().map(String::as_str) {
        Some("mistral") => {
            let window = Mask::from_config(config)?;
            decoder.attentions_mut().for_each(|a| a.mask = window);
        }
        Some("qwen3_moe" | "qwen3moe") => {
            let norm = decoder.final_norm;
            decoder.attentions_mut().for_each(|a| a.qk_norm = Some(norm));
            let moe = Moe::from_config(config, "moe_intermediate_size", Activation::Silu, true)?;
            decoder.set_experts(config, moe)?;
        }
        _ => {}
    }
    Ok(decoder)
}

pub fn describe(config: &Config) -> Arc<Decoder> {
    Arc::new(try_describe(config).unwrap())
}

/// The fixture's own config with some keys changed.
pub fn config_with(fixture: &str, changes: serde_json::Value) -> Config {
    let path = path(fixture).join("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    Config::from_json(path, &config.to_string()).unwrap()
}

pub fn try_load(source: &Source, context: &LoadContext<'_>) -> Result<Arc<dyn Model>, LoadError> {
    CPU.load(describe(source.config()), source, context)
}

pub fn load_with(file: &str, choose: impl FnOnce(&mut LoadContext<'_>)) -> Arc<dyn Model> {
    let mut context = LoadContext::default();
    choose(&mut context);
    try_load(&source(file), &context).unwrap()
}

pub fn load(file: &str) -> Arc<dyn Model> {
    load_with(file, |context| context.threads = Some(2))
}

/// `n` tokens that look like nothing in particular.
pub fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 73 + 11) % VOCAB).collect()
}

pub fn try_forward(
    model: &dyn Model,
    cache: &mut dyn Cache,
    tokens: &[u32],
    want: Want,
) -> Result<Vec<f32>, ForwardError> {
    Ok(model.forward(&mut [Sequence { cache, tokens, want }], &Cancel::new())?.remove(0).values().to_vec())
}

/// As many tokens of a sequence as give the same bits at once as one by one: from 32 on a matrix unit may take part.
pub const FEW: usize = 31;

/// The logits after the last of `tokens`, which the cache grows by, a few at a time.
#[track_caller]
pub fn forward(model: &dyn Model, cache: &mut dyn Cache, tokens: &[u32]) -> Vec<f32> {
    tokens.chunks(FEW).map(|few| try_forward(model, cache, few, Want::LastLogits).unwrap()).last().unwrap()
}

/// The logits after the last of `tokens`, from nothing.
#[track_caller]
pub fn cold(model: &dyn Model, tokens: &[u32]) -> Vec<f32> {
    forward(model, &mut *model.new_cache(), tokens)
}

/// Largest difference of two rows.
#[track_caller]
pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |max, d| if d.is_nan() { f32::INFINITY } else { d.max(max) })
}
