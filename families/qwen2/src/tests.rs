use kinfolk::decoder::{Ffn, Mask};

use super::*;

/// Keys of a model of `n_layers` layers, 8 wide with 2 heads, and `more`.
fn config(n_layers: usize, more: &str) -> Config {
    let text = format!(
        r#"{{"num_hidden_layers": {n_layers}, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
            "vocab_size": 5, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "model_type": "qwen2", "sliding_window": 7{more}}}"#
    );
    Config::from_json("config.json", &text).unwrap()
}

fn masks(more: &str) -> Vec<Mask> {
    describe(&config(4, more)).unwrap().attentions_mut().map(|a| a.mask).collect()
}

#[test]
fn layers_slide_from_max_window_layers_on_if_the_switch_says_so() {
    let window = Mask::Window(7);
    let on = r#", "use_sliding_window": true, "max_window_layers": 3"#;
    assert_eq!(masks(on), [Mask::Causal, Mask::Causal, Mask::Causal, window]);
    assert_eq!(masks(r#", "use_sliding_window": true, "max_window_layers": 0"#), [window; 4]);
    assert_eq!(masks(r#", "use_sliding_window": true"#), [Mask::Causal; 4], "28 layers without a number");
    assert_eq!(masks(r#", "use_sliding_window": false, "max_window_layers": 0"#), [Mask::Causal; 4]);
    assert_eq!(masks(r#", "max_window_layers": 0"#), [Mask::Causal; 4]);
    let types = r#", "use_sliding_window": true, "max_window_layers": 0,
        "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]"#;
    assert_eq!(masks(types)[..2], [window, Mask::Causal], "a list of layers holds before the switch");
}

#[test]
fn experts_stand_beside_a_shared_one_and_keep_their_probabilities() {
    let keys = r#", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 3,
        "shared_expert_intermediate_size": 9"#;
    let Ffn::Moe(moe) = describe(&config(1, keys)).unwrap().layers[0].ffn.clone() else { panic!("no experts") };
    assert!(!moe.renormalize);
    assert_eq!((moe.n_experts, moe.top_k, moe.expert.intermediate_size), (4, 2, 3));
    assert_eq!(moe.shared.unwrap().expert.intermediate_size, 9);
}

#[test]
fn no_experts_are_a_dense_model() {
    assert!(matches!(describe(&config(1, r#", "num_experts": 0"#)).unwrap().layers[0].ffn, Ffn::Gated(_)));
}
