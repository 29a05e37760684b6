//! Which model of a directory is opened.

use std::{fs, path::PathBuf};

use kinfolk_weights::{OpenOptions, Source, WeightFormat, WeightsError};
use tempfile::TempDir;

use crate::{gguf_bytes::GgufBytes, safetensors::tiny};

/// A directory named `stories` with these files.
fn directory(files: &[(&str, Vec<u8>)]) -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("stories");
    fs::create_dir(&path).unwrap();
    for (name, bytes) in files {
        fs::write(path.join(name), bytes).unwrap();
    }
    (parent, path)
}

/// A model that can be told by its number of layers.
fn model(n_layers: u32) -> Vec<u8> {
    GgufBytes::new().text("general.architecture", "llama").u32("llama.block_count", n_layers).build()
}

fn projector() -> Vec<u8> {
    GgufBytes::new().text("general.architecture", "clip").build()
}

fn prefer(name: &str) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.prefer_gguf = Some(name.into());
    options
}

fn insist(format: WeightFormat) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.format = Some(format);
    options
}

#[track_caller]
fn check_opens(files: &[(&str, Vec<u8>)], options: &OpenOptions, n_layers: usize) {
    let (_parent, path) = directory(files);
    let source = Source::open_with(&path, options).unwrap();
    assert_eq!(source.config().usize("num_hidden_layers").unwrap(), n_layers);
    assert_eq!(source.path(), path);
}

#[track_caller]
fn check_refused(files: &[(&str, Vec<u8>)], options: &OpenOptions, message: &str) {
    let (_parent, path) = directory(files);
    let error = Source::open_with(&path, options).unwrap_err().to_string();
    assert!(error.contains(message) && error.contains("stories"), "expected {message:?} in {error:?}");
}

#[test]
fn the_only_gguf_is_the_model() {
    check_opens(&[("a.gguf", model(1)), ("notes.txt", vec![])], &OpenOptions::default(), 1);
    check_opens(&[("A.GGUF", model(1))], &OpenOptions::default(), 1);
}

#[test]
fn l1_a_projector_is_never_the_model() {
    let default = OpenOptions::default();
    check_opens(&[("a.gguf", model(1)), ("mmproj-a.gguf", projector())], &default, 1);
    // Told by its metadata, not its name.
    check_opens(&[("a.gguf", projector()), ("b.gguf", model(1))], &default, 1);
    let adapter = GgufBytes::new().text("general.architecture", "llama").text("general.type", "adapter").build();
    check_opens(&[("a.gguf", adapter), ("b.gguf", model(1))], &default, 1);
    check_opens(&[("mmproj-but-a-model.gguf", model(1))], &default, 1);
    // The name where there is nothing else to go by.
    check_opens(&[("mmproj-a.gguf", b"broken".to_vec()), ("b.gguf", model(1))], &default, 1);
    check_refused(&[("mmproj.gguf", projector())], &default, "projectors");
}

#[test]
fn l2_the_file_named_like_the_directory_is_the_model() {
    check_opens(&[("a-draft.gguf", model(1)), ("stories.gguf", model(2))], &OpenOptions::default(), 2);
}

#[test]
fn l2_a_path_to_a_file_means_that_file() {
    let (_parent, path) = directory(&[("a-draft.gguf", model(1)), ("stories.gguf", model(2))]);
    let source = Source::open(path.join("a-draft.gguf")).unwrap();
    assert_eq!(source.config().usize("num_hidden_layers").unwrap(), 1);
}

#[test]
fn the_preferred_quantisation_is_the_model_of_several() {
    let quants = [("s-Q2_K.gguf", model(1)), ("s-Q4_K_M.gguf", model(2)), ("s-q8_0.gguf", model(3))];
    check_opens(&quants, &OpenOptions::default(), 2);
    check_opens(&quants, &prefer("Q8_0"), 3);
    check_opens(&quants, &prefer("q2_k"), 1);
    // Asked for by name, it comes before the file named like the directory.
    check_opens(&[("stories.gguf", model(1)), ("s-Q8_0.gguf", model(2))], &prefer("Q8_0"), 2);
    // Nothing to choose between.
    check_opens(&[("s-Q2_K.gguf", model(1))], &prefer("Q8_0"), 1);
}

#[test]
fn l2_several_models_are_listed_in_order() {
    let default = OpenOptions::default();
    let files = [("c.gguf", model(1)), ("a.gguf", model(1)), ("b.gguf", model(1))];
    check_refused(&files, &default, "expected one model, found 3 GGUF models: `a.gguf`, `b.gguf`, `c.gguf`; name one");
    let files = [("s-Q4_K_M.gguf", model(1)), ("t-Q4_K_M.gguf", model(1))];
    check_refused(&files, &default, "`s-Q4_K_M.gguf`, `t-Q4_K_M.gguf`");
    check_refused(
        &[("s-Q4_0.gguf", model(1)), ("s-Q8_0.gguf", model(1))],
        &prefer("Q5_K"),
        "`s-Q4_0.gguf`, `s-Q8_0.gguf`",
    );
}

/// A safetensors model that can be told by its number of layers.
fn safetensors_model() -> [(&'static str, Vec<u8>); 2] {
    [("config.json", br#"{"num_hidden_layers": 9}"#.to_vec()), ("model.safetensors", tiny(&["a"]))]
}

#[test]
fn safetensors_come_before_gguf_unless_another_format_is_asked_for() {
    let mut files = safetensors_model().to_vec();
    files.push(("m.gguf", model(1)));
    check_opens(&files, &OpenOptions::default(), 9);
    check_opens(&files, &insist(WeightFormat::Safetensors), 9);
    check_opens(&files, &insist(WeightFormat::Gguf), 1);
}

#[test]
fn incomplete_safetensors_leave_gguf_as_the_model() {
    let index = br#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#.to_vec();
    let default = OpenOptions::default();
    check_opens(&[("m.gguf", model(1)), ("model.safetensors", tiny(&["a"]))], &default, 1);
    let files = [("config.json", b"{}".to_vec()), ("m.gguf", model(1)), ("model.safetensors.index.json", index)];
    check_opens(&files, &default, 1);
    check_refused(&files, &insist(WeightFormat::Safetensors), "model-00001-of-00002.safetensors");
}

#[test]
fn a_directory_without_a_model_says_what_a_model_is() {
    let default = OpenOptions::default();
    check_refused(&[], &default, "found no files");
    check_refused(
        &[("config.json", b"{}".to_vec())],
        &default,
        "expected a GGUF file, or safetensors with `config.json`",
    );
    check_refused(&[("config.json", b"{}".to_vec()), ("pytorch_model.bin", vec![])], &default, "`pytorch_model.bin`");
    check_refused(&[("model.safetensors", tiny(&["a"]))], &default, "config.json");
    check_refused(&[("m.gguf", model(1))], &insist(WeightFormat::Safetensors), "safetensors model");
    check_refused(&safetensors_model(), &insist(WeightFormat::Gguf), "gguf model");
}

#[test]
fn files_of_other_names_beside_the_model_are_not_the_model() {
    let mut files = safetensors_model().to_vec();
    files.push(("reference.safetensors", tiny(&["b"])));
    let (_parent, path) = directory(&files);
    let source = Source::open(path).unwrap();
    assert_eq!(source.tensors().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn b6_complete_naming_schemes_side_by_side_are_refused() {
    let mut files = safetensors_model().to_vec();
    files.push(("consolidated.safetensors", tiny(&["a"])));
    check_refused(&files, &OpenOptions::default(), "`consolidated.safetensors`, `model.safetensors`");
    let shards =
        |stem: &str| [format!("{stem}-00001-of-00002.safetensors"), format!("{stem}-00002-of-00002.safetensors")];
    let (model, consolidated) = (shards("model"), shards("consolidated"));
    let mut files = vec![("config.json", b"{}".to_vec())];
    files.extend(model.iter().zip(["a", "b"]).map(|(name, tensor)| (name.as_str(), tiny(&[tensor]))));
    let (_parent, path) = directory(&files);
    assert_eq!(Source::open(&path).unwrap().files().len(), 2);
    files.extend(consolidated.iter().zip(["a", "b"]).map(|(name, tensor)| (name.as_str(), tiny(&[tensor]))));
    check_refused(&files, &OpenOptions::default(), "found 2 safetensors files and no index");
}

#[test]
fn shards_without_an_index_must_all_be_there() {
    let files = [("config.json", b"{}".to_vec()), ("model-00002-of-00003.safetensors", tiny(&["a"]))];
    check_refused(
        &files,
        &OpenOptions::default(),
        "`model-00001-of-00003.safetensors`, `model-00003-of-00003.safetensors`",
    );
}

#[test]
fn opening_a_directory_error_kinds_can_be_told_apart() {
    let (_parent, path) = directory(&[("a.gguf", model(1)), ("b.gguf", model(1))]);
    assert!(matches!(Source::open(&path), Err(WeightsError::Ambiguous { .. })));
    let (_parent, path) = directory(&[]);
    assert!(matches!(Source::open(&path), Err(WeightsError::Missing { .. })));
}
