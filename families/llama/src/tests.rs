use kinfolk::decoder::{Ffn, RopeScaling, Source};

use super::*;

/// Keys of a model of `n_layers` layers, 8 wide with 2 heads, and `more`.
fn config(n_layers: usize, more: &str) -> Config {
    let text = format!(
        r#"{{"num_hidden_layers": {n_layers}, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
            "vocab_size": 5, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "model_type": "llama"{more}}}"#
    );
    Config::from_json("config.json", &text).unwrap()
}

/// A GGUF file in memory of these numbers and no tensors.
fn gguf(numbers: &[(&str, u32)]) -> Source {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    // Version 3, no tensors, one text and the numbers.
    let mut bytes = [b"GGUF".to_vec(), 3u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat();
    bytes.extend((numbers.len() as u64 + 2).to_le_bytes());
    bytes.extend([text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("llama")].concat());
    let eps =
        [text("llama.attention.layer_norm_rms_epsilon"), 6u32.to_le_bytes().to_vec(), 1e-5f32.to_le_bytes().to_vec()];
    bytes.extend(eps.concat());
    for (key, number) in numbers {
        bytes.extend(
            [text(&format!("llama.{key}")), 4u32.to_le_bytes().to_vec(), number.to_le_bytes().to_vec()].concat(),
        );
    }
    Source::from_bytes("tiny.gguf", bytes).unwrap()
}

const SIZES: [(&str, u32); 6] = [
    ("block_count", 2),
    ("embedding_length", 8),
    ("attention.head_count", 2),
    ("feed_forward_length", 6),
    ("context_length", 32),
    ("vocab_size", 5),
];

#[test]
fn gguf_experts_are_mixtral_s_and_a_count_of_0_is_none() {
    let with = |experts: &[(&str, u32)]| describe(gguf(&[&SIZES, experts].concat()).config()).unwrap();
    let decoder = with(&[("expert_count", 8), ("expert_used_count", 2)]);
    for layer in &decoder.layers {
        let Ffn::Moe(moe) = &layer.ffn else { panic!("no experts") };
        assert_eq!((moe.n_experts, moe.top_k, moe.expert.intermediate_size, moe.renormalize), (8, 2, 6, true));
    }
    for dense in [&[("expert_count", 0), ("expert_used_count", 0)][..], &[]] {
        assert!(with(dense).layers.iter().all(|layer| matches!(layer.ffn, Ffn::Gated(_))));
    }
}

#[test]
fn gguf_files_have_their_query_rows_in_pairs() {
    assert_eq!(describe(gguf(&SIZES).config()).unwrap().names.gguf_qk_rows, QkRows::Pairs);
}

#[test]
fn llama_3_1_stretches_its_rope_by_wavelength() {
    let rope = r#", "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16}"#;
    let mut decoder = describe(&config(2, rope)).unwrap();
    let expected = RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 16 };
    assert!(decoder.attentions_mut().all(|a| a.rope.as_ref().is_some_and(|r| r.scaling == expected)));
}

#[test]
fn a_plain_config_is_a_plain_decoder() {
    let mut decoder = describe(&config(2, "")).unwrap();
    let attention = decoder.attentions_mut().next().unwrap().clone();
    assert_eq!((attention.n_kv_heads, attention.head_dim, attention.scale), (2, 4, 0.5));
    assert_eq!(attention.rope.unwrap().theta, 10_000.0);
}
