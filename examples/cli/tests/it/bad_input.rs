//! Bad input is refused in one line that names the file, what was expected and what was found, with exit code 1.

use std::{fs, path::Path};

use crate::kinfolk::{Scratch, fixture, kinfolk, kinfolk_where, tinytales};

/// Every command that opens a model refuses it with a line that has all `parts`.
#[track_caller]
fn check_refused(model: &str, parts: &[&str]) {
    let line = kinfolk(&["run", model, "Hi", "--max-tokens", "1"]).refusal();
    for part in parts {
        assert!(line.contains(part), "`{part}` in: {line}");
    }
}

#[test]
fn files_that_are_no_model() {
    let scratch = Scratch::new();
    let model = fs::read(tinytales()).unwrap();
    let cut = |n: usize| model[..n].to_vec();
    let mut noise = vec![0u8; 4096];
    noise.iter_mut().fold(1u32, |x, byte| {
        *byte = (x >> 16) as u8;
        x.wrapping_mul(1_103_515_245).wrapping_add(12_345)
    });
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty.gguf", Vec::new(), "empty"),
        ("magic.gguf", cut(4), "expected"),
        ("header.gguf", cut(100), "expected"),
        ("tensors.gguf", cut(model.len() - 1), "expected"),
        ("random.gguf", noise, "expected"),
        ("page.gguf", b"<!DOCTYPE html><html></html>".to_vec(), "web page"),
        ("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".to_vec(), "git-lfs"),
    ];
    for (name, bytes, part) in cases {
        let path = scratch.file(name, bytes);
        check_refused(&path, &[&path, part, "found"]);
    }
}

#[test]
fn lengths_that_no_file_could_hold() {
    let scratch = Scratch::new();
    let model = fs::read(tinytales()).unwrap();
    let huge = (1u64 << 60).to_le_bytes();
    // Header: magic, version, number of tensors, number of keys, length of the first key.
    for (what, at) in [("tensors", 8), ("keys", 16), ("first key", 24)] {
        let mut bytes = model.clone();
        bytes[at..at + 8].copy_from_slice(&huge);
        let path = scratch.file(&format!("{what}.gguf"), bytes);
        check_refused(&path, &[&path, "expected", "found"]);
    }
    let mut header = huge.to_vec();
    header.extend(b"{}");
    let path = scratch.file("m/model.safetensors", header);
    scratch.file("m/config.json", "{}");
    check_refused(&path, &[&path, "expected", "found"]);
}

/// A copy of a checkpoint whose config has been edited as text.
fn with_config(scratch: &Scratch, name: &str, from: &str, to: &str) -> String {
    let copy = scratch.copy(name);
    let config = copy.join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&config, text.replace(from, to)).unwrap();
    copy.to_str().unwrap().to_owned()
}

#[test]
fn configs_that_lie() {
    let cases = [
        ("\"hidden_size\": 48", "\"hidden_size\": \"wide\"", vec!["`hidden_size`", "expected", "wide"]),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": -4", vec!["`num_attention_heads`", "expected", "-4"]),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 1099511627776",
            vec!["`num_hidden_layers`", "1099511627776"],
        ),
        ("\"hidden_size\": 48,", "", vec!["`hidden_size`", "missing"]),
        (
            "\"num_key_value_heads\": 4",
            "\"num_key_value_heads\": 3",
            vec!["`num_key_value_heads`", "divisor", "found 3"],
        ),
        (
            "\"intermediate_size\": 56",
            "\"intermediate_size\": 64",
            vec!["mlp.gate_proj.weight", "[64, 48]", "[56, 48]"],
        ),
        ("\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"", vec!["rope", "`spiral`", "expected"]),
        ("\"hidden_act\": \"silu\"", "\"hidden_act\": \"magic\"", vec!["`hidden_act`", "`magic`", "expected"]),
    ];
    for (from, to, parts) in cases {
        let scratch = Scratch::new();
        check_refused(&with_config(&scratch, "llama", from, to), &parts);
    }
}

#[test]
fn a_missing_tensor_is_named() {
    let scratch = Scratch::new();
    let model = with_config(&scratch, "llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    check_refused(&model, &[&model, "`model.layers.2.input_layernorm.weight`", "found none"]);
}

#[test]
fn an_index_that_names_an_absent_shard() {
    let scratch = Scratch::new();
    let copy = scratch.copy("llama");
    let index = r#"{"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}"#;
    fs::write(copy.join("model.safetensors.index.json"), index).unwrap();
    fs::remove_file(copy.join("model.gguf")).unwrap();
    check_refused(copy.to_str().unwrap(), &["model.safetensors.index.json", "`model-00001-of-00002.safetensors`"]);
}

#[test]
fn an_unknown_architecture_names_the_families_and_ends_with_what_to_add() {
    let scratch = Scratch::new();
    let model = with_config(&scratch, "llama", "\"model_type\": \"llama\"", "\"model_type\": \"nobody_knows\"");
    let config = Path::new(&model).join("config.json");
    let text = fs::read_to_string(&config).unwrap().replace("LlamaForCausalLM", "NobodyKnows");
    fs::write(&config, text).unwrap();
    check_refused(&model, &["`nobody_knows`", "config.json", "`qwen3`", "cargo add"]);
}

#[test]
fn a_directory_with_several_models_lists_them() {
    let scratch = Scratch::new();
    let bytes = fs::read(tinytales()).unwrap();
    scratch.file("b.gguf", &bytes);
    scratch.file("a.gguf", &bytes);
    check_refused(&scratch.path(), &[&scratch.path(), "`a.gguf`, `b.gguf`"]);
}

#[test]
fn paths_that_lead_nowhere() {
    check_refused("/no/such/model.gguf", &["`/no/such/model.gguf`"]);
    check_refused(&Scratch::new().path(), &["expected", "found no files"]);
}

#[test]
fn prompts_that_cannot_be_run() {
    let model = tinytales();
    let line = kinfolk(&["run", &model, "", "--raw", "--max-tokens", "1"]).stderr();
    // The model puts a BOS before everything, so that even nothing is a prompt.
    assert!(line.contains("prompt 1 tokens"), "{line}");
    let empty = kinfolk(&["run", &fixture("qwen3/model.gguf"), "", "--raw"]).refusal();
    assert!(empty.contains("qwen3/model.gguf`: expected at least one prompt token, found none"), "{empty}");
    let long = "word ".repeat(1200);
    let line = kinfolk(&["run", &model, &long, "--raw"]).refusal();
    assert!(line.contains(&format!("`{model}`: expected at most 1024 tokens of context, found 2")), "{line}");
    let line = kinfolk(&["run", &model, "Once upon a time", "--raw", "--ctx", "3"]).refusal();
    assert!(line.contains("expected at most 3 tokens of context, found 5"), "{line}");
}

#[test]
fn choices_that_cannot_be_met() {
    let model = tinytales();
    for (args, parts) in [
        (vec!["--family", "nobody"], vec!["`nobody`", "`llama`"]),
        (vec!["--executor", "abacus"], vec!["`abacus`", "cpu"]),
        (vec!["--ctx", "2048"], vec!["1 to 1024", "2048"]),
        (vec!["--temperature", "-1"], vec!["`temperature`", "-1"]),
        (vec!["--top-p", "2"], vec!["`top_p`", "2"]),
        (vec!["--min-p", "NaN"], vec!["`min_p`", "NaN"]),
    ] {
        let line = kinfolk(&[vec!["run", &model, "Hi"], args].concat()).refusal();
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?} in: {line}");
    }
    let line = kinfolk(&["run", &fixture("llama/model.gguf"), "Hi", "--system", "Be brief."]).refusal();
    assert!(line.contains("--system") && line.contains("template"), "{line}");
}

/// A reference file whose first prompt token is another.
fn with_first_prompt_id(reference: &str, id: i64) -> Vec<u8> {
    let mut bytes = fs::read(reference).unwrap();
    let header_end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..header_end]).unwrap();
    let at = header_end + header["prompt_ids"]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at..at + 8].copy_from_slice(&id.to_le_bytes());
    bytes
}

#[test]
fn references_that_do_not_fit() {
    let reference = format!("{}/reference.safetensors", fixture("llama"));
    let line = kinfolk(&["verify", &tinytales(), "--reference", &reference]).refusal();
    assert!(
        line.contains("llama/reference.safetensors`: ") && line.contains("expected logits over 1024 tokens, found 320"),
        "{line}"
    );
    let scratch = Scratch::new();
    let beyond = scratch.file("beyond.safetensors", with_first_prompt_id(&reference, 320));
    let line = kinfolk(&["verify", &fixture("llama"), "--reference", &beyond]).refusal();
    assert!(line.contains(&beyond) && line.contains("expected less than 320, found 320"), "{line}");
    let line = kinfolk(&["verify", &tinytales(), "--reference", &tinytales()]).refusal();
    assert!(line.contains("`prompt_ids`"), "{line}");
}

#[test]
fn messages_that_are_none() {
    let scratch = Scratch::new();
    for (name, text, part) in [
        ("broken.json", "[", "is not JSON"),
        ("number.json", "3", "holds no messages"),
        ("empty.json", "{}", "`messages`"),
        ("silent.json", r#"[{"role": "user"}]"#, "cannot render"),
    ] {
        let path = scratch.file(name, text);
        let line = kinfolk(&["template", &tinytales(), "--messages", &path]).refusal();
        assert!(line.contains(part) && line.contains(name), "{line}");
    }
}

#[test]
fn a_damaged_tokenizer_names_the_model_it_belongs_to() {
    let scratch = Scratch::new();
    let model = scratch.copy("qwen3");
    fs::remove_file(model.join("model.gguf")).unwrap();
    fs::write(model.join("tokenizer.json"), "{}").unwrap();
    let model = model.to_str().unwrap();
    for args in [vec!["run", model, "Hi"], vec!["tokenize", model, "Hi"]] {
        let line = kinfolk(&args).refusal();
        assert!(line.contains(model) && line.contains("`tokenizer.json`"), "{line}");
    }
}

#[test]
fn an_instruction_set_that_there_is_not() {
    let variables = [("KINFOLK_CPU_LEVEL", "warp")];
    let line = kinfolk_where(&variables, &["run", &tinytales(), "Hi", "--max-tokens", "1"]).refusal();
    for part in ["KINFOLK_CPU_LEVEL", "scalar", "\"warp\""] {
        assert!(line.contains(part), "`{part}` in: {line}");
    }
}
