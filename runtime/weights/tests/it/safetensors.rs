//! Safetensors, alone and by index.

use std::{collections::HashMap, fs, path::Path};

use kinfolk_weights::{ConfigKind, Dtype, Source, WeightFormat, WeightsError};
use safetensors::tensor::TensorView;

use crate::allocation::peak_during;

/// A file of tensors of two f32 each; the elements of the n-th are n.
pub fn tiny(names: &[&str]) -> Vec<u8> {
    let data: Vec<Vec<u8>> =
        (0..names.len()).map(|i| [(i as f32).to_le_bytes(), (i as f32).to_le_bytes()].concat()).collect();
    let tensors = names.iter().zip(&data).map(|(name, data)| {
        let view = TensorView::new(safetensors::Dtype::F32, vec![2], data).unwrap();
        (*name, view)
    });
    safetensors::serialize(tensors, None::<HashMap<String, String>>).unwrap()
}

/// A file from a header that need not be true.
pub fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[track_caller]
fn check_refused(bytes: Vec<u8>, parts: &[&str]) {
    let error = Source::from_bytes("case.safetensors", bytes).unwrap_err().to_string();
    assert!(error.contains("case.safetensors") && !error.contains('\n'), "{error}");
    for part in parts {
        assert!(error.contains(part), "expected {part:?} in {error:?}");
    }
}

/// A model directory of these files with an empty config.
fn model(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "config.json", b"{}");
    for (name, bytes) in files {
        write(directory.path(), name, bytes);
    }
    directory
}

fn write(directory: &Path, name: &str, bytes: &[u8]) {
    fs::write(directory.join(name), bytes).unwrap();
}

fn index(pairs: &[(&str, &str)]) -> Vec<u8> {
    let map: serde_json::Map<String, serde_json::Value> =
        pairs.iter().map(|(tensor, file)| ((*tensor).into(), (*file).into())).collect();
    serde_json::to_vec(&serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map})).unwrap()
}

const INDEX: &str = "model.safetensors.index.json";
const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";

#[test]
fn a_single_file_opens_with_the_config_beside_it() {
    let directory = model(&[("weights.safetensors", tiny(&["b", "a"]))]);
    write(directory.path(), "config.json", br#"{"model_type": "llama"}"#);
    for path in [directory.path().join("weights.safetensors"), directory.path().to_path_buf()] {
        let source = Source::open(path).unwrap();
        assert_eq!(source.format(), WeightFormat::Safetensors);
        assert_eq!(source.config().architectures(), ["llama"]);
        assert_eq!(source.tensors().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let value = |name| source.tensor(name).unwrap().to_f32().unwrap();
        assert_eq!((value("b"), value("a")), (vec![0.0; 2], vec![1.0; 2]));
        assert!(source.tensor("c").is_none() && source.gguf().is_none());
        assert_eq!(source.tensor_bytes(), 16);
    }
}

#[test]
fn a_model_needs_its_config_and_a_file_of_tensors_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("reference.safetensors");
    fs::write(&path, tiny(&["logits"])).unwrap();
    let error = Source::open(&path).unwrap_err();
    assert!(matches!(error, WeightsError::Missing { .. }) && error.to_string().contains("config.json"), "{error}");
    let source = Source::open_tensors(&path).unwrap();
    assert_eq!((source.config().kind(), source.config().architectures().len()), (ConfigKind::Json, 0));
    assert!(source.info("logits").is_some());
    // Nor is a config beside it the tensors' own.
    write(directory.path(), "config.json", b"not JSON");
    assert!(Source::open_tensors(&path).is_ok());
    assert!(Source::open(&path).unwrap_err().to_string().contains("config.json"));
}

#[test]
fn an_index_opens_exactly_its_files() {
    let directory =
        model(&[(FIRST, tiny(&["a"])), (SECOND, tiny(&["x", "b"])), (INDEX, index(&[("a", FIRST), ("b", SECOND)]))]);
    for path in [directory.path().to_path_buf(), directory.path().join(INDEX)] {
        let source = Source::open(path).unwrap();
        assert_eq!(source.files(), [directory.path().join(FIRST), directory.path().join(SECOND)]);
        // `x` is in a shard and not in the index.
        assert_eq!(source.tensors().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(source.tensor("b").unwrap().to_f32().unwrap(), [1.0; 2]);
    }
}

#[test]
fn b1_shards_that_an_index_names_and_that_are_absent_are_listed() {
    let directory = model(&[(FIRST, tiny(&["a"])), (INDEX, index(&[("a", FIRST), ("b", SECOND)]))]);
    let error = Source::open(directory.path()).unwrap_err();
    assert!(matches!(error, WeightsError::Missing { .. }));
    let error = error.to_string();
    assert!(error.contains(&format!("`{SECOND}`")) && error.contains("incomplete download"), "{error}");
    assert!(!error.contains(FIRST), "{error}");
}

#[test]
fn b2_a_stray_file_beside_an_index_is_not_loaded() {
    let directory =
        model(&[(FIRST, tiny(&["a"])), ("model.safetensors", tiny(&["stray", "a"])), (INDEX, index(&[("a", FIRST)]))]);
    let source = Source::open(directory.path()).unwrap();
    assert_eq!(source.files().len(), 1);
    assert!(source.info("stray").is_none());
    assert_eq!(source.tensor("a").unwrap().to_f32().unwrap(), [0.0; 2]);
}

#[test]
fn b4_a_tensor_that_its_shard_lacks_is_an_error_at_open() {
    let directory =
        model(&[(FIRST, tiny(&["a"])), (SECOND, tiny(&["b"])), (INDEX, index(&[("a", FIRST), ("b", FIRST)]))]);
    let error = Source::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("`b`") && error.contains(FIRST) && error.contains(INDEX), "{error}");
}

#[test]
fn b6_an_index_may_name_its_shards_as_it_likes() {
    let name = "consolidated-00001-of-00002.safetensors";
    let directory = model(&[(name, tiny(&["a"])), ("consolidated.safetensors.index.json", index(&[("a", name)]))]);
    assert_eq!(Source::open(directory.path()).unwrap().files(), [directory.path().join(name)]);
}

#[test]
fn a_shard_means_its_set() {
    let [one, two] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let shards = [(one, tiny(&["a"])), (two, tiny(&["b"]))];
    let names = |source: Source| source.tensors().map(|t| t.name.clone()).collect::<Vec<_>>();
    let indexed = model(&[&shards[..], &[(INDEX, index(&[("a", one), ("b", two)]))]].concat());
    assert_eq!(names(Source::open(indexed.path().join(two)).unwrap()), ["a", "b"]);
    let bare = model(&shards);
    assert_eq!(names(Source::open(bare.path().join(two)).unwrap()), ["a", "b"]);
    // As a file of tensors it is only what it holds.
    assert_eq!(names(Source::open_tensors(bare.path().join(two)).unwrap()), ["b"]);
    fs::remove_file(bare.path().join(one)).unwrap();
    let error = Source::open(bare.path().join(two)).unwrap_err().to_string();
    assert!(error.contains(one), "{error}");
}

#[test]
fn an_index_that_points_elsewhere_is_refused() {
    for outside in ["../secret.safetensors", "/etc/passwd", "sub/a.safetensors", "..", "", "a\\b"] {
        let directory = model(&[(INDEX, index(&[("a", outside)]))]);
        let error = Source::open(directory.path().join(INDEX)).unwrap_err();
        assert!(matches!(error, WeightsError::Malformed { .. }), "{outside}: {error}");
    }
    for broken in ["", "[]", "{}", r#"{"weight_map": {}}"#, r#"{"weight_map": {"a": 1}}"#, r#"{"weight_map": []}"#] {
        let directory = model(&[(INDEX, broken.into())]);
        let error = Source::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains(INDEX), "{broken}: {error}");
    }
}

#[test]
fn b11_every_type_of_the_format_is_parsed() {
    let types = [
        ("F64", Dtype::F64),
        ("F32", Dtype::F32),
        ("F16", Dtype::F16),
        ("BF16", Dtype::BF16),
        ("I64", Dtype::I64),
        ("I32", Dtype::I32),
        ("I16", Dtype::I16),
        ("I8", Dtype::I8),
        ("U64", Dtype::U64),
        ("U32", Dtype::U32),
        ("U16", Dtype::U16),
        ("U8", Dtype::U8),
        ("BOOL", Dtype::Bool),
        ("F8_E4M3", Dtype::F8_E4M3),
        ("F8_E5M2", Dtype::F8_E5M2),
        ("F8_E8M0", Dtype::F8_E8M0),
    ];
    for (name, dtype) in types {
        let n_bytes = 4 * dtype.block_bytes();
        let header = format!(r#"{{"w":{{"dtype":"{name}","shape":[2,2],"data_offsets":[0,{n_bytes}]}}}}"#);
        let source = Source::from_bytes("case.safetensors", raw(&header, &vec![0; n_bytes])).unwrap();
        let tensor = source.tensor("w").unwrap();
        assert_eq!((tensor.info.dtype, tensor.info.shape.as_slice()), (dtype, &[2, 2][..]));
        assert_eq!(tensor.to_f32().is_ok(), !name.starts_with("F8"), "{name}");
    }
}

#[test]
fn types_without_a_name_here_are_refused_with_their_tensor() {
    let header = r#"{"w":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#;
    check_refused(raw(header, &[0; 8]), &["`w`", "C64"]);
    check_refused(raw(r#"{"w":{"dtype":"Q9","shape":[1],"data_offsets":[0,8]}}"#, &[0; 8]), &["Q9"]);
}

#[test]
fn plain_types_have_their_values() {
    let data: Vec<u8> = [(-3i8) as u8, 200, 0, 0, 0, 0x3c, 0x80, 0x3f].into();
    let header = r#"{"i":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},
        "u":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},
        "u16":{"dtype":"U16","shape":[1],"data_offsets":[2,4]},
        "f16":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},
        "bf16":{"dtype":"BF16","shape":[1],"data_offsets":[6,8]}}"#;
    let source = Source::from_bytes("case", raw(header, &data)).unwrap();
    for (name, value) in [("i", -3.0), ("u", 200.0), ("u16", 0.0), ("f16", 1.0), ("bf16", 1.0)] {
        assert_eq!(source.tensor(name).unwrap().to_f32().unwrap(), [value], "{name}");
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = tiny(&["a", "b"]);
    for length in 0..whole.len() {
        let error = Source::from_bytes("case.safetensors", whole[..length].to_vec()).unwrap_err().to_string();
        assert!(error.contains("case.safetensors") && !error.contains('\n'), "{length}: {error}");
    }
    check_refused(whole[..whole.len() - 1].to_vec(), &["incomplete download"]);
    check_refused([whole, vec![0]].concat(), &["expected 16 bytes of tensors, found 17"]);
}

#[test]
fn headers_that_lie_are_refused() {
    let one = |entry: &str| raw(&format!(r#"{{"w":{entry}}}"#), &[0; 8]);
    check_refused(one(r#"{"dtype":"F32","shape":[2],"data_offsets":[4,12]}"#), &["`w`", "gap or overlap"]);
    check_refused(one(r#"{"dtype":"F32","shape":[3],"data_offsets":[0,8]}"#), &["`w`", "span 12 bytes", "0 to 8"]);
    check_refused(
        one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#),
        &["`w`", "too large"],
    );
    check_refused(one(r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}"#), &["`w`"]);
    check_refused(one(r#"{"dtype":"F32","shape":[2]}"#), &["`w`", "data_offsets"]);
    check_refused(one("7"), &["`w`"]);
    check_refused(raw("{", &[]), &["describes tensors"]);
    check_refused(raw("{\"\u{fffd}", &[]), &["describes tensors"]);
    let entry = r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    check_refused(raw(&format!(r#"{{"w":{entry},"w":{entry}}}"#), &[0; 8]), &["`w`", "twice"]);
    let mut longer = tiny(&["a"]);
    longer[0] = 0xff;
    longer[1] = 0xff;
    check_refused(longer, &["header", "incomplete download"]);
}

#[test]
fn a_header_costs_a_small_multiple_of_its_size() {
    let entries: Vec<String> =
        (0..20_000).map(|i| format!(r#""t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#)).collect();
    let bytes = raw(&format!("{{{}}}", entries.join(",")), &[]);
    let file_len = bytes.len();
    let (source, peak) = peak_during(|| Source::from_bytes("case", bytes).unwrap());
    assert_eq!(source.tensors().count(), 20_000);
    assert!(peak < 6 * file_len, "{peak} bytes for a file of {file_len}");
}

#[test]
fn values_that_a_header_has_no_use_for_are_not_kept() {
    let junk = vec!["0"; 500_000].join(",");
    for header in [format!(r#"{{"__metadata__":{{"a":[{junk}]}}}}"#), format!(r#"{{"w":[{junk}]}}"#)] {
        let bytes = raw(&header, &[]);
        let file_len = bytes.len();
        let (_, peak) = peak_during(|| Source::from_bytes("case", bytes).is_ok());
        assert!(peak < file_len, "{peak} bytes for a file of {file_len}");
    }
}
