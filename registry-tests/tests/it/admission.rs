//! What the linked families make of a model before it is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kinfolk::{
    Registry,
    admission::{AdmissionOptions, Assessment, Basis, Listing, Model, Refused, assess, examine},
    decoder::Source,
};
use kinfolk_registry_tests::{in_repository, report_not_run, shared};
use serde_json::{Value, json};

fn found<'a>(model: impl Into<Model<'a>>) -> Result<Assessment, Refused> {
    examine(Registry::linked(), model, &AdmissionOptions::default())
}

/// How many of the fixtures in a folder were compared.
#[derive(Debug, Default)]
struct Compared {
    /// Safetensors that both ways admit.
    safetensors: usize,
    /// GGUF files that both ways admit.
    gguf: usize,
    /// Checkpoints that both ways refuse for their layout.
    packed: usize,
}

/// Assesses every checkpoint of the linked families twice: as it is, and from its config and the sizes of its files.
#[track_caller]
fn compare_all(fixtures: &Path) -> Compared {
    let mut folders: Vec<PathBuf> = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("config.json").exists());
    folders.sort();
    let mut compared = Compared::default();
    for folder in folders {
        let all = Listing::of_directory(&folder).unwrap();
        if Registry::linked().claim_config(all.config().unwrap(), &folder).is_err() {
            assert!(matches!(found(&all), Err(Refused::Family(_))), "{}", folder.display());
            continue;
        }
        let text = fs::read_to_string(folder.join("config.json")).unwrap();
        for (name, n_bytes) in all.files().filter(|(name, _)| name.ends_with(".gguf") || *name == "model.safetensors") {
            let source = Source::open(folder.join(name)).unwrap();
            let listing = Listing::new(&folder, [(name.to_owned(), n_bytes)]).unwrap().with_config(&text).unwrap();
            let what = format!("{} {name}", folder.display());
            if name.ends_with(".gguf") {
                compare_gguf(&source, &listing, n_bytes, &what);
                compared.gguf += 1;
            } else if compare_safetensors(&source, &listing, n_bytes, &what) {
                compared.safetensors += 1;
            } else {
                compared.packed += 1;
            }
        }
    }
    compared
}

/// Whether both admit it.
#[track_caller]
fn compare_safetensors(source: &Source, listing: &Listing, n_bytes: u64, what: &str) -> bool {
    let (there, listed) = match (found(source), found(listing)) {
        (Ok(there), Ok(listed)) => (there, listed),
        (Err(Refused::Quantisation { scheme, .. }), Err(Refused::Quantisation { scheme: listed, .. })) => {
            assert_eq!(scheme, listed, "{what}");
            return false;
        }
        (there, listed) => panic!("{what}: {there:?}\nlisted: {listed:?}"),
    };
    assert_eq!(
        (listed.family, listed.executor, &listed.decoder),
        (there.family, there.executor, &there.decoder),
        "{what}"
    );
    assert_eq!(listed.quantisation.schemes[0].scheme, there.quantisation.schemes[0].scheme, "{what}");
    // Biases are the checkpoint's to have: a config does not tell.
    let biases = there.n_parameters - listed.n_parameters;
    assert!(biases * 50 < there.n_parameters, "{what}: {biases} of {}", there.n_parameters);
    let weights = listed.memory.weight_bytes;
    assert!(
        (there.memory.weight_bytes..=n_bytes.max(there.memory.weight_bytes)).contains(&weights),
        "{what}: {weights}"
    );
    let [cache, of_listed] = [&there, &listed].map(|found| (found.memory.cache_bytes, found.memory.scratch_bytes));
    assert_eq!(cache, of_listed, "{what}");
    true
}

#[track_caller]
fn compare_gguf(source: &Source, listing: &Listing, n_bytes: u64, what: &str) {
    let [there, listed] = [found(source), found(listing)].map(|found| found.unwrap_or_else(|e| panic!("{what}: {e}")));
    // As GGUF, mistral's checkpoints call themselves llama.
    let same_family = there.family == listed.family || (there.family, listed.family) == ("llama", "mistral");
    assert!(same_family && there.executor == listed.executor, "{what}: {} and {}", there.family, listed.family);
    assert!(matches!(listed.quantisation.basis, Basis::FileName | Basis::FileSizes), "{what}");
    // The layout that a tensor's own type is multiplied in may take 3 % more than the file, and names do not tell each tensor's type.
    assert!(listed.memory.weight_bytes * 103 >= there.memory.weight_bytes * 100, "{what}");
    // The names of small files promise blocks that their rows do not fill.
    assert!(listed.memory.weight_bytes <= n_bytes.max(3 * there.memory.weight_bytes), "{what}");
    assert_eq!(listed.memory.cache_bytes, there.memory.cache_bytes, "{what}");
}

#[test]
fn a_fixture_is_assessed_alike_before_and_after_it_is_there() {
    let compared = compare_all(&in_repository("fixtures"));
    assert!(compared.safetensors >= 15 && compared.gguf >= 10, "{compared:?}");
}

#[test]
fn a_shared_fixture_is_assessed_alike_before_and_after_it_is_there() {
    match shared("fixtures/public") {
        Some(fixtures) => {
            let compared = compare_all(&fixtures);
            assert!(compared.safetensors >= 18 && compared.gguf >= 30 && compared.packed >= 20, "{compared:?}");
        }
        None => report_not_run("shared fixtures", "shared/fixtures/public"),
    }
}

/// The config of a published model: what its family reads, as its page on the hub has it.
fn published(name: &str) -> Value {
    let dense = |model_type: &str, layers: u32, hidden: u32, intermediate: u32, heads: [u32; 3], vocab: u32| {
        let [n_heads, n_kv_heads, head_dim] = heads;
        json!({
            "model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": intermediate,
            "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads, "head_dim": head_dim, "vocab_size": vocab,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "torch_dtype": "bfloat16",
            "tie_word_embeddings": false, "hidden_act": "silu"
        })
    };
    let with = |mut config: Value, changes: Value| {
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        config
    };
    match name {
        "Llama-3.1-8B" => dense("llama", 32, 4096, 14336, [32, 8, 128], 128256),
        "Mistral-7B-v0.1" => dense("mistral", 32, 4096, 14336, [32, 8, 128], 32000),
        "Qwen3-0.6B" => {
            with(dense("qwen3", 28, 1024, 3072, [16, 8, 128], 151936), json!({ "tie_word_embeddings": true }))
        }
        "Qwen3-30B-A3B" => with(
            dense("qwen3_moe", 48, 2048, 6144, [32, 4, 128], 151936),
            json!({ "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
                    "decoder_sparse_step": 1, "mlp_only_layers": [] }),
        ),
        "gemma-2-2b" => with(
            dense("gemma2", 26, 2304, 9216, [8, 4, 256], 256000),
            json!({ "tie_word_embeddings": null, "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh",
                    "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
                    "final_logit_softcapping": 30.0 }),
        ),
        "SmolLM3-3B" => with(
            dense("smollm3", 36, 2048, 11008, [16, 4, 128], 128256),
            json!({ "tie_word_embeddings": true, "no_rope_layer_interval": 4 }),
        ),
        other => panic!("{other}"),
    }
}

fn listing(name: &str, files: &[(&str, u64)]) -> Listing {
    let files = files.iter().map(|&(file, n_bytes)| (file.to_owned(), n_bytes));
    Listing::new(name, files).unwrap().with_config(&published(name).to_string()).unwrap()
}

#[test]
fn the_weights_of_published_models_are_counted_from_their_config_alone() {
    // The counts are those that the hub shows of their safetensors.
    for (name, family, n_parameters) in [
        ("Llama-3.1-8B", "llama", 8_030_261_248),
        ("Mistral-7B-v0.1", "mistral", 7_241_732_096),
        ("Qwen3-0.6B", "qwen3", 596_049_920),
        ("Qwen3-30B-A3B", "qwen3", 30_532_122_624),
        ("gemma-2-2b", "gemma", 2_614_341_888),
        ("SmolLM3-3B", "smollm3", 3_075_098_624),
    ] {
        let found = found(&listing(name, &[])).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((found.family, found.n_parameters), (family, n_parameters), "{name}");
        assert_eq!(found.quantisation.basis, Basis::Config, "{name}");
        // Norms are f32 in memory; everything else takes the two bytes it is stored in.
        let in_memory = found.memory.weight_bytes as f64 / (2 * n_parameters) as f64;
        assert!((1.0..1.001).contains(&in_memory), "{name}: {in_memory}");
    }
}

#[test]
fn a_model_too_large_for_a_laptop_comes_with_the_file_that_is_not() {
    const GIB: u64 = 1 << 30;
    // Sizes of the published quantisations, rounded.
    let files = [
        ("Qwen3-30B-A3B-Q2_K.gguf", 11_260_000_000),
        ("Qwen3-30B-A3B-Q4_K_M.gguf", 18_560_000_000),
        ("Qwen3-30B-A3B-Q8_0.gguf", 32_480_000_000),
    ];
    let mut options = AdmissionOptions::default();
    options.available_bytes = Some(16 * GIB);
    options.context_length = Some(8192);
    let refused = assess(&listing("Qwen3-30B-A3B", &files), &options).unwrap_err();
    let Refused::TooLarge(too_large) = &refused else { panic!("{refused}") };
    assert_eq!(too_large.remedies.files, ["Qwen3-30B-A3B-Q2_K.gguf"]);
    assert_eq!((too_large.remedies.context_length, too_large.remedies.embedding), (None, false));
    assert!(too_large.remedies.bits_per_weight.is_some_and(|bits| (3.0..4.5).contains(&bits)), "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains("expected at most 16384 MiB") && message.contains("`Qwen3-30B-A3B-Q2_K.gguf`"),
        "{message}"
    );
    options.open.prefer_gguf = Some("q2_k".to_owned());
    let admitted = assess(&listing("Qwen3-30B-A3B", &files), &options).unwrap();
    assert_eq!(admitted.files, ["Qwen3-30B-A3B-Q2_K.gguf"]);
}

#[test]
fn a_family_that_is_not_linked_ends_in_the_line_that_links_it() {
    let without = Registry::of(Registry::linked().families().copied().filter(|family| family.name != "gemma"));
    let refused = examine(&without, &listing("gemma-2-2b", &[]), &AdmissionOptions::default()).unwrap_err();
    assert!(matches!(refused, Refused::Family(_)), "{refused:?}");
    assert!(refused.to_string().ends_with("\ncargo add kinfolk-gemma"), "{refused}");
}
