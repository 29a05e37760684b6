//! Numbers of configs that make no sense, and descriptions of those that do.

use std::time::{Duration, Instant};

use kinfolk_decoder::{Activation, Config, ConfigError, Decoder, DecoderError, Ffn, Mask, Mixer, Moe};
use serde_json::{Value, json};

use crate::checkpoint::{config, describe};

/// The key and reason of a refusal.
#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, DecoderError>) -> (String, String) {
    match result {
        Err(DecoderError::Config(ConfigError::Unsupported { key, reason, .. })) => (key, reason),
        Err(DecoderError::Config(ConfigError::Missing { key, .. })) => (key, "missing".to_owned()),
        Err(DecoderError::Config(ConfigError::Mistyped { key, expected, .. })) => (key, expected.to_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn senseless_sizes_are_refused_by_the_name_of_their_key() {
    let huge = [json!(0), json!(u64::MAX), json!(1u64 << 40), json!(-1), json!(1.5), json!("7"), json!([])];
    let keys =
        ["num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "intermediate_size", "vocab_size"];
    for key in keys {
        for value in &huge {
            let (found, _) = refusal(describe(json!({ key: value })));
            assert_eq!(found, key, "{value}");
        }
    }
    for value in [json!(0), json!(3), json!(u64::MAX)] {
        assert_eq!(refusal(describe(json!({ "num_key_value_heads": value }))).0, "num_key_value_heads");
    }
    assert_eq!(refusal(describe(json!({ "max_position_embeddings": 0 }))).0, "max_position_embeddings");
    for value in [json!(-1e-5), json!(1e300), json!("small")] {
        assert_eq!(refusal(describe(json!({ "rms_norm_eps": value }))).0, "rms_norm_eps", "{value}");
    }
    for key in ["num_hidden_layers", "hidden_size", "vocab_size", "rms_norm_eps", "max_position_embeddings"] {
        assert_eq!(refusal(describe(json!({ key: null }))), (key.to_owned(), "missing".to_owned()));
    }
}

#[test]
fn odd_heads_do_not_rotate() {
    for head_dim in [1, 3, 127] {
        let (_, reason) = refusal(describe(json!({ "head_dim": head_dim })));
        assert!(reason.contains("even number of rotated dimensions"), "{reason}");
    }
    // Part of an odd head may.
    assert!(describe(json!({ "head_dim": 5, "partial_rotary_factor": 0.5 })).is_ok());
}

#[test]
fn the_widest_numbers_that_pass_overflow_nothing() {
    let decoder = describe(json!({
        "hidden_size": 1 << 24, "vocab_size": 1 << 24, "intermediate_size": 1 << 24, "num_attention_heads": 1 << 11,
        "num_key_value_heads": 1 << 11, "head_dim": 1 << 13, "max_position_embeddings": u64::MAX, "num_hidden_layers": 4,
    }));
    let decoder = decoder.unwrap();
    assert!(decoder.slots().iter().all(|s| s.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).is_some()));
    for len in [0, 1, usize::MAX / 2, usize::MAX] {
        assert!(decoder.cache_elements(len) >= len);
    }
    assert_eq!(decoder.cache_elements(usize::MAX), usize::MAX);
    assert_eq!(
        refusal(describe(json!({ "num_attention_heads": 1 << 12, "head_dim": 1 << 13 }))).0,
        "num_attention_heads"
    );
}

#[test]
fn a_cache_holds_keys_and_values_of_what_each_layer_sees() {
    let mut decoder = describe(json!({ "num_hidden_layers": 2 })).unwrap();
    decoder.attentions_mut().next().unwrap().mask = Mask::Window(10);
    // Keys and values of 1 head of 4: 8 elements a token.
    assert_eq!(decoder.cache_elements(32), 8 * 10 + 8 * 32);
    assert_eq!(decoder.cache_elements(7), 8 * 7 * 2);
}

#[test]
fn a_config_of_endless_experts_is_refused_before_they_are_counted() {
    let started = Instant::now();
    let experts = |n_layers: usize, n_experts: usize| {
        let config = config(json!({
            "num_hidden_layers": n_layers, "num_local_experts": n_experts, "num_experts_per_tok": 2,
            "moe_intermediate_size": 4,
        }));
        let mut decoder = Decoder::llama_shaped(&config, 1e4, Activation::Silu).unwrap();
        let moe = Moe::from_config(&config, "moe_intermediate_size", Activation::Silu, true)?;
        decoder.set_experts(&config, moe)?;
        Ok(decoder)
    };
    for (n_layers, n_experts) in [(4096, 1 << 20), (4096, 33), (1, 1 << 24)] {
        assert_eq!(refusal(experts(n_layers, n_experts)).0, "num_local_experts");
    }
    // The largest published: 61 layers of 384.
    let largest = experts(61, 384).unwrap();
    assert_eq!(largest.slots().len(), 3 + 61 * (10 + 1 + 384 * 6) + 1);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn experts_stand_in_the_layers_the_config_says() {
    let sparse = |changes: Value| -> Vec<usize> {
        let mut keys =
            json!({ "num_hidden_layers": 6, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4 });
        keys.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let config = config(keys);
        let mut decoder = Decoder::llama_shaped(&config, 1e4, Activation::Silu).unwrap();
        let moe = Moe::from_config(&config, "moe_intermediate_size", Activation::Silu, true).unwrap();
        decoder.set_experts(&config, moe).unwrap();
        (0..6).filter(|i| matches!(decoder.layers[*i].ffn, Ffn::Moe(_))).collect()
    };
    assert_eq!(sparse(json!({})), [0, 1, 2, 3, 4, 5]);
    assert_eq!(sparse(json!({ "decoder_sparse_step": 2 })), [1, 3, 5]);
    assert_eq!(sparse(json!({ "mlp_only_layers": [0, 5, 99] })), [1, 2, 3, 4]);
    assert_eq!(sparse(json!({ "decoder_sparse_step": 0 })), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn endless_lists_take_no_longer_than_to_read_them() {
    let listed = vec![1; 1 << 18];
    let config = config(json!({
        "num_hidden_layers": 4096, "num_local_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 4,
        "mlp_only_layers": listed,
    }));
    let mut decoder = Decoder::llama_shaped(&config, 1e4, Activation::Silu).unwrap();
    let moe = Moe::from_config(&config, "moe_intermediate_size", Activation::Silu, true).unwrap();
    let started = Instant::now();
    decoder.set_experts(&config, moe).unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn any_value_under_any_key_describes_or_refuses() {
    let keys = [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_theta",
        "partial_rotary_factor",
        "rope_scaling",
        "rope_parameters",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
        "num_local_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "decoder_sparse_step",
        "mlp_only_layers",
        "hidden_act",
        "text_config",
        "rotary_dim",
        "original_max_position_embeddings",
    ];
    let scaling = |kind: &str, n: Value| {
        json!({ "rope_type": kind, "factor": n, "short_factor": [n], "long_factor": [n], "low_freq_factor": n,
            "high_freq_factor": n, "beta_fast": n, "beta_slow": n, "original_max_position_embeddings": n })
    };
    let mut values =
        vec![json!(null), json!(true), json!(""), json!([]), json!({}), json!([1, 2]), json!(["sliding_attention"])];
    let numbers = [
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(0.5),
        json!(1e-40),
        json!(1e30),
        json!(u64::MAX),
        json!(1u64 << 24),
    ];
    values.extend(numbers.iter().cloned());
    for kind in ["linear", "dynamic", "yarn", "llama3", "longrope"] {
        values.extend(numbers.iter().map(|n| scaling(kind, n.clone())));
    }
    let mut n_described = 0;
    let mut check = |changes: Value| {
        let config = config(changes);
        let Ok(mut decoder) = Decoder::llama_shaped(&config, 1e4, Activation::Silu) else { return };
        let _ = decoder.slide_from_max_window_layers(&config);
        if let Ok(moe) = Moe::from_config(&config, "moe_intermediate_size", Activation::Silu, true) {
            let _ = decoder.set_experts(&config, moe);
        }
        decoder.slots();
        decoder.cache_elements(usize::MAX);
        for rope in decoder.attentions_mut().filter_map(|a| a.rope.clone()) {
            assert!(rope.frequencies(usize::MAX, usize::MAX).inv_freq.iter().all(|f| f.is_finite()), "{rope:?}");
        }
        n_described += 1;
    };
    for a in keys {
        for value in &values {
            check(json!({ a: value }));
            for b in keys {
                // One more key that is out of the ordinary.
                check(json!({ a: value, b: u64::MAX }));
            }
        }
    }
    assert!(n_described > 1000, "{n_described}");
}

#[test]
fn more_experts_per_token_than_there_are_is_refused() {
    for (n, per_token) in [(4, 5), (4, 0), (0, 1)] {
        let config =
            config(json!({ "num_local_experts": n, "num_experts_per_tok": per_token, "moe_intermediate_size": 4 }));
        let (key, _) = refusal(Moe::from_config(&config, "moe_intermediate_size", Activation::Silu, true));
        assert_eq!(key, if n == 0 { "num_local_experts" } else { "num_experts_per_tok" });
    }
}

#[test]
fn layer_types_are_one_per_layer_of_kinds_that_are_known() {
    let masks = |changes: Value| -> Result<Vec<Mask>, DecoderError> {
        let decoder = describe(changes)?;
        let mask = |layer: &kinfolk_decoder::Layer| match &layer.mixer {
            Mixer::Attention(a) => a.mask,
            other => panic!("{other:?}"),
        };
        Ok(decoder.layers.iter().map(mask).collect())
    };
    let types = json!(["sliding_attention", "full_attention"]);
    let two = json!({ "num_hidden_layers": 2, "layer_types": types, "sliding_window": 7 });
    assert_eq!(masks(two).unwrap(), [Mask::Window(7), Mask::Causal]);
    assert_eq!(refusal(masks(json!({ "layer_types": types }))).0, "layer_types");
    assert_eq!(refusal(masks(json!({ "layer_types": ["linear_attention"] }))).0, "layer_types");
    let nothing = json!({ "layer_types": ["sliding_attention"], "sliding_window": 0 });
    assert_eq!(refusal(masks(nothing)).0, "sliding_window");
    // A window alone does not say which layers slide: families do.
    assert_eq!(masks(json!({ "sliding_window": 7 })).unwrap(), [Mask::Causal]);
}

#[test]
fn an_activation_that_is_not_known_is_refused_by_name() {
    let activation = |name: Value| Activation::from_config(&config(json!({ "hidden_act": name })));
    assert_eq!(activation(json!("swish")).unwrap(), Activation::Silu);
    assert_eq!(activation(json!("gelu_new")).unwrap(), Activation::GeluTanh);
    assert_eq!(activation(json!(null)).unwrap(), Activation::Silu);
    let (key, reason) = refusal(activation(json!("relu2")).map_err(DecoderError::from));
    assert_eq!(key, "hidden_act");
    assert!(reason.ends_with("found `relu2`"), "{reason}");
}

#[test]
fn a_config_nested_for_a_multimodal_wrapper_describes_the_same() {
    let nested = json!({ "model_type": "wrapper", "hidden_size": 99, "text_config": crate::checkpoint::keys() });
    let nested = Config::from_json("config.json", &nested.to_string()).unwrap();
    let nested = Decoder::llama_shaped(&nested, 10_000.0, Activation::Silu).unwrap();
    assert_eq!(nested, describe(json!({})).unwrap());
}
