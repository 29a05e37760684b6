//! When two models count as one.

use std::{collections::HashMap, fs, path::Path};

use kinfolk_weights::{Config, Fingerprint, Source};
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use crate::gguf_bytes::{GgufBytes, tensor_type, value_type};

const LONG: usize = 100_000;

/// Bytes of two tensors: one that is sampled, one that is read whole.
fn contents() -> [(&'static str, Vec<u8>); 2] {
    [("long", (0..LONG).map(|i| (i / 3) as u8).collect()), ("short", vec![7; 64])]
}

/// A safetensors file of bytes.
fn file(tensors: &[(&'static str, Vec<u8>)]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|(name, data)| (*name, TensorView::new(safetensors::Dtype::U8, vec![data.len()], data).unwrap()));
    safetensors::serialize(views, None::<HashMap<String, String>>).unwrap()
}

const CONFIG: &str =
    r#"{"model_type": "llama", "rope": {"theta": 1e4, "kind": null}, "layers": [1, 2], "_name_or_path": "a"}"#;

fn of_config(config: &str) -> Fingerprint {
    let mut source = Source::from_bytes("model", file(&contents())).unwrap();
    source.set_config(Config::from_json("config.json", config).unwrap());
    source.fingerprint().unwrap()
}

fn of_tensors(tensors: &[(&'static str, Vec<u8>)]) -> Fingerprint {
    Source::from_bytes("model", file(tensors)).unwrap().fingerprint().unwrap()
}

fn of_gguf(file: GgufBytes) -> Fingerprint {
    Source::from_bytes("model", file.build()).unwrap().fingerprint().unwrap()
}

/// A directory with these files.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
    directory
}

fn at(path: impl AsRef<Path>) -> Fingerprint {
    Source::open(path).unwrap().fingerprint().unwrap()
}

#[test]
fn a_model_moved_renamed_or_cut_into_shards_stays_the_same() {
    let [long, short] = contents();
    let config = CONFIG.as_bytes();
    let single = directory(&[("model.safetensors", &file(&contents())), ("config.json", config)]);
    let renamed = directory(&[("other.safetensors", &file(&contents())), ("config.json", config)]);
    let sharded = directory(&[
        ("model-00001-of-00002.safetensors", &file(&[short])),
        ("model-00002-of-00002.safetensors", &file(&[long])),
        ("config.json", config),
    ]);
    let fingerprint = at(single.path());
    assert_eq!(at(single.path()), fingerprint);
    assert_eq!(at(renamed.path().join("other.safetensors")), fingerprint);
    assert_eq!(at(sharded.path()), fingerprint);
    assert_eq!(of_config(CONFIG), fingerprint);
}

#[test]
fn a_byte_changed_at_either_end_or_in_a_short_tensor_is_another_model() {
    let fingerprint = of_tensors(&contents());
    for (tensor, byte) in [(0, 0), (0, 1023), (0, LONG - 1024), (0, LONG - 1), (0, LONG / 3), (1, 0), (1, 40)] {
        let mut changed = contents();
        changed[tensor].1[byte] ^= 1;
        assert_ne!(of_tensors(&changed), fingerprint, "{tensor} {byte}");
    }
}

#[test]
fn a_tensor_of_another_name_shape_or_type_is_another_model() {
    let mut known = vec![of_tensors(&contents())];
    let [long, short] = contents();
    known.push(of_tensors(&[("lang", long.1.clone()), short.clone()]));
    known.push(of_tensors(&[long.clone(), ("short", vec![7; 63])]));
    known.push(of_tensors(std::slice::from_ref(&long)));
    for header in [
        r#"{"short":{"dtype":"I8","shape":[64],"data_offsets":[0,64]}}"#,
        r#"{"short":{"dtype":"U8","shape":[8,8],"data_offsets":[0,64]}}"#,
        r#"{"short":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}"#,
    ] {
        let bytes = crate::safetensors::raw(header, &short.1);
        known.push(Source::from_bytes("model", bytes).unwrap().fingerprint().unwrap());
    }
    let n_known = known.len();
    known.sort();
    known.dedup();
    assert_eq!(known.len(), n_known);
}

#[test]
fn what_the_config_says_of_the_maths_counts_and_where_it_came_from_does_not() {
    let fingerprint = of_config(CONFIG);
    for same in [
        CONFIG.replace("\"_name_or_path\": \"a\"", "\"_name_or_path\": \"b\", \"transformers_version\": \"5\""),
        r#"{"layers": [1, 2], "rope": {"kind": null, "theta": 1e4}, "model_type": "llama"}"#.into(),
    ] {
        assert_eq!(of_config(&same), fingerprint, "{same}");
    }
    for (from, to) in [
        ("1e4", "1e5"),
        ("null", "false"),
        ("[1, 2]", "[2, 1]"),
        ("[1, 2]", "[12]"),
        ("[1, 2]", "[\"1\", 2]"),
        ("\"kind\"", "\"kinds\""),
        ("\"llama\"", "\"mistral\""),
    ] {
        assert!(CONFIG.contains(from));
        assert_ne!(of_config(&CONFIG.replace(from, to)), fingerprint, "{to}");
    }
}

#[test]
fn gguf_metadata_counts_without_names_and_tokenizer() {
    let fingerprint = of_gguf(GgufBytes::llama());
    let same = GgufBytes::llama().text("general.name", "Fine").text("tokenizer.ggml.model", "gpt2");
    assert_eq!(of_gguf(same), fingerprint);
    for other in [
        GgufBytes::llama().f32("llama.rope.freq_base", 1e5),
        GgufBytes::llama().raw("llama.rope.freq_base", value_type::U32, &1e5f32.to_le_bytes()),
        GgufBytes::llama().tensor("output.weight", &[1, 4], tensor_type::F32, &[0; 16]),
    ] {
        assert_ne!(of_gguf(other), fingerprint);
    }
    let with_base = |value_type| GgufBytes::llama().raw("llama.rope.freq_base", value_type, &1e5f32.to_le_bytes());
    assert_ne!(of_gguf(with_base(value_type::U32)), of_gguf(with_base(value_type::F32)));
}

#[test]
fn many_tensors_are_told_by_name_and_sampled_where_the_budget_allows() {
    let names: Vec<String> = (0..10_000).map(|i| format!("t{i:05}")).collect();
    let of = |n: usize| {
        let data = vec![1; 2];
        let views = names[..n]
            .iter()
            .map(|name| (name.as_str(), TensorView::new(safetensors::Dtype::U8, vec![2], &data).unwrap()));
        let bytes = safetensors::serialize(views, None::<HashMap<String, String>>).unwrap();
        Source::from_bytes("model", bytes).unwrap().fingerprint().unwrap()
    };
    assert_ne!(of(10_000), of(9_999));
    assert_eq!(of(10_000), of(10_000));
}
