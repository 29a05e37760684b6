//! Encoding, decoding and rendering of long texts. `cargo bench -p kinfolk-text`.

use std::{fs, hint::black_box, path::Path};

use criterion::{Criterion, Throughput};
use kinfolk_text::{ChatTemplate, EncodeOptions, GgufVocabulary, RenderOptions, Tokenizer, TokenizerConfig};
use serde_json::{Value, json};

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A vocabulary of the test data, as a GGUF file holds it.
fn vocabulary(name: &str) -> Tokenizer {
    let root: Value = serde_json::from_str(&data(&format!("{name}.vocabulary.json"))).expect("the file is JSON");
    let texts = |key: &str| -> Option<Vec<String>> {
        Some(root[key].as_array()?.iter().filter_map(|text| Some(text.as_str()?.to_owned())).collect())
    };
    let vocabulary = GgufVocabulary {
        kind: root["model"].as_str().unwrap_or_default().to_owned(),
        pre: root["pre"].as_str().map(str::to_owned),
        tokens: texts("tokens").unwrap_or_default(),
        scores: root["scores"].as_array().map(|all| all.iter().filter_map(|x| Some(x.as_f64()? as f32)).collect()),
        types: root["token_type"].as_array().map(|all| all.iter().filter_map(Value::as_i64).collect()),
        merges: texts("merges"),
        bos: root["bos_token_id"].as_u64(),
        eos: root["eos_token_id"].as_u64(),
        unknown: root["unknown_token_id"].as_u64(),
        ..GgufVocabulary::default()
    };
    vocabulary.build().expect("the vocabulary is sound")
}

fn json(name: &str) -> Tokenizer {
    let text = data(&format!("{name}.tokenizer.json"));
    Tokenizer::from_json(&text, &TokenizerConfig::default()).expect("the file is sound")
}

/// The pieces of a toy unigram model with the algorithm of another kind.
fn unigram(kind: &str) -> Tokenizer {
    let root: Value = serde_json::from_str(&data("unigram.json")).expect("the file is JSON");
    let list = |key: &str| root["plain"][key].as_array().cloned().unwrap_or_default();
    let vocabulary = GgufVocabulary {
        kind: kind.to_owned(),
        tokens: list("tokens").iter().filter_map(|text| Some(text.as_str()?.to_owned())).collect(),
        scores: Some(list("scores").iter().filter_map(|score| Some(score.as_f64()? as f32)).collect()),
        types: Some(list("types").iter().filter_map(Value::as_i64).collect()),
        unknown: Some(2),
        ..GgufVocabulary::default()
    };
    vocabulary.build().expect("the vocabulary is sound")
}

fn kinds() -> Vec<(&'static str, Tokenizer)> {
    vec![
        ("gpt2", vocabulary("byte-level")),
        ("llama", vocabulary("spm")),
        ("bert", unigram("bert")),
        ("t5", unigram("t5")),
        ("rwkv", unigram("rwkv")),
        ("json-bpe", json("byte-level")),
        ("json-spm", json("spm")),
    ]
}

const SENTENCE: &str = "The quick brown fox doesn't jump over 12345 lazy dogs, naïve cafés or 日本語; it reads.\n";

fn texts() -> [(&'static str, String); 3] {
    [
        ("prose-1MB", SENTENCE.repeat((1 << 20) / SENTENCE.len())),
        ("word-2M", "ab".repeat(1_000_000)),
        ("spaces-2M", " ".repeat(2_000_000) + "x"),
    ]
}

fn tokenizers(criterion: &mut Criterion) {
    for (kind, tokenizer) in kinds() {
        let mut group = criterion.benchmark_group(kind);
        group.sample_size(10);
        for (name, text) in texts() {
            group.throughput(Throughput::Bytes(text.len() as u64));
            group.bench_function(format!("encode/{name}"), |bencher| {
                bencher.iter(|| tokenizer.encode(black_box(&text), EncodeOptions::default()));
            });
        }
        let ids = tokenizer.encode(&texts()[0].1, EncodeOptions::default()).unwrap_or_default();
        group.throughput(Throughput::Elements(ids.len() as u64));
        group.bench_function("decode/prose-1MB", |bencher| bencher.iter(|| tokenizer.decode(black_box(&ids), true)));
        group.finish();
    }
}

fn templates(criterion: &mut Criterion) {
    let reference: Value = serde_json::from_str(&data("Qwen-Qwen3-0.6B.chat.json")).expect("the file is JSON");
    let source = reference["template"].as_str().unwrap_or_default();
    let template = ChatTemplate::new(source, &TokenizerConfig::default()).expect("the template is sound");
    let mut group = criterion.benchmark_group("render");
    for n_turns in [2, 200] {
        let turn =
            |nth: usize| json!({"role": if nth.is_multiple_of(2) { "user" } else { "assistant" }, "content": SENTENCE});
        let messages: Vec<Value> = (0..n_turns).map(turn).collect();
        let options = RenderOptions::default();
        group.bench_function(format!("{n_turns}-messages"), |bencher| {
            bencher.iter(|| template.render(black_box(&messages), &options));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    tokenizers(&mut criterion);
    templates(&mut criterion);
    criterion.final_summary();
}
