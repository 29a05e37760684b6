use kinfolk::decoder::Source;

use super::*;

/// Keys of a model of `n_layers` layers, 8 wide with 2 heads, and `more`.
fn config(n_layers: usize, more: &str) -> Config {
    let text = format!(
        r#"{{"num_hidden_layers": {n_layers}, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
            "vocab_size": 5, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "head_dim": 16, "sliding_window": 7{more}}}"#
    );
    Config::from_json("config.json", &text).unwrap()
}

fn second(n_layers: usize, more: &str) -> Decoder {
    describe(&config(n_layers, &format!(r#", "model_type": "gemma2"{more}"#))).unwrap()
}

fn third(n_layers: usize, more: &str) -> Decoder {
    describe(&config(n_layers, &format!(r#", "model_type": "gemma3_text"{more}"#))).unwrap()
}

/// Whether each layer slides, the base of its rope, and how much that is stretched.
fn ropes(mut decoder: Decoder) -> Vec<(bool, f32, f32)> {
    let stretch = |scaling: &RopeScaling| match scaling {
        RopeScaling::Default => 1.0,
        RopeScaling::Linear { factor } => *factor,
        other => panic!("{other:?}"),
    };
    let of = |a: &mut kinfolk::decoder::Attention| {
        let rope = a.rope.as_ref().unwrap();
        (a.mask != Mask::Causal, rope.theta, stretch(&rope.scaling))
    };
    decoder.attentions_mut().map(of).collect()
}

#[test]
fn sliding_layers_of_gemma_3_have_a_rope_of_their_own_in_either_spelling() {
    let expected = [(true, 1e4, 1.0), (false, 1e6, 8.0)];
    let old = r#", "sliding_window_pattern": 2, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}"#;
    assert_eq!(ropes(third(2, old)), expected);
    let new = r#", "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}"#;
    assert_eq!(ropes(third(2, new)), expected);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../registry-tests/fixtures/gemma3_text/model.gguf");
    let of_gguf = ropes(describe(Source::open(path).unwrap().config()).unwrap());
    assert!(of_gguf.iter().all(|(slides, theta, stretch)| !slides || (*theta, *stretch) == (1e4, 1.0)), "{of_gguf:?}");
    assert!(of_gguf.iter().any(|(slides, ..)| *slides));
}

#[test]
fn every_sixth_layer_of_gemma_3_and_every_second_of_gemma_2_sees_everything() {
    let causal = |mut decoder: Decoder| -> Vec<usize> {
        decoder.attentions_mut().enumerate().filter(|(_, a)| a.mask == Mask::Causal).map(|(i, _)| i).collect()
    };
    assert_eq!(causal(third(13, "")), [5, 11]);
    assert_eq!(causal(second(5, "")), [1, 3]);
    assert_eq!(causal(third(3, r#", "sliding_window_pattern": 0"#)), [0, 1, 2]);
}

#[test]
fn thousands_of_listed_layers_take_no_time_to_describe() {
    let types = vec!["sliding_attention"; 4096];
    let started = std::time::Instant::now();
    third(4096, &format!(r#", "layer_types": {types:?}"#));
    assert!(started.elapsed().as_secs() < 3, "{:?}", started.elapsed());
}

#[test]
fn the_27b_model_scales_its_queries_by_the_stream_and_the_others_by_the_head() {
    let scale = |mut decoder: Decoder| decoder.attentions_mut().next().unwrap().scale;
    // The stream is 8 wide with 2 heads, a head 16.
    for (decoder, width) in [(second(46, ""), 4f32), (second(2, ""), 16.0), (third(62, ""), 4.0), (third(2, ""), 16.0)]
    {
        assert_eq!(scale(decoder), width.powf(-0.5));
    }
    assert_eq!(scale(third(62, r#", "query_pre_attn_scalar": 25"#)), 0.2);
    let error = describe(&config(1, r#", "model_type": "gemma3_text", "query_pre_attn_scalar": 0"#)).unwrap_err();
    assert!(error.to_string().contains("`query_pre_attn_scalar`: expected a number > 0"), "{error}");
}

#[test]
fn caps_are_gemma_2_s_and_a_cap_of_0_is_none() {
    let caps = |final_cap: &str, cap: &str| {
        let keys = format!(r#", "final_logit_softcapping": {final_cap}, "attn_logit_softcapping": {cap}"#);
        let mut decoder = second(1, &keys);
        (decoder.head.softcap, decoder.attentions_mut().next().unwrap().softcap)
    };
    assert_eq!(caps("30.0", "50.0"), (Some(30.0), Some(50.0)));
    assert_eq!(caps("null", "null"), (None, None));
    assert_eq!(caps("0.0", "0"), (None, None));
    assert!(describe(&config(1, r#", "model_type": "gemma2", "final_logit_softcapping": -1.0"#)).is_err());
}

#[test]
fn every_generation_scales_embeddings_and_stores_norms_less_one() {
    for model_type in ["gemma", "gemma2", "gemma3_text", "vaultgemma"] {
        let decoder = describe(&config(1, &format!(r#", "model_type": "{model_type}""#))).unwrap();
        assert!(decoder.names.norms_add_one);
        assert_eq!(decoder.embedding.scale, Some(8f32.sqrt()));
        let Wiring::Sequential { post_mixer, .. } = decoder.layers[0].wiring else { panic!("{model_type}") };
        assert_eq!(post_mixer.is_some(), model_type.contains(['2', '3']), "{model_type}");
    }
}
