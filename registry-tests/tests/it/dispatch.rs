//! Which of the linked families runs what.

use std::{path::Path, sync::Arc};

use kinfolk::{
    LoadOptions, LoadRequest, Registry, auto_runner_name,
    decoder::{DecoderError, Source},
    registry::ClaimError,
};

#[path = "../../../macros/src/normalise.rs"]
mod of_the_macros;

#[test]
fn every_family_of_the_workspace_is_linked_and_none_conflicts() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../families");
    let mut lineages: Vec<String> = std::fs::read_dir(&folders)
        .expect("families/ is part of the checkout")
        .map(|entry| entry.expect("families/ can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    lineages.sort();
    let crates: Vec<String> = lineages.iter().map(|lineage| format!("kinfolk-{lineage}")).collect();
    let mut linked: Vec<&str> = Registry::linked().families().map(|family| family.crate_name).collect();
    linked.sort();
    linked.dedup();
    assert_eq!(linked, crates, "a family is a folder, and registry-tests/Cargo.toml names its crate");
    assert!(Registry::linked().conflicts().is_empty(), "{:?}", Registry::linked().conflicts());
}

#[test]
fn every_alias_of_a_family_reaches_it_whatever_the_path() {
    for family in Registry::linked().families() {
        for (_, alias) in family.aliases() {
            for path in ["model.gguf", "mistral-large-3-notes/model.gguf", "gemma/llama/qwen3.safetensors"] {
                let found = auto_runner_name(alias, Some(Path::new(path)));
                assert_eq!(found, Some(family.name), "{alias} at {path}");
            }
        }
    }
}

#[test]
fn an_unknown_architecture_is_nobodys() {
    for architecture in ["", "transformer-9000", "llama2.c", "qwen"] {
        assert_eq!(auto_runner_name(architecture, Some(Path::new("llama/qwen3/model.gguf"))), None, "{architecture}");
    }
}

#[test]
fn macros_and_registry_agree_on_what_is_one_name() {
    let aliases = Registry::linked().families().flat_map(|family| family.aliases().map(|(_, alias)| alias));
    for name in aliases.chain(["", " A_b-C.1\t", "ΣİßK", "deep seek", "qwen2.5", "x\u{a0}y—z"]) {
        assert_eq!(of_the_macros::normalise(name), kinfolk::registry::normalise(name), "{name:?}");
    }
}

/// The header of a GGUF file that names its architecture and says nothing more.
fn bare_header(architecture: &str) -> Arc<Source> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let bytes = [
        b"GGUF".to_vec(),
        3u32.to_le_bytes().to_vec(),
        0u64.to_le_bytes().to_vec(),
        1u64.to_le_bytes().to_vec(),
        text("general.architecture"),
        8u32.to_le_bytes().to_vec(),
        text(architecture),
    ];
    Arc::new(Source::from_gguf_bytes("model.gguf", bytes.concat().leak()).expect("the bytes are GGUF"))
}

#[test]
fn a12_a_known_family_with_a_missing_key_names_the_key_and_the_file() {
    for family in Registry::linked().families() {
        for architecture in family.gguf {
            let source = bare_header(architecture);
            let claimed = Registry::linked().claim(&source).expect("the name is enough to claim").family;
            assert_eq!(claimed.name, family.name);
            let error = (claimed.load)(LoadRequest::new(source, LoadOptions::default()));
            let error = error.err().expect("there is no model in a bare header");
            assert!(matches!(error.downcast_ref(), Some(DecoderError::Config(_))), "{architecture}: {error:#}");
            let message = error.to_string();
            assert!(message.contains("`model.gguf`") && message.contains(&format!("{architecture}.")), "{message}");
        }
    }
}

#[test]
fn a9_an_architecture_is_never_read_with_another_familys_keys() {
    let source = bare_header("gemma2");
    let others = Registry::of(Registry::linked().families().copied().filter(|family| family.name != "gemma"));
    let error = others.claim(&source).expect_err("only gemma runs it");
    assert!(matches!(error, ClaimError::Unclaimed { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("found `gemma2` in `model.gguf`"), "{message}");
    assert!(others.families().all(|family| message.contains(&format!("`{}`", family.name))), "{message}");
    assert!(message.ends_with("\ncargo add kinfolk-gemma"), "{message}");
}
