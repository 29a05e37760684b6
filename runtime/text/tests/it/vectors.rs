//! Token ids, pieces and text against llama.cpp's, for vocabularies in GGUF files.

use std::path::Path;

use kinfolk_text::{EncodeOptions, Tokenizer};
use kinfolk_weights::Source;
use serde_json::Value;

use crate::shared;

fn open(path: &Path) -> Tokenizer {
    Tokenizer::from_source(&Source::open(path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// A text given as such, or as bytes that are no text.
fn bytes(value: &Value) -> Vec<u8> {
    match (value["text"].as_str(), value["hex"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (_, Some(hex)) => {
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        }
        _ => panic!("neither text nor hex: {value}"),
    }
}

/// Checks a vocabulary against its `extra.json`.
fn check_extra(tokenizer: &Tokenizer, extra: &Value) {
    assert_eq!(tokenizer.vocab_size() as u64, extra["n_vocab"].as_u64().unwrap());
    assert_eq!(tokenizer.add_bos(), extra["special"]["add_bos"].as_bool().unwrap());
    let cases = extra["cases"].as_array().unwrap();
    assert!(cases.len() >= 100);
    let mut wrong = Vec::new();
    for case in cases {
        let text = case["text"].as_str().unwrap();
        for (name, add_special, parse_special) in
            [("plain", false, false), ("add", true, false), ("parse", false, true), ("add_parse", true, true)]
        {
            let expected = ids(&case["ids"][name]);
            let found = tokenizer.encode(text, EncodeOptions { add_special, parse_special }).unwrap();
            if found != expected {
                wrong.push(format!("{} {name} {text:?}\n  expected {expected:?}\n  found    {found:?}", case["id"]));
            }
        }
        let plain = ids(&case["ids"]["plain"]);
        let detok = String::from_utf8_lossy(&bytes(&case["detok"])).into_owned();
        // llama.cpp tidies spaces up for some vocabularies; the plain concatenation is in `pieces` then.
        let pieces = match &case["pieces"] {
            Value::String(_) => detok.clone(),
            pieces => String::from_utf8_lossy(&bytes(pieces)).into_owned(),
        };
        let found = tokenizer.decode(&plain, false);
        if found != detok && found != pieces {
            wrong.push(format!(
                "{} decode\n  expected {detok:?}\n  or       {pieces:?}\n  found    {found:?}",
                case["id"]
            ));
        }
        let concatenated: Vec<u8> =
            plain.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap().into_owned()).collect();
        if String::from_utf8_lossy(&concatenated) != pieces {
            wrong.push(format!("{} pieces", case["id"]));
        }
    }
    wrong.extend(cases.iter().filter_map(|case| check_shown_and_hidden(tokenizer, case)));
    for token in extra["token_pieces"].as_array().unwrap() {
        let id = token["id"].as_u64().unwrap() as u32;
        let expected = bytes(token);
        let found = tokenizer.token_bytes(id).map(|bytes| bytes.into_owned()).unwrap_or_default();
        if found != expected {
            wrong.push(format!("piece of {id}: expected {expected:?}, found {found:?}"));
        }
        let hidden = token.get("when_special_hidden").is_some();
        if tokenizer.is_special(id) != hidden {
            wrong.push(format!(
                "{id} {:?}: special {}, hidden there {hidden}",
                token["text"],
                tokenizer.is_special(id)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks the text of a prompt with special tokens shown and hidden. Two differences are meant:
///
/// * llama.cpp keeps the space that encoding put in front of the first word if BOS came before it; here it is dropped, as by
///   `tokenizers` and `sentencepiece`, since otherwise every reply to a prompt with BOS would start with a space;
/// * llama.cpp tidies up spaces before punctuation for some vocabularies (see `decode`).
fn check_shown_and_hidden(tokenizer: &Tokenizer, case: &Value) -> Option<String> {
    let add_parse = ids(&case["ids"]["add_parse"]);
    let shown = String::from_utf8_lossy(&bytes(&case["detok_add_parse"])).into_owned();
    let hidden = String::from_utf8_lossy(&bytes(&case["detok_add_parse_stripped"])).into_owned();
    let found_shown = tokenizer.decode(&add_parse, false);
    let found_hidden = tokenizer.decode(&add_parse, true);
    let prefixed = tokenizer.token_text(add_parse.first().copied().unwrap_or_default());
    let tidied = case["pieces"].as_str().is_none();
    let equal = |found: &str, expected: &str| {
        found == expected
            || format!(" {found}") == expected
            || tidied && without_spaces(found) == without_spaces(expected)
    };
    if equal(&found_shown, &shown) && equal(&found_hidden, &hidden) {
        return None;
    }
    Some(format!(
        "{} {prefixed:?}\n  shown  {shown:?}\n  found  {found_shown:?}\n  hidden {hidden:?}\n  found  {found_hidden:?}",
        case["id"]
    ))
}

fn without_spaces(text: &str) -> String {
    text.replace(' ', "")
}

/// Checks a vocabulary against llama.cpp's own test strings.
fn check_inp_out(tokenizer: &Tokenizer, inp: &str, out: &str) {
    let texts: Vec<&str> = inp.split("\n__ggml_vocab_test__\n").collect();
    let lines: Vec<&str> = out.lines().collect();
    assert!(texts.len() >= lines.len() && lines.len() > 30, "{} {}", texts.len(), lines.len());
    for (text, line) in texts.iter().zip(lines) {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(text, EncodeOptions::default()).unwrap(), expected, "{text:?}");
    }
}

fn check_vocabulary(name: &str) {
    let Some(folder) = shared::folder("textref/tokenizers/public") else { return };
    let tokenizer = open(&folder.join(format!("ggml-vocab-{name}.gguf")));
    let text = |ending: &str| std::fs::read_to_string(folder.join(format!("ggml-vocab-{name}.gguf.{ending}"))).unwrap();
    check_inp_out(&tokenizer, &text("inp"), &text("out"));
    check_extra(&tokenizer, &shared::json(folder.join(format!("{name}.extra.json"))));
}

fn check_model(file_name: &str, extra: &str) {
    let Some(folder) = shared::folder("textref/tokenizers/public") else { return };
    let Some(path) = shared::model(file_name) else { return };
    check_extra(&open(&path), &shared::json(folder.join(extra)));
}

#[test]
fn gpt_2_equals_llama_cpp() {
    check_vocabulary("gpt-2");
}

#[test]
fn llama_bpe_equals_llama_cpp() {
    check_vocabulary("llama-bpe");
}

#[test]
fn llama_spm_equals_llama_cpp() {
    check_vocabulary("llama-spm");
}

#[test]
fn phi_3_equals_llama_cpp() {
    check_vocabulary("phi-3");
}

#[test]
fn qwen2_equals_llama_cpp() {
    check_vocabulary("qwen2");
}

#[test]
fn deepseek_llm_equals_llama_cpp() {
    check_vocabulary("deepseek-llm");
}

#[test]
fn bert_bge_equals_llama_cpp() {
    check_vocabulary("bert-bge");
}

#[test]
fn smollm2_equals_llama_cpp() {
    check_model("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct.extra.json");
}

#[test]
fn gemma_3_equals_llama_cpp() {
    check_model("gemma-3-270m-q4_k_m.gguf", "gemma-3-270m.extra.json");
}
