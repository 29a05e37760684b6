//! The fixtures' tokenizers, from both of their files, against `tokenizers` and `sentencepiece`.

use kinfolk_text::{EncodeOptions, Text, Tokenizer};
use kinfolk_weights::Source;
use serde_json::Value;

use crate::{shared, toy};

const FIXTURES: [&str; 11] = [
    "llama",
    "llama-llama3rope",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "quant-llama",
    "quant-qwen3",
];

#[track_caller]
fn check(name: &str, tokenizer: &Tokenizer, reference: &Value) {
    let cases = reference["cases"].as_array().unwrap();
    assert!(cases.len() > 10);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let ids = |key: &str| -> Vec<u32> {
            case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
        };
        let plain = tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: true }).unwrap();
        assert_eq!(plain, ids("ids"), "{name}: {text:?}");
        let with_special = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap();
        assert_eq!(with_special, ids("with_special"), "{name}: {text:?}");
        assert_eq!(tokenizer.decode(&plain, true), case["decoded"].as_str().unwrap(), "{name}: {text:?}");
        assert_eq!(tokenizer.decode(&with_special, true), case["decoded"].as_str().unwrap(), "{name}: {text:?}");
    }
}

#[test]
fn toy_vocabularies_give_the_reference_ids() {
    for kind in toy::KINDS {
        let reference = shared::json(shared::data(&format!("{kind}.reference.json")));
        check(&format!("{kind} (json)"), &toy::from_json(kind), &reference);
        check(&format!("{kind} (gguf)"), &toy::from_vocabulary(kind), &reference);
    }
}

#[test]
fn fixtures_give_the_reference_ids_from_every_file() {
    let Some(folder) = shared::folder("fixtures/public") else { return };
    for name in FIXTURES {
        let folder = folder.join(name);
        let reference = shared::json(folder.join("tokenizer_reference.json"));
        let gguf = ["model.gguf", "model-Q8_0.gguf"].into_iter().find(|file| folder.join(file).is_file()).unwrap();
        for path in [folder.join("model.safetensors"), folder.join(gguf)] {
            let text = Text::from_source(&Source::open(&path).unwrap(), &[]).unwrap();
            check(&path.display().to_string(), &text.tokenizer, &reference);
            let config = shared::json(folder.join("generation_config.json"));
            for id in config["eos_token_id"].as_array().cloned().unwrap_or_else(|| vec![config["eos_token_id"].clone()])
            {
                assert!(text.ends.contains(id.as_u64().unwrap() as u32), "{}: {id} ends nothing", path.display());
            }
        }
    }
}

#[test]
fn offsets_and_pieces_put_the_text_together() {
    for (name, tokenizer) in toy::all() {
        for text in ["Hello  world 日本\u{2581} 🚀x", " a", "", "\u{2581}", "x\u{2581}\u{2581} \n\t"] {
            let tokens =
                tokenizer.encode_with_offsets(text, EncodeOptions { add_special: true, parse_special: true }).unwrap();
            let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
            assert_eq!(ids, tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap());
            let mut covered = 0;
            for token in tokens.iter().filter(|token| !token.special) {
                assert!(token.range.start <= covered && token.range.end >= covered, "{name}: {text:?} {tokens:?}");
                covered = token.range.end;
                assert_eq!(token.piece, String::from_utf8_lossy(&tokenizer.token_bytes(token.id).unwrap()));
            }
            assert_eq!(covered, text.len(), "{name}: {text:?} {tokens:?}");
        }
    }
}
