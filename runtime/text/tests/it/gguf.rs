//! GGUF files with nothing but metadata, and what lies beside them.

use std::{fs, path::Path};

use kinfolk_text::{EncodeOptions, RenderOptions, Text, TextError};
use kinfolk_weights::Source;
use serde_json::json;

use crate::toy;

/// A metadata value.
enum Value {
    U32(u32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn array_head(out: &mut Vec<u8>, element: u32, len: usize) {
    out.extend(9u32.to_le_bytes());
    out.extend(element.to_le_bytes());
    out.extend((len as u64).to_le_bytes());
}

/// Writes the file: version 3, no tensors.
fn write(path: &Path, entries: &[(String, Value)]) {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        string(&mut out, key);
        match value {
            Value::U32(number) => {
                out.extend(4u32.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            Value::Bool(switch) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*switch));
            }
            Value::Text(text) => {
                out.extend(8u32.to_le_bytes());
                string(&mut out, text);
            }
            Value::Texts(texts) => {
                array_head(&mut out, 8, texts.len());
                texts.iter().for_each(|text| string(&mut out, text));
            }
            Value::Floats(numbers) => {
                array_head(&mut out, 6, numbers.len());
                numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
            }
            // Wider than files have it: any width that fits is accepted.
            Value::Ints(numbers) => {
                array_head(&mut out, 11, numbers.len());
                numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
            }
        }
    }
    fs::write(path, out).unwrap();
}

fn entry(key: &str, value: Value) -> (String, Value) {
    (key.to_owned(), value)
}

/// The entries of a toy vocabulary.
fn vocabulary(kind: &str) -> Vec<(String, Value)> {
    let toy = toy::vocabulary(kind);
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let mut entries = vec![
        entry("general.architecture", Value::Text("toy".to_owned())),
        (key("model"), Value::Text(toy.kind)),
        (key("tokens"), Value::Texts(toy.tokens)),
    ];
    entries.extend(toy.pre.map(|pre| (key("pre"), Value::Text(pre))));
    entries.extend(toy.scores.map(|scores| (key("scores"), Value::Floats(scores))));
    entries.extend(toy.types.map(|types| (key("token_type"), Value::Ints(types))));
    entries.extend(toy.merges.map(|merges| (key("merges"), Value::Texts(merges))));
    entries.extend(toy.bos.map(|id| (key("bos_token_id"), Value::U32(id as u32))));
    entries.extend(toy.eos.map(|id| (key("eos_token_id"), Value::U32(id as u32))));
    entries.extend(toy.unknown.map(|id| (key("unknown_token_id"), Value::U32(id as u32))));
    entries.extend(toy.add_bos.map(|add| (key("add_bos_token"), Value::Bool(add))));
    entries.extend(toy.add_space_prefix.map(|add| (key("add_space_prefix"), Value::Bool(add))));
    entries
}

fn open(entries: &[(String, Value)], beside: &[(&str, String)]) -> Result<Text, TextError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, entries);
    for (name, content) in beside {
        fs::write(folder.path().join(name), content).unwrap();
    }
    Text::from_source(&Source::open(&path).unwrap(), &[])
}

#[test]
fn a_vocabulary_in_the_file_wins_and_one_beside_it_serves_where_there_is_none() {
    for kind in toy::KINDS {
        let other = if kind == "spm" { "byte-level" } else { "spm" };
        let beside = [("tokenizer.json", toy::json_text(other))];
        let expected =
            |tokenizer: &kinfolk_text::Tokenizer| tokenizer.encode("Hello there", EncodeOptions::default()).unwrap();
        let own = open(&vocabulary(kind), &beside).unwrap();
        assert_eq!(expected(&own.tokenizer), expected(&toy::from_vocabulary(kind)), "{kind}");
        let bare = open(&[entry("general.architecture", Value::Text("toy".to_owned()))], &beside).unwrap();
        assert_eq!(expected(&bare.tokenizer), expected(&toy::from_json(other)), "{kind}");
    }
    let nothing = open(&[entry("general.architecture", Value::Text("toy".to_owned()))], &[]).unwrap_err();
    assert!(matches!(nothing, TextError::NoTokenizer { .. }), "{nothing}");
}

#[test]
fn templates_with_names_are_read_from_the_metadata() {
    let mut entries = vocabulary("spm");
    entries.push(entry("tokenizer.chat_template", Value::Text("{{ bos_token }}plain".to_owned())));
    entries.push(entry("tokenizer.chat_template.tool_use", Value::Text("{{ tools | length }} tools".to_owned())));
    entries.push(entry("tokenizer.chat_templates", Value::Texts(vec!["tool_use".to_owned()])));
    let template = open(&entries, &[("chat_template.jinja", "beside".to_owned())]).unwrap().template.unwrap();
    let mut options = RenderOptions::default();
    assert_eq!(template.render(&[], &options).unwrap(), "<s>plain");
    options.tools = Some(vec![json!({"type": "function"})]);
    assert_eq!(template.render(&[], &options).unwrap(), "1 tools");
}

// E2: ends of the file and of the files beside it add up. What is beside may belong to another model, so that there only
// special tokens of this one count.
#[test]
fn ends_in_the_metadata_and_beside_it_add_up() {
    let mut entries = vocabulary("byte-level");
    entries.push(entry("tokenizer.ggml.eot_token_id", Value::U32(0)));
    entries.push(entry("tokenizer.ggml.eom_token_id", Value::U32(9)));
    let beside = [("generation_config.json", r#"{"eos_token_id": [1, 50, 4000]}"#.to_owned())];
    let text = open(&entries, &beside).unwrap();
    assert_eq!(text.ends.iter().collect::<Vec<_>>(), [0, 1, 2, 9]);
}

#[test]
fn a_damaged_vocabulary_is_an_error_and_no_reason_to_look_elsewhere() {
    let mut entries = vocabulary("spm");
    for (key, value) in &mut entries {
        if key.ends_with(".scores") {
            *value = Value::Floats(vec![0.0; 3]);
        }
    }
    let error = open(&entries, &[("tokenizer.json", toy::json_text("spm"))]).unwrap_err();
    assert!(error.to_string().contains("tokenizer.ggml.scores"), "{error}");

    // A4: a score stored as an integer is a damaged file.
    for (key, value) in &mut entries {
        if key.ends_with(".scores") {
            *value = Value::Ints(vec![0; 320]);
        }
    }
    let error = open(&entries, &[]).unwrap_err();
    assert!(error.to_string().contains("tokenizer.ggml.scores"), "{error}");
}
