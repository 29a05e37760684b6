//! What a listing says of a model that is not there yet.

use std::fs;

use kinfolk_weights::{
    Config, Dtype, ListedModel, Listing, OpenOptions, Source, TensorInfo, WeightFormat, WeightsError,
};
use proptest::prelude::*;

use crate::{gguf_bytes::GgufBytes, safetensors::tiny};

fn listing(files: &[(&str, u64)]) -> Listing {
    Listing::new("org/model", files.iter().map(|&(name, n_bytes)| (name.to_owned(), n_bytes))).unwrap()
}

fn choose(listing: &Listing) -> ListedModel {
    listing.choose(&OpenOptions::default()).unwrap()
}

#[track_caller]
fn check_refused(listing: &Listing, message: &str) {
    let error = listing.choose(&OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains(message) && error.contains("org/model"), "expected {message:?} in {error:?}");
}

const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
const INDEX: &str = "model.safetensors.index.json";

fn index() -> String {
    format!(
        r#"{{"metadata": {{"total_size": 64}}, "weight_map": {{"a": "{}", "b": "{}", "c": "{0}"}}}}"#,
        SHARDS[0], SHARDS[1]
    )
}

#[test]
fn the_files_of_a_model_and_their_bytes_are_told() {
    let single = choose(&listing(&[("config.json", 1), ("model.safetensors", 70), ("README.md", 9)]));
    assert_eq!((single.format, single.n_bytes), (WeightFormat::Safetensors, Some(70)));
    assert_eq!(single.files, ["model.safetensors"]);
    let sharded = choose(&listing(&[("config.json", 1), (SHARDS[0], 30), (SHARDS[1], 40)]));
    assert_eq!((sharded.n_bytes, sharded.files.len()), (Some(70), 2));
    let gguf = choose(&listing(&[("m-00001-of-00002.gguf", 30), ("m-00002-of-00002.gguf", 50), ("mmproj-m.gguf", 9)]));
    assert_eq!((gguf.format, gguf.n_bytes, gguf.files.len()), (WeightFormat::Gguf, Some(80), 2));
}

#[test]
fn an_index_gives_names_and_files_even_before_any_shard_is_listed() {
    let alone = listing(&[("config.json", 1)]).with_index(INDEX, index());
    let model = choose(&alone);
    assert_eq!(model.absent, SHARDS);
    assert_eq!((model.n_bytes, model.tensor_bytes), (None, Some(64)));
    assert_eq!(model.tensor_names.unwrap().into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    let listed = listing(&[("config.json", 1), (SHARDS[0], 30), (SHARDS[1], 40)]).with_index(INDEX, index());
    let model = choose(&listed);
    assert!(model.absent.is_empty() && model.n_bytes == Some(70));
    // Listed by name alone, an index says nothing.
    let named = choose(&listing(&[("config.json", 1), (INDEX, 5), (SHARDS[0], 30), (SHARDS[1], 40)]));
    assert_eq!((named.n_bytes, named.tensor_names), (Some(70), None));
}

#[test]
fn a_total_size_is_read_where_it_is_one() {
    for (total, expected) in [("64", Some(64)), ("64.0", Some(64)), ("-1", None), ("\"64\"", None), ("null", None)] {
        let text = index().replace("\"total_size\": 64", &format!("\"total_size\": {total}"));
        assert_eq!(choose(&listing(&[("config.json", 1)]).with_index(INDEX, text)).tensor_bytes, expected, "{total}");
    }
}

#[test]
fn a_config_alone_is_a_model_without_files() {
    let config = listing(&[("config.json", 1), ("README.md", 5)]).with_config("{}").unwrap();
    assert_eq!((choose(&config).files, choose(&config).n_bytes), (vec![], None));
    check_refused(&listing(&[("config.json", 1)]), "expected a GGUF file, or safetensors with `config.json`");
    let pickled = listing(&[("pytorch_model.bin", 5)]).with_config("{}").unwrap();
    check_refused(&pickled, "`pytorch_model.bin`");
    check_refused(&listing(&[]), "found no files");
}

#[test]
fn listings_that_name_no_model_are_refused() {
    check_refused(&listing(&[("m-00001-of-00002.gguf", 1)]), "`m-00002-of-00002.gguf`");
    check_refused(&listing(&[("a.gguf", 1), ("b.gguf", 1)]), "`a.gguf`, `b.gguf`; name one");
    check_refused(&listing(&[("mmproj.gguf", 1)]), "projectors");
    check_refused(&listing(&[("config.json", 1), (SHARDS[0], u64::MAX), (SHARDS[1], 1)]), "found more");
    let lying = r#"{"weight_map": {"a": "../elsewhere"}}"#;
    check_refused(&listing(&[("config.json", 1)]).with_index(INDEX, lying.to_owned()), "../elsewhere");
    let twice = [("a.gguf".to_owned(), 1), ("a.gguf".to_owned(), 1)];
    let error = Listing::new("org/model", twice).unwrap_err();
    assert_eq!(error.to_string(), "`org/model`: expected each file once, found `a.gguf` listed twice");
}

#[test]
fn files_in_subfolders_are_not_the_models() {
    let listed =
        listing(&[("config.json", 1), ("model.safetensors", 7), ("onnx/model.safetensors", 8), ("a\\b.gguf", 9)]);
    assert_eq!(listed.files().collect::<Vec<_>>(), [("config.json", 1), ("model.safetensors", 7)]);
}

#[test]
fn gguf_models_are_listed_whole() {
    let files = [("b-Q8_0.gguf", 8), ("a-00001-of-00002.gguf", 1), ("mmproj-x.gguf", 1), ("c-Q4_0.gguf", 4)];
    let models = listing(&files).gguf_models().unwrap();
    assert_eq!(
        models.iter().map(|m| (m.files[0].as_str(), m.n_bytes)).collect::<Vec<_>>(),
        [("b-Q8_0.gguf", Some(8)), ("c-Q4_0.gguf", Some(4))]
    );
}

#[test]
fn a_folder_lists_what_opening_it_finds() {
    let gguf = || GgufBytes::llama().build();
    let cases: [Vec<(&str, Vec<u8>)>; 4] = [
        vec![("config.json", b"{}".to_vec()), ("model.safetensors", tiny(&["a"])), ("m.gguf", gguf())],
        vec![("s-Q4_K_M.gguf", gguf()), ("s-Q8_0.gguf", gguf())],
        vec![
            ("config.json", b"{}".to_vec()),
            (INDEX, index().into()),
            (SHARDS[0], tiny(&["a", "c"])),
            (SHARDS[1], tiny(&["b"])),
        ],
        vec![
            ("config.json", b"{}".to_vec()),
            (INDEX, index().into()),
            (SHARDS[0], tiny(&["a", "c"])),
            ("m.gguf", gguf()),
        ],
    ];
    for files in cases {
        let directory = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
        let source = Source::open(directory.path()).unwrap();
        let model = choose(&Listing::of_directory(directory.path()).unwrap());
        let opened: Vec<_> = source.files().iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(
            (model.format, model.files.iter().map(String::as_str).collect::<Vec<_>>()),
            (source.format(), opened)
        );
    }
}

#[test]
fn an_outline_answers_everything_but_for_bytes() {
    let info = |name: &str, dtype, shape: &[usize]| TensorInfo { name: name.into(), dtype, shape: shape.to_vec() };
    let outline = |tensors: Vec<TensorInfo>| {
        let config = Config::from_json("config.json", r#"{"model_type": "llama"}"#).unwrap();
        Source::outline("org/model", WeightFormat::Safetensors, config, tensors)
    };
    let source = outline(vec![info("b", Dtype::F16, &[2, 3]), info("a", Dtype::Q8_0, &[64])]).unwrap();
    assert_eq!(source.tensors().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((source.tensor_bytes(), source.info("a").unwrap().dtype), (68 + 12, Dtype::Q8_0));
    assert!(source.tensor("a").is_none() && source.files().is_empty() && source.sidecar("x.json").unwrap().is_none());
    source.release("a");
    assert!(matches!(source.fingerprint(), Err(WeightsError::Malformed { .. })));
    for (tensors, message) in [
        (vec![info("a", Dtype::F16, &[1]), info("a", Dtype::F16, &[2])], "found it twice"),
        (vec![info("a", Dtype::F16, &[usize::MAX, 2])], "expected a shape of whole F16 blocks"),
        (vec![info("a", Dtype::F64, &[usize::MAX])], "expected a shape of whole F64 blocks"),
        (vec![info("a", Dtype::Q8_0, &[33])], "expected a shape of whole Q8_0 blocks"),
    ] {
        let error = outline(tensors).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("`a`"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_listing_panics(
        files in proptest::collection::vec(("(model|a|b-00001-of-0000[0-9]|mmproj)(-Q4_K_M)?\\.(gguf|safetensors|json)", any::<u64>()), 0..8),
        config in "\\{\\}|\\[|.{0,8}",
        index in ".{0,40}",
    ) {
        let Ok(mut listing) = Listing::new("x", files) else { return Ok(()) };
        if let Ok(with_config) = listing.clone().with_config(&config) {
            listing = with_config;
        }
        let _ = listing.choose(&OpenOptions::default());
        let _ = listing.gguf_models();
        let _ = listing.with_index(INDEX, index).choose(&OpenOptions::default());
    }
}
