//! Models split over several GGUF files.

use std::path::Path;

use kinfolk_weights::{Source, WeightsError};
use tempfile::TempDir;

use crate::gguf_bytes::{GgufBytes, value_type};

/// Shard `number` of `count`, as llama.cpp's gguf-split writes them: the model's metadata in the first, a tensor in each.
fn shard(number: u16, count: u16) -> GgufBytes {
    let first = if number == 1 { GgufBytes::llama().u32("llama.expert_count", 3) } else { GgufBytes::new() };
    first.raw("split.no", 2, &(number - 1).to_le_bytes()).raw("split.count", 2, &count.to_le_bytes()).tensor(
        &format!("blk.{number}.w"),
        &[2],
        0,
        &[number as u8; 8],
    )
}

fn write(directory: &Path, name: &str, file: &GgufBytes) {
    std::fs::write(directory.join(name), file.build()).unwrap();
}

/// A directory with shards of a set of three; those in `present`.
fn set_of_three(present: &[u16]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for &number in present {
        write(directory.path(), &format!("m-{number:05}-of-00003.gguf"), &shard(number, 3));
    }
    directory
}

#[test]
fn a14_any_shard_opens_the_whole_set() {
    let directory = set_of_three(&[1, 2, 3]);
    for number in 1..=3 {
        let path = directory.path().join(format!("m-{number:05}-of-00003.gguf"));
        let source = Source::open(&path).unwrap();
        assert_eq!(source.path(), path);
        assert_eq!(source.files().len(), 3);
        assert_eq!(source.config().usize("num_local_experts").unwrap(), 3);
        for number in 1..=3u8 {
            assert_eq!(source.tensor(&format!("blk.{number}.w")).unwrap().bytes, [number; 8]);
        }
    }
}

#[test]
fn a14_a_directory_counts_a_set_once() {
    let directory = set_of_three(&[1, 2, 3]);
    assert_eq!(Source::open(directory.path()).unwrap().files().len(), 3);
}

#[test]
fn a16_missing_shards_are_named_before_any_tensor_is_read() {
    let directory = set_of_three(&[2]);
    // The bytes of the shard that is there lie about its data, which is not looked at.
    let error = Source::open(directory.path().join("m-00002-of-00003.gguf")).unwrap_err();
    assert!(matches!(error, WeightsError::Missing { .. }));
    let error = error.to_string();
    assert!(error.contains("m-00001-of-00003.gguf") && error.contains("m-00003-of-00003.gguf"), "{error}");
    assert!(error.contains("2 missing") && error.contains("incomplete download"), "{error}");
    assert!(Source::open(directory.path()).unwrap_err().to_string().contains("m-00001-of-00003.gguf"));
}

#[test]
fn a16_a_set_of_one_is_a_file() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m-00001-of-00001.gguf", &shard(1, 1));
    assert_eq!(Source::open(directory.path().join("m-00001-of-00001.gguf")).unwrap().files().len(), 1);
}

#[test]
fn a17_names_that_look_like_shards_are_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let names = [
        "best-of-breed.gguf",
        "m-00000-of-00003.gguf",
        "m-00004-of-00003.gguf",
        "m-1-of-2.gguf",
        "-00001-of-00002.gguf",
    ];
    for name in names {
        write(directory.path(), name, &GgufBytes::llama());
        assert_eq!(Source::open(directory.path().join(name)).unwrap().files().len(), 1, "{name}");
    }
    let error = Source::open(directory.path()).unwrap_err();
    assert!(matches!(error, WeightsError::Ambiguous { .. }));
    let error = error.to_string();
    let mut places: Vec<usize> = names.iter().map(|name| error.find(&format!("`{name}`")).unwrap()).collect();
    let listed = places.clone();
    places.sort();
    // Sorted by name, whatever the directory's order: `-` before `b` before `m`.
    assert_eq!(places, [listed[4], listed[0], listed[1], listed[2], listed[3]]);
}

#[test]
fn a_name_without_metadata_still_finds_its_siblings() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m-00001-of-00002.gguf", &GgufBytes::llama());
    assert!(matches!(Source::open(directory.path().join("m-00001-of-00002.gguf")), Err(WeightsError::Missing { .. })));
    write(directory.path(), "m-00002-of-00002.gguf", &GgufBytes::new().tensor("b", &[1], 0, &[0; 4]));
    assert_eq!(Source::open(directory.path()).unwrap().tensors().count(), 2);
}

#[test]
fn metadata_outranks_the_name() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "m-00001-of-00002.gguf", &GgufBytes::llama().u32("split.count", 1));
    assert_eq!(Source::open(directory.path().join("m-00001-of-00002.gguf")).unwrap().files().len(), 1);
    write(directory.path(), "renamed.gguf", &shard(1, 2));
    let error = Source::open(directory.path().join("renamed.gguf")).unwrap_err().to_string();
    assert!(error.contains("one of 2 shards") && error.contains("NAME-00001-of-00002.gguf"), "{error}");
}

#[test]
fn shards_that_contradict_each_other_are_refused() {
    let cases: [(GgufBytes, &str); 4] = [
        (shard(3, 3), "split.no"),
        (GgufBytes::new().raw("split.no", value_type::U32, &1u32.to_le_bytes()).u32("split.count", 4), "split.count"),
        (GgufBytes::new().tensor("blk.1.w", &[2], 0, &[0; 8]), "twice"),
        (GgufBytes::new().text("split.no", "second"), "split.no"),
    ];
    for (second, part) in cases {
        let directory = set_of_three(&[1, 3]);
        write(directory.path(), "m-00002-of-00003.gguf", &second);
        let error = Source::open(directory.path().join("m-00001-of-00003.gguf")).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("of-00003.gguf"), "{error}");
    }
    let directory = set_of_three(&[1, 3]);
    std::fs::write(directory.path().join("m-00002-of-00003.gguf"), "<html>").unwrap();
    let error = Source::open(directory.path().join("m-00001-of-00003.gguf")).unwrap_err().to_string();
    assert!(error.contains("m-00002-of-00003.gguf") && error.contains("web page"), "{error}");
}

#[test]
fn the_number_of_tensors_in_all_shards_is_checked() {
    let directory = set_of_three(&[2, 3]);
    for (declared, opens) in [(4, true), (5, false)] {
        write(
            directory.path(),
            "m-00001-of-00003.gguf",
            &shard(1, 3).raw("split.tensors.count", value_type::I32, &[declared, 0, 0, 0]),
        );
        let result = Source::open(directory.path());
        assert_eq!(result.is_ok(), opens, "{result:?}");
    }
}
