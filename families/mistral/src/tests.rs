use kinfolk::decoder::{BindProblem, Ffn, Source};

use super::*;

/// Keys of a model of `n_layers` layers, 8 wide with 2 heads, and `more`.
fn config(n_layers: usize, more: &str) -> Config {
    let text = format!(
        r#"{{"num_hidden_layers": {n_layers}, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
            "vocab_size": 5, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "model_type": "mistral"{more}}}"#
    );
    Config::from_json("config.json", &text).unwrap()
}

fn masks(more: &str) -> Vec<Mask> {
    describe(&config(2, more)).unwrap().attentions_mut().map(|a| a.mask).collect()
}

#[test]
fn a_window_is_every_layer_s_unless_the_layers_are_listed() {
    assert_eq!(masks(r#", "sliding_window": 7"#), [Mask::Window(7); 2]);
    assert_eq!(masks(r#", "sliding_window": null"#), [Mask::Causal; 2]);
    let listed = r#", "sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]"#;
    assert_eq!(masks(listed), [Mask::Causal, Mask::Window(7)]);
}

#[test]
fn mixtral_names_its_experts_otherwise_and_renormalises() {
    let decoder = describe(&config(1, r#", "num_local_experts": 2, "num_experts_per_tok": 1"#)).unwrap();
    assert!(matches!(&decoder.layers[0].ffn, Ffn::Moe(moe) if moe.renormalize && moe.expert.intermediate_size == 6));
    let empty = Source::from_bytes("empty.safetensors", [&2u64.to_le_bytes()[..], b"{}"].concat()).unwrap();
    let Err(kinfolk::decoder::DecoderError::Tensors { problems, .. }) = decoder.bind(&empty) else { panic!("bound") };
    let name_of = |wanted: &str| {
        let named = problems.iter().find_map(|p| match p {
            BindProblem::Missing { slot, names } if slot == wanted => names.first(),
            _ => None,
        });
        named.unwrap_or_else(|| panic!("no `{wanted}`")).as_str()
    };
    assert_eq!(name_of("layers.0.moe.router"), "model.layers.0.block_sparse_moe.gate.weight");
    assert_eq!(name_of("layers.0.moe.experts.1.gate"), "model.layers.0.block_sparse_moe.experts.1.w1.weight");
    assert_eq!(name_of("layers.0.moe.experts.1.up"), "model.layers.0.block_sparse_moe.experts.1.w3.weight");
    assert_eq!(name_of("layers.0.moe.experts.1.down"), "model.layers.0.block_sparse_moe.experts.1.w2.weight");
}

#[test]
fn ministral_3_scales_queries_by_their_position() {
    let rope = |original: usize| {
        format!(
            r#", "rope_parameters": {{"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": {original}}}"#
        )
    };
    let mut decoder = describe(&config(2, &rope(16))).unwrap();
    let expected = Some(QueryTemperature { scale: 0.1, floor: 16 });
    assert!(decoder.attentions_mut().all(|a| a.query_temperature == expected));
    assert!(describe(&config(2, &rope(0))).is_err());
    assert!(describe(&config(2, "")).unwrap().attentions_mut().all(|a| a.query_temperature.is_none()));
}
