//! The shared checkpoints: each is there as safetensors with `config.json`, many also as GGUF made from the same weights.

use std::path::{Path, PathBuf};

use kinfolk_weights::{Config, Source, WeightFormat};

/// `shared/fixtures/public` beside this checkout, if it is there.
///
/// A test that needs it returns without it and is then reported as not run.
///
/// # Panics
/// If it is absent where `CI` is set: there it must not be skipped.
pub fn shared() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().map(|up| up.join("shared/fixtures/public")).find(|path| path.is_dir());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "shared/fixtures/public is absent and CI is set");
    #[expect(clippy::print_stdout, reason = "a test that was not run must say so")]
    if found.is_none() {
        println!("not run: shared/fixtures/public is absent");
    }
    found
}

fn folders(shared: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = shared.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

/// Keys whose value must not depend on the format.
const COUNTS: &[&str] = &[
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "vocab_size",
    "num_local_experts",
    "num_experts_per_tok",
    "bos_token_id",
    "pad_token_id",
];

/// What llama.cpp's converter writes differently: falcon has its context length fixed at 2048, granitemoehybrid at a million, mamba
/// has no feed-forward layer to be wide, and gemma4 lists a width per layer where `config.json` has a switch.
const CONVERTED: &[(&str, &str)] = &[
    ("falcon-40b", "max_position_embeddings"),
    ("falcon-7b", "max_position_embeddings"),
    ("granitemoehybrid", "max_position_embeddings"),
    ("mamba", "intermediate_size"),
    ("gemma4_text", "intermediate_size"),
];

#[test]
fn every_shared_checkpoint_opens_in_both_formats_and_their_configs_agree() {
    let Some(shared) = shared() else { return };
    let (mut n_pairs, mut n_folders, mut problems) = (0, 0, Vec::new());
    for folder in folders(&shared) {
        n_folders += 1;
        let hf = Source::open(folder.join("model.safetensors")).unwrap();
        assert_eq!(hf.format(), WeightFormat::Safetensors);
        assert!(hf.tensors().count() > 0, "{}", folder.display());
        let gguf = folder.join("model.gguf");
        if !gguf.exists() {
            continue;
        }
        n_pairs += 1;
        let gguf = Source::open(gguf).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let keys = COUNTS.iter().filter(|key| !CONVERTED.contains(&(name, key)));
        let differences = keys.filter_map(|key| difference(key, hf.config(), gguf.config()));
        problems.extend(differences.map(|d| format!("{name}: {d}")));
    }
    assert!(n_pairs >= 40 && n_folders >= 100, "{n_pairs} pairs in {n_folders} folders");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn published_spellings_of_a_config_answer_like_those_of_transformers() {
    let Some(shared) = shared() else { return };
    let read = |path: PathBuf| Config::from_json(&path, &std::fs::read_to_string(&path).unwrap()).unwrap();
    let (mut n_pairs, mut problems) = (0, Vec::new());
    for folder in folders(&shared) {
        let [published, current] = ["config.hub.json", "config.json"].map(|name| folder.join(name));
        if !published.exists() {
            continue;
        }
        n_pairs += 1;
        let (published, current) = (read(published), read(current));
        for key in COUNTS.iter().chain(&["num_key_value_heads", "head_dim", "moe_intermediate_size"]) {
            // transformers 5 counts these layers by their list of kinds.
            let uncounted = folder.ends_with("nemotron_h") && *key == "num_hidden_layers";
            if published.opt_usize(key).ok() != current.opt_usize(key).ok() && !uncounted {
                problems.push(format!("{}: {key}", folder.display()));
            }
        }
        for key in ["rms_norm_eps", "layer_norm_eps", "rope_theta"] {
            if published.opt_f32(key).ok() != current.opt_f32(key).ok() {
                problems.push(format!(
                    "{}: {key}: {:?} {:?}",
                    folder.display(),
                    published.opt_f32(key),
                    current.opt_f32(key)
                ));
            }
        }
    }
    assert!(n_pairs >= 100, "{n_pairs}");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_released_tensor_can_be_read_again() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/qwen3_moe/model.gguf");
    let source = Source::open(path).unwrap();
    for info in source.tensors() {
        let before = source.tensor(&info.name).unwrap().bytes.to_vec();
        source.release(&info.name);
        assert_eq!(source.tensor(&info.name).unwrap().bytes, before);
    }
    source.release("no such tensor");
}

fn difference(key: &str, hf: &Config, gguf: &Config) -> Option<String> {
    let (a, b) = (hf.opt_usize(key), gguf.opt_usize(key));
    match (&a, &b) {
        (Ok(Some(a)), Ok(Some(b))) if a == b => None,
        // A key that one side does not write is a family's business.
        (Ok(None), _) | (_, Ok(None)) => None,
        _ => Some(format!("{key}: {a:?} in config.json, {b:?} in GGUF")),
    }
}
