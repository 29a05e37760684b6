//! Telling what a file is from its bytes, and where its siblings are from the path as given.

use std::path::Path;

use kinfolk_weights::{Source, WeightFormat, WeightsError};

use crate::{gguf_bytes::GgufBytes, safetensors::tiny};

#[test]
fn files_that_are_no_weights_are_refused_in_one_line_that_says_what_they_are() {
    let cases: [(&[u8], &str); 11] = [
        (b"", "an empty file"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"  <html><body>404</body>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs pointer"),
        (b"{\"error\": \"not found\"}", "JSON text"),
        (b"tjgg\x03\0\0\0", "before GGUF"),
        (&[0; 4096], "zeros"),
        (b"GGU", "3 bytes that begin 47 47 55"),
        (b"\xde\xad\xbe\xef\0\x01\x02\x03\x04\x05", "begin de ad be ef"),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (bytes, words) in cases {
        // The name is no reason to believe the bytes.
        for name in ["model.gguf", "model.safetensors", "blob"] {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let error = Source::open(&path).unwrap_err();
            assert!(matches!(error, WeightsError::UnknownFormat { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(name) && error.contains(words) && !error.contains('\n'), "{words}: {error}");
            assert!(error.contains("expected GGUF or safetensors"), "{error}");
        }
    }
}

#[test]
fn a_path_that_is_not_there_names_itself_and_the_cause() {
    let error = Source::open("/nowhere/model.gguf").unwrap_err();
    assert_eq!(error.to_string(), "cannot read `/nowhere/model.gguf`");
    assert!(std::error::Error::source(&error).is_some());
}

#[cfg(unix)]
#[test]
fn devices_are_refused_rather_than_read() {
    let error = Source::open("/dev/zero").unwrap_err();
    assert!(matches!(error, WeightsError::Io { .. }), "{error:?}");
}

#[test]
fn the_bytes_decide_over_the_name() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config.json"), "{}").unwrap();
    let check = |name: &str, bytes: &[u8], format| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Source::open(&path).unwrap().format(), format, "{name}");
    };
    check("model.safetensors", &GgufBytes::llama().build(), WeightFormat::Gguf);
    check("model.gguf", &tiny(&["a"]), WeightFormat::Safetensors);
    check("0123abcd", &GgufBytes::llama().build(), WeightFormat::Gguf);
}

#[cfg(unix)]
#[test]
fn l6_a_link_to_a_blob_opens_and_its_siblings_are_those_of_the_link() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let (blobs, snapshot) = (directory.path().join("blobs"), directory.path().join("snap"));
    std::fs::create_dir(&blobs).unwrap();
    std::fs::create_dir(&snapshot).unwrap();
    let link = |name: &str, blob: &str, bytes: &[u8]| {
        std::fs::write(blobs.join(blob), bytes).unwrap();
        symlink(Path::new("../blobs").join(blob), snapshot.join(name)).unwrap();
    };
    link("model.gguf", "aa11", &GgufBytes::llama().build());
    link("tokenizer.json", "bb22", b"{}");

    let source = Source::open(snapshot.join("model.gguf")).unwrap();
    assert_eq!(source.path(), snapshot.join("model.gguf"));
    assert_eq!(source.sidecar("tokenizer.json").unwrap().as_deref(), Some("{}"));
    let blob = Source::open(blobs.join("aa11")).unwrap();
    assert_eq!(blob.sidecar("tokenizer.json").unwrap(), None);
    assert_eq!(Source::open(&snapshot).unwrap().tensors().count(), 1);
}

#[cfg(unix)]
#[test]
fn l6_linked_shards_find_each_other_by_the_names_of_the_links() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=2 {
        let blob = directory.path().join(format!("blob{number}"));
        let file = if number == 1 { GgufBytes::llama() } else { GgufBytes::new().tensor("b", &[1], 0, &[0; 4]) };
        std::fs::write(&blob, file.u32("split.count", 2).build()).unwrap();
        symlink(&blob, directory.path().join(format!("m-0000{number}-of-00002.gguf"))).unwrap();
    }
    assert_eq!(Source::open(directory.path().join("m-00002-of-00002.gguf")).unwrap().tensors().count(), 2);
}

#[test]
fn l4_paths_need_not_be_ascii() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("模型-é");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("模型.gguf"), GgufBytes::llama().build()).unwrap();
    assert_eq!(Source::open(directory.join("模型.gguf")).unwrap().tensors().count(), 1);
    assert_eq!(Source::open(&directory).unwrap().tensors().count(), 1);
}

#[test]
fn sidecars_are_text_files_beside_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, GgufBytes::llama().build()).unwrap();
    std::fs::write(directory.path().join("a.json"), "{\"é\": 1}").unwrap();
    std::fs::write(directory.path().join("b.json"), b"{\"\xff\": 1}").unwrap();
    let source = Source::open(&path).unwrap();
    assert_eq!(source.sidecar("a.json").unwrap().as_deref(), Some("{\"é\": 1}"));
    assert_eq!(source.sidecar("absent.json").unwrap(), None);
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    std::fs::write(directory.path().join("sub/c.json"), "[]").unwrap();
    assert_eq!(source.sidecar("sub/c.json").unwrap().as_deref(), Some("[]"));
    for absent in ["sub/absent.json", "absent/c.json", "a.json/c.json"] {
        assert_eq!(source.sidecar(absent).unwrap(), None);
    }
    assert!(source.sidecar("b.json").unwrap_err().to_string().contains("offset 2"));
    for outside in ["../a.json", "/etc/passwd", "", "..", "sub/../a.json", "sub/", "sub//a.json", "sub\\a.json"] {
        assert!(matches!(source.sidecar(outside), Err(WeightsError::Malformed { .. })), "{outside}");
    }
}

#[test]
fn a_text_larger_than_its_limit_is_refused_without_being_read_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, GgufBytes::llama().build()).unwrap();
    // Sparse: it takes no room on disk.
    let file = std::fs::File::create(directory.path().join("tokenizer.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = Source::open(&path).unwrap().sidecar("tokenizer.json").unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("at most"), "{error}");
}

#[test]
fn a_source_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Source>();
}
