//! Embedding models give the reference's vectors from either format, loaded without a head.

use std::{fs, path::Path, sync::Arc};

use kinfolk::{
    LoadOptions, LoadRequest, LoadRole, Registry, RunnerError,
    decoder::Source,
    embedding::{EmbedRequest, Embedder, EmbeddingConventions},
    text::Text,
    verify::{Reference, RowKind, verify},
};
use kinfolk_registry_tests::in_repository;

/// The fixture's own noise is below 3e-6.
const TOLERANCE: f32 = 1e-4;

fn open(path: &Path) -> Embedder {
    let source = Arc::new(Source::open(path).unwrap());
    let conventions = EmbeddingConventions::from_source(&source).unwrap();
    let mut options = LoadOptions::default();
    options.role = LoadRole::Embedding;
    let family = Registry::linked().claim(&source).unwrap().family;
    let runner = (family.load)(LoadRequest::new(source, options)).unwrap();
    Embedder::new(runner, any_text(), conventions)
}

/// The fixture has no tokenizer and is given tokens; an embedder has one all the same.
fn any_text() -> Text {
    Text::from_source(&Source::open(in_repository("fixtures").join("qwen3/model.gguf")).unwrap(), &[]).unwrap()
}

fn reference(name: &str) -> Vec<f32> {
    let file = Source::open_tensors(fixture().join("reference.safetensors")).unwrap();
    file.tensor(name).unwrap().to_f32().unwrap()
}

fn fixture() -> std::path::PathBuf {
    in_repository("fixtures").join("qwen3-embedding")
}

#[track_caller]
fn check(path: &Path) {
    let mut embedder = open(path);
    let prompt = Reference::open(fixture().join("reference.safetensors")).unwrap().prompt;
    let mut request = EmbedRequest::default();
    for (normalize, name) in [(None, "embedding_normalized"), (Some(false), "embedding")] {
        request.normalize = normalize;
        // Together with others, in passes of several sizes.
        for batch_tokens in [16, 512] {
            request.batch_tokens = batch_tokens;
            let found = embedder.embed_tokens(&[&prompt[..7], &prompt, &prompt[3..]], &request).unwrap();
            let (found, expected) = (&found.vectors[1], reference(name));
            assert_eq!(found.len(), expected.len());
            let far = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far <= TOLERANCE, "{}: {name}: {far}", path.display());
        }
    }
}

#[test]
fn the_embedding_fixture_gives_the_reference_vectors_from_safetensors() {
    check(&fixture());
    let conventions = EmbeddingConventions::from_source(&Source::open(fixture()).unwrap()).unwrap();
    assert_eq!((conventions.pooling.to_string().as_str(), conventions.normalize), ("last", true));
}

#[test]
fn the_embedding_fixture_gives_the_reference_vectors_from_gguf() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    fs::write(&path, as_gguf(&Source::open(fixture()).unwrap())).unwrap();
    assert_eq!(EmbeddingConventions::from_source(&Source::open(&path).unwrap()).unwrap().pooling.to_string(), "last");
    check(&path);
}

#[test]
fn a_model_for_embeddings_verifies_its_hidden_states_and_has_no_logits() {
    let source = Arc::new(Source::open(fixture()).unwrap());
    let mut options = LoadOptions::default();
    options.role = LoadRole::Embedding;
    let family = Registry::linked().claim(&source).unwrap().family;
    let mut runner = (family.load)(LoadRequest::new(source, options)).unwrap();
    let reference = Reference::open(fixture().join("reference.safetensors")).unwrap();
    assert_eq!(reference.kind, RowKind::Hidden);
    let report = verify(&mut runner, &reference, TOLERANCE).unwrap();
    assert!(report.passed, "{:#?}", report.ways);
    let error = runner.predict_logits(&reference.prompt).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::NoHead));
}

/// B7: a checkpoint that says it has a head of its own, and has none.
#[test]
fn a_checkpoint_without_its_head_loads_for_embeddings() {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(fixture().join("model.safetensors"), directory.path().join("model.safetensors")).unwrap();
    let config = fs::read_to_string(fixture().join("config.json")).unwrap();
    let untied = config.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    assert_ne!(config, untied);
    fs::write(directory.path().join("config.json"), untied).unwrap();
    check(directory.path());
}

/// The qwen3 checkpoint as llama.cpp's converter would write it, in f32 and with the key of embedding models.
fn as_gguf(source: &Source) -> Vec<u8> {
    const U32: u32 = 4;
    const F32: u32 = 6;
    const TEXT: u32 = 8;
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let config = source.config();
    let count = |key: &str| (config.usize(key).unwrap() as u32).to_le_bytes().to_vec();
    let real = |key: &str| config.f32(key).unwrap().to_le_bytes().to_vec();
    let keys = [
        ("general.architecture", TEXT, text("qwen3")),
        ("qwen3.block_count", U32, count("num_hidden_layers")),
        ("qwen3.context_length", U32, count("max_position_embeddings")),
        ("qwen3.embedding_length", U32, count("hidden_size")),
        ("qwen3.feed_forward_length", U32, count("intermediate_size")),
        ("qwen3.attention.head_count", U32, count("num_attention_heads")),
        ("qwen3.attention.head_count_kv", U32, count("num_key_value_heads")),
        ("qwen3.attention.key_length", U32, count("head_dim")),
        ("qwen3.attention.value_length", U32, count("head_dim")),
        ("qwen3.attention.layer_norm_rms_epsilon", F32, real("rms_norm_eps")),
        ("qwen3.rope.freq_base", F32, 10_000f32.to_le_bytes().to_vec()),
        ("qwen3.vocab_size", U32, count("vocab_size")),
        ("qwen3.pooling_type", U32, 3u32.to_le_bytes().to_vec()),
    ];
    let tensors: Vec<_> = source.tensors().map(|info| (gguf_name(&info.name), info)).collect();
    let mut bytes = [b"GGUF".to_vec(), 3u32.to_le_bytes().to_vec()].concat();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (key, kind, value) in keys {
        bytes.extend([text(key), kind.to_le_bytes().to_vec(), value].concat());
    }
    let mut data = Vec::new();
    for (name, info) in tensors {
        bytes.extend(text(&name));
        bytes.extend((info.shape.len() as u32).to_le_bytes());
        info.shape.iter().rev().for_each(|&size| bytes.extend((size as u64).to_le_bytes()));
        // Type F32.
        bytes.extend(0u32.to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        data.extend_from_slice(source.tensor(&info.name).unwrap().bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    bytes
}

fn gguf_name(name: &str) -> String {
    let mut name = name.strip_prefix("model.").unwrap_or(name).to_owned();
    for (from, to) in [
        ("embed_tokens", "token_embd"),
        ("layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ] {
        name = name.replace(from, to);
    }
    if name == "norm.weight" { "output_norm.weight".to_owned() } else { name }
}
