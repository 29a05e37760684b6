use kinfolk::decoder::Ffn;

use super::*;

/// Keys of a model of `n_layers` layers, 8 wide with 2 heads, and `more`.
fn config(n_layers: usize, more: &str) -> Config {
    let text = format!(
        r#"{{"num_hidden_layers": {n_layers}, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
            "vocab_size": 5, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "model_type": "qwen3", "head_dim": 10{more}}}"#
    );
    Config::from_json("config.json", &text).unwrap()
}

#[test]
fn heads_have_a_width_and_a_norm_of_their_own() {
    let mut decoder = describe(&config(2, "")).unwrap();
    let norm = decoder.final_norm;
    assert!(decoder.attentions_mut().all(|a| a.head_dim == 10 && a.qk_norm == Some(norm)));
    assert!(decoder.attentions_mut().all(|a| a.rope.as_ref().is_some_and(|r| r.theta == 1_000_000.0)));
}

#[test]
fn experts_are_renormalised_unless_the_config_says_no() {
    for (more, expected) in [("", true), (r#", "norm_topk_prob": true"#, true), (r#", "norm_topk_prob": false"#, false)]
    {
        let keys = format!(r#", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 3{more}"#);
        let Ffn::Moe(moe) = describe(&config(1, &keys)).unwrap().layers[0].ffn.clone() else { panic!("no experts") };
        assert_eq!((moe.renormalize, moe.shared), (expected, None), "{more}");
    }
}

#[test]
fn no_experts_are_a_dense_model() {
    assert!(matches!(describe(&config(1, r#", "num_experts": 0"#)).unwrap().layers[0].ffn, Ffn::Gated(_)));
}
