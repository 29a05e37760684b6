//! Which of the linked families runs what.

use std::path::Path;

use kinfolk::{Registry, auto_runner_name};

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
