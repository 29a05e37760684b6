//! The toy vocabularies of `tests/data`: the fixtures' tokenizers, as `tokenizer.json` and as a GGUF file holds them.

use kinfolk_text::{GgufVocabulary, Tokenizer, TokenizerConfig};
use serde_json::Value;

use crate::shared;

/// The kinds there are.
pub const KINDS: [&str; 3] = ["byte-level", "spm", "spm-gemma"];

/// The text of a kind's `tokenizer.json`.
pub fn json_text(kind: &str) -> String {
    std::fs::read_to_string(shared::data(&format!("{kind}.tokenizer.json"))).unwrap()
}

/// A kind, from `tokenizer.json`.
pub fn from_json(kind: &str) -> Tokenizer {
    Tokenizer::from_json(&json_text(kind), &TokenizerConfig::default()).unwrap()
}

/// A kind, as its GGUF file has it.
pub fn vocabulary(kind: &str) -> GgufVocabulary {
    let data = shared::json(shared::data(&format!("{kind}.vocabulary.json")));
    let texts =
        |value: &Value| value.as_array().map(|all| all.iter().map(|text| text.as_str().unwrap().to_owned()).collect());
    GgufVocabulary {
        kind: data["model"].as_str().unwrap().to_owned(),
        pre: data["pre"].as_str().map(str::to_owned),
        tokens: texts(&data["tokens"]).unwrap(),
        scores: data["scores"].as_array().map(|all| all.iter().map(|score| score.as_f64().unwrap() as f32).collect()),
        types: data["token_type"].as_array().map(|all| all.iter().map(|kind| kind.as_i64().unwrap()).collect()),
        merges: texts(&data["merges"]),
        bos: data["bos_token_id"].as_u64(),
        eos: data["eos_token_id"].as_u64(),
        unknown: data["unknown_token_id"].as_u64(),
        add_bos: data["add_bos_token"].as_bool(),
        add_eos: data["add_eos_token"].as_bool(),
        add_space_prefix: data["add_space_prefix"].as_bool(),
        ..GgufVocabulary::default()
    }
}

/// A kind, from its GGUF vocabulary.
pub fn from_vocabulary(kind: &str) -> Tokenizer {
    vocabulary(kind).build().unwrap()
}

/// Every toy tokenizer, with a name for messages.
pub fn all() -> Vec<(String, Tokenizer)> {
    KINDS
        .iter()
        .flat_map(|kind| {
            [(format!("{kind} (json)"), from_json(kind)), (format!("{kind} (gguf)"), from_vocabulary(kind))]
        })
        .collect()
}
