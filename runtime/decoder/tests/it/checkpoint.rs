//! Tiny configs and checkpoints.

use kinfolk_decoder::{Activation, Config, Decoder, Result, Source};
use serde_json::{Map, Value, json};

/// The keys of a model of one layer: 8 wide, 2 heads of 4 with 1 key/value head, 6 between, 5 tokens.
pub fn keys() -> Value {
    json!({
        "model_type": "tiny", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 4, "intermediate_size": 6, "vocab_size": 5, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
    })
}

/// [`keys`] with some of them changed or added.
pub fn config(changes: Value) -> Config {
    let mut keys = keys();
    keys.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    Config::from_json("config.json", &keys.to_string()).unwrap()
}

pub fn describe(changes: Value) -> Result<Decoder> {
    Decoder::llama_shaped(&config(changes), 10_000.0, Activation::Silu)
}

/// Name, type and shape of every tensor of the tiny model, under the names that most checkpoints have.
pub fn tensors() -> Vec<(String, &'static str, Vec<usize>)> {
    [
        ("model.embed_tokens", vec![5, 8]),
        ("model.layers.0.input_layernorm", vec![8]),
        ("model.layers.0.self_attn.q_proj", vec![8, 8]),
        ("model.layers.0.self_attn.k_proj", vec![4, 8]),
        ("model.layers.0.self_attn.v_proj", vec![4, 8]),
        ("model.layers.0.self_attn.o_proj", vec![8, 8]),
        ("model.layers.0.post_attention_layernorm", vec![8]),
        ("model.layers.0.mlp.gate_proj", vec![6, 8]),
        ("model.layers.0.mlp.up_proj", vec![6, 8]),
        ("model.layers.0.mlp.down_proj", vec![8, 6]),
        ("model.norm", vec![8]),
    ]
    .map(|(name, shape)| (format!("{name}.weight"), "F32", shape))
    .into()
}

/// A safetensors file of these tensors in memory; the n-th holds n everywhere if it is F32, else zeros.
pub fn source(tensors: &[(String, &str, Vec<usize>)]) -> Source {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (n, (name, dtype, shape)) in tensors.iter().enumerate() {
        let start = data.len();
        let n_elements = shape.iter().product();
        match *dtype {
            "F32" => data.extend((0..n_elements).flat_map(|_| (n as f32).to_le_bytes())),
            "F8_E4M3" | "I8" => data.extend(vec![0; n_elements]),
            other => panic!("{other}"),
        }
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    bytes.extend(data);
    Source::from_bytes("tiny.safetensors", bytes).unwrap()
}

/// A GGUF file in memory of architecture `tiny`, with these texts and numbers (all f32) and no tensors.
pub fn gguf(texts: &[(&str, &str)], numbers: &[(&str, f32)]) -> Source {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = [b"GGUF".to_vec(), 3u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat();
    bytes.extend((1 + texts.len() as u64 + numbers.len() as u64).to_le_bytes());
    bytes.extend([text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("tiny")].concat());
    for (key, value) in texts {
        bytes.extend([text(key), 8u32.to_le_bytes().to_vec(), text(value)].concat());
    }
    for (key, value) in numbers {
        bytes.extend([text(key), 6u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat());
    }
    Source::from_bytes("tiny.gguf", bytes).unwrap()
}

/// A checkpoint of `registry-tests/fixtures`.
pub fn fixture(file: &str) -> Source {
    Source::open(format!("{}/../../registry-tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}
