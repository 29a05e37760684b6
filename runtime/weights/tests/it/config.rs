//! The config reader over both kinds of file.

use std::path::Path;

use kinfolk_weights::{Config, ConfigError, ConfigKind, Source};

use crate::gguf_bytes::{GgufBytes, value_type};

fn json(text: &str) -> Config {
    Config::from_json("config.json", text).unwrap()
}

fn gguf(file: GgufBytes) -> Config {
    Source::from_bytes("m.gguf", file.build()).unwrap().config().clone()
}

/// A GGUF file of the architecture `x`.
fn x() -> GgufBytes {
    GgufBytes::new().text("general.architecture", "x")
}

fn message<T: std::fmt::Debug>(result: Result<T, ConfigError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_quantity_is_found_under_each_of_its_names() {
    let spellings = [
        ("num_hidden_layers", "n_layer", "block_count"),
        ("hidden_size", "d_model", "embedding_length"),
        ("num_attention_heads", "n_head", "attention.head_count"),
        ("num_key_value_heads", "n_head_kv", "attention.head_count_kv"),
        ("head_dim", "kv_channels", "attention.key_length"),
        ("intermediate_size", "n_inner", "feed_forward_length"),
        ("max_position_embeddings", "n_positions", "context_length"),
        ("sliding_window", "sliding_window_size", "attention.sliding_window"),
        ("num_local_experts", "n_routed_experts", "expert_count"),
        ("num_experts_per_tok", "moe_topk", "expert_used_count"),
        ("moe_intermediate_size", "expert_intermediate_size", "expert_feed_forward_length"),
        ("shared_expert_intermediate_size", "shared_intermediate_size", "expert_shared_feed_forward_length"),
        ("vocab_size", "padded_vocab_size", "vocab_size"),
        ("rope_dim", "rotary_dim", "rope.dimension_count"),
    ];
    for (canonical, alias, in_gguf) in spellings {
        assert_eq!(json(&format!(r#"{{"{canonical}": 7}}"#)).usize(canonical).unwrap(), 7);
        assert_eq!(json(&format!(r#"{{"{alias}": 7}}"#)).usize(canonical).unwrap(), 7, "{alias}");
        let config = gguf(x().u32(&format!("x.{in_gguf}"), 7));
        assert_eq!(config.usize(canonical).unwrap(), 7, "{in_gguf}");
        assert!(config.has(canonical) && config.kind() == ConfigKind::Gguf);
    }
    let reals = [
        ("rms_norm_eps", "norm_eps", "attention.layer_norm_rms_epsilon"),
        ("layer_norm_eps", "layer_norm_epsilon", "attention.layer_norm_epsilon"),
        ("rope_theta", "rotary_emb_base", "rope.freq_base"),
        ("rope_local_base_freq", "local_rope_theta", "rope.freq_base_swa"),
        ("final_logit_softcapping", "logits_soft_cap", "final_logit_softcapping"),
    ];
    for (canonical, alias, in_gguf) in reals {
        assert_eq!(json(&format!(r#"{{"{alias}": 0.5}}"#)).f32(canonical).unwrap(), 0.5, "{alias}");
        assert_eq!(gguf(x().f32(&format!("x.{in_gguf}"), 0.5)).f32(canonical).unwrap(), 0.5, "{in_gguf}");
    }
}

#[test]
fn names_that_mean_something_else_are_no_aliases() {
    for (asked, other) in [
        ("head_dim", "v_head_dim"),
        ("head_dim", "global_head_dim"),
        ("intermediate_size", "intermediate_size_mlp"),
        ("intermediate_size", "moe_intermediate_size"),
        ("max_position_embeddings", "max_length"),
        ("rms_norm_eps", "layer_norm_eps"),
        ("rope_theta", "rope_local_base_freq"),
    ] {
        assert!(!json(&format!(r#"{{"{other}": 7}}"#)).has(asked), "{asked} from {other}");
    }
}

#[test]
fn a_nested_config_is_asked_before_the_outer_one() {
    for section in ["text_config", "llm_config", "language_config", "lm_config"] {
        let text = format!(
            r#"{{"model_type": "wrapper", "hidden_size": 1, "image_token_id": 5, "architectures": ["Outer"],
                "{section}": {{"model_type": "inner", "hidden_size": 2, "n_layer": 3, "sliding_window": null}},
                "sliding_window": 9}}"#
        );
        let config = json(&text);
        assert_eq!(config.usize("hidden_size").unwrap(), 2);
        assert_eq!(config.usize("num_hidden_layers").unwrap(), 3);
        assert_eq!(config.usize("image_token_id").unwrap(), 5);
        // The nested config has said that there is none.
        assert_eq!(config.opt_usize("sliding_window").unwrap(), None);
        assert_eq!(config.architectures(), ["wrapper", "inner", "Outer"]);
    }
    let omni = json(r#"{"thinker_config": {"text_config": {"hidden_size": 4}}}"#);
    assert_eq!(omni.usize("hidden_size").unwrap(), 4);
}

#[test]
fn errors_name_the_key_as_the_file_spells_it() {
    let nested = json(r#"{"text_config": {"n_layer": "two"}}"#);
    let expected =
        "`config.json`: config key `text_config.n_layer`: expected an integer of at least 0, found the text `two`";
    assert_eq!(message(nested.usize("num_hidden_layers")), expected);
    assert_eq!(message(json("{}").usize("hidden_size")), "`config.json`: config key `hidden_size` is missing");
    assert_eq!(message(gguf(x()).usize("hidden_size")), "`m.gguf`: config key `x.embedding_length` is missing");
    assert_eq!(message(gguf(x()).f32("some_new_key")), "`m.gguf`: config key `x.some_new_key` is missing");
    let mistyped = gguf(x().text("x.embedding_length", "wide"));
    assert!(message(mistyped.usize("hidden_size")).contains("`x.embedding_length`: expected an integer"));
    let error = json(r#"{"hidden_act": "odd"}"#).unsupported("hidden_act", "only silu is known");
    assert_eq!(error.to_string(), "`config.json`: config key `hidden_act`: only silu is known");
    let scaled = json(r#"{"rope_scaling": {"type": "odd"}}"#).section("rope_scaling").unwrap().unwrap();
    assert!(scaled.unsupported("type", "x").to_string().contains("`rope_scaling.type`"));
    assert!(message(scaled.f32("factor")).contains("`rope_scaling.factor` is missing"));
}

#[test]
fn counts_are_whole_numbers_of_any_spelling() {
    for (value, count) in
        [("7", Some(7)), ("7.0", Some(7)), ("1e6", Some(1_000_000)), ("0", Some(0)), ("[7, 7]", Some(7))]
    {
        assert_eq!(json(&format!(r#"{{"k": {value}}}"#)).opt_usize("k").unwrap(), count, "{value}");
    }
    for value in ["-1", "7.5", "1e300", "18446744073709551616", "true", "\"7\"", "[7, 8]", "[]", "{}", "1e17"] {
        let config = json(&format!(r#"{{"k": {value}}}"#));
        assert!(matches!(config.usize("k"), Err(ConfigError::Mistyped { .. })), "{value}");
    }
    assert_eq!(json(r#"{"k": null}"#).opt_usize("k").unwrap(), None);
    assert!(!json(r#"{"k": null}"#).has("k"));
    assert!(matches!(json(r#"{"k": null}"#).usize("k"), Err(ConfigError::Missing { .. })));
}

#[test]
fn numbers_fit_f32_or_are_refused() {
    let config = json(r#"{"int": 3, "real": 0.25, "huge": 1e300, "text": "1"}"#);
    assert_eq!(config.f32("int").unwrap(), 3.0);
    assert_eq!(config.f32("real").unwrap(), 0.25);
    assert!(config.f32("huge").is_err());
    assert!(config.f32("text").is_err());
    assert_eq!(config.opt_f32("absent").unwrap(), None);
}

#[test]
fn infinity_is_read_as_python_writes_it() {
    let config = json(r#"{"time_step_limit": [0.0, {"__float__": "Infinity"}], "x": {"__float__": "-Infinity"}}"#);
    assert_eq!(config.opt_f32s("time_step_limit").unwrap().unwrap(), [0.0, f32::INFINITY]);
    assert_eq!(config.f32("x").unwrap(), f32::NEG_INFINITY);
    let config =
        json(r#"{"limit": [0.0, Infinity], "low": -Infinity, "none": NaN, "text": "Infinity \" NaN", "last": 1}"#);
    assert_eq!(config.opt_f32s("limit").unwrap().unwrap(), [0.0, f32::INFINITY]);
    assert_eq!(config.f32("low").unwrap(), f32::NEG_INFINITY);
    assert!(config.f32("none").unwrap().is_nan());
    assert_eq!(config.opt_str("text").unwrap(), Some("Infinity \" NaN"));
    assert_eq!(config.usize("last").unwrap(), 1);
}

#[test]
fn text_that_is_no_json_object_is_refused() {
    for text in ["", "[]", "7", "{", "{\"a\": }", "\u{feff}", "{\"a\": Infinit}", &"[".repeat(100_000)] {
        let error = Config::from_json("config.json", text).unwrap_err().to_string();
        assert!(error.contains("expected a JSON object") && !error.contains('\n'), "{error}");
    }
    assert!(Config::from_json("config.json", "\u{feff}{}").is_ok());
}

#[test]
fn lists_and_switches_are_typed() {
    let config = json(
        r#"{"kinds": ["full", "sliding"], "counts": [1, 2], "one": 3, "reals": [1, 2.5], "on": true,
            "mixed": ["a", 1], "holes": [1, null], "switches": [true, false]}"#,
    );
    assert_eq!(config.opt_strs("kinds").unwrap().unwrap(), ["full", "sliding"]);
    assert_eq!(config.opt_usizes("counts").unwrap().unwrap(), [1, 2]);
    assert_eq!(config.opt_usizes("one").unwrap().unwrap(), [3]);
    assert_eq!(config.opt_f32s("reals").unwrap().unwrap(), [1.0, 2.5]);
    assert_eq!(config.opt_bool("on").unwrap(), Some(true));
    assert_eq!(config.opt_bools("switches").unwrap().unwrap(), [true, false]);
    assert_eq!(config.opt_bools("on").unwrap().unwrap(), [true]);
    assert!(config.opt_strs("mixed").is_err());
    assert!(config.opt_usizes("mixed").is_err());
    assert!(config.opt_usizes("holes").is_err());
    assert!(config.opt_bool("one").is_err());
    assert!(config.opt_str("one").is_err());
    assert!(config.opt_strs("absent").unwrap().is_none());
}

#[test]
fn a_value_per_layer_is_a_list_of_that_length_or_a_scalar() {
    let heads: Vec<u8> = [4u32, 2, 4].into_iter().flat_map(u32::to_le_bytes).collect();
    let listed = gguf(x().array("x.attention.head_count_kv", value_type::U32, 3, &heads));
    for config in [json(r#"{"num_key_value_heads": [4, 2, 4]}"#), listed] {
        assert_eq!(config.layer_usize("num_key_value_heads", 1, 3).unwrap(), 2);
        assert!(message(config.layer_usize("num_key_value_heads", 1, 4)).contains("a list of 3"));
        assert!(config.usize("num_key_value_heads").is_err());
    }
    assert_eq!(json(r#"{"num_key_value_heads": 4}"#).layer_usize("num_key_value_heads", 1, 3).unwrap(), 4);
    assert!(message(json("{}").layer_usize("num_key_value_heads", 0, 3)).contains("missing"));
}

#[test]
fn sections_are_configs_of_their_own() {
    let config = json(
        r#"{"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4}, "sliding_attention": null},
            "quantization_config": {"bits": 4, "n_layer": 1}, "odd": 3, "none": null}"#,
    );
    let rope = config.section("rope_parameters").unwrap().unwrap();
    let full = rope.section("full_attention").unwrap().unwrap();
    assert_eq!(full.opt_str("type").unwrap(), Some("yarn"));
    assert!(message(full.f32("beta_fast")).contains("`rope_parameters.full_attention.beta_fast`"));
    assert!(rope.section("sliding_attention").unwrap().is_none());
    let quantization = config.section("quantization_config").unwrap().unwrap();
    assert_eq!(quantization.usize("bits").unwrap(), 4);
    // Aliases are those of a model, not of any object.
    assert!(!quantization.has("num_hidden_layers"));
    assert!(config.section("none").unwrap().is_none() && config.section("absent").unwrap().is_none());
    assert!(message(config.section("odd").map(|_| ())).contains("`odd`: expected an object, found the number 3"));
}

#[test]
fn gguf_rope_scaling_reads_like_a_section() {
    let config = gguf(
        x().text("x.rope.scaling.type", "yarn")
            .f32("x.rope.scaling.factor", 4.0)
            .u32("x.rope.scaling.original_context_length", 32)
            .f32("x.rope.scaling.attn_factor", 1.5)
            .f32("x.rope.scaling.yarn_beta_fast", 16.0)
            .f32("x.rope.scaling.yarn_beta_slow", 2.0)
            .f32("x.rope.scaling.yarn_log_multiplier", 0.1)
            .f32("x.rope.freq_base", 1e6)
            .f32("x.attention.temperature_scale", 0.5),
    );
    for name in ["rope_scaling", "rope_parameters"] {
        let rope = config.section(name).unwrap().unwrap();
        assert_eq!(rope.opt_str("type").unwrap(), Some("yarn"));
        assert_eq!(rope.opt_str("rope_type").unwrap(), Some("yarn"));
        assert_eq!(rope.usize("original_max_position_embeddings").unwrap(), 32);
        let reals = [
            ("factor", 4.0),
            ("attention_factor", 1.5),
            ("beta_fast", 16.0),
            ("beta_slow", 2.0),
            ("yarn_log_multiplier", 0.1),
            ("rope_theta", 1e6),
            ("llama_4_scaling_beta", 0.5),
        ];
        for (key, value) in reals {
            assert_eq!(rope.f32(key).unwrap(), value, "{key}");
        }
        assert_eq!(message(rope.f32("truncate")), "`m.gguf`: config key `x.rope.scaling.truncate` is missing");
    }
    assert!(gguf(x()).section("rope_scaling").unwrap().is_none());
    assert!(gguf(x().text("x.rope.scaling.type", "none")).section("rope_scaling").unwrap().is_none());
    assert!(gguf(x().f32("x.rope.scaling.factor", 2.0)).section("rope_scaling").unwrap().is_some());
    assert!(gguf(x()).section("quantization_config").unwrap().is_none());
}

#[test]
fn gguf_names_outside_the_architecture_are_found() {
    let config = gguf(
        x().texts("tokenizer.ggml.tokens", &["a", "b", "c"]).u32("tokenizer.ggml.eos_token_id", 2).u32("x.odd_key", 5),
    );
    assert_eq!(config.usize("vocab_size").unwrap(), 3);
    assert!(config.has("vocab_size"));
    assert_eq!(config.opt_usizes("eos_token_id").unwrap().unwrap(), [2]);
    assert_eq!(config.usize("odd_key").unwrap(), 5);
    assert_eq!(gguf(x().texts("tokenizer.ggml.tokens", &["a"]).u32("x.vocab_size", 9)).usize("vocab_size").unwrap(), 9);
}

#[test]
fn keys_and_values_of_one_head_must_be_as_long() {
    let of = |keys, values| gguf(x().u32("x.attention.key_length", keys).u32("x.attention.value_length", values));
    assert_eq!(of(8, 8).usize("head_dim").unwrap(), 8);
    let error = message(of(8, 6).usize("head_dim"));
    assert!(error.contains("`x.attention.value_length`") && error.contains("found 6"), "{error}");
    assert_eq!(of(8, 6).usize("v_head_dim").unwrap(), 6);
}

#[test]
fn the_same_model_in_both_formats_answers_alike() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for (folder, n_experts) in [("llama-yarn", None), ("qwen3_moe", Some(4))] {
        let hf = Source::open(data.join(folder).join("model.safetensors")).unwrap();
        let gguf = Source::open(data.join(folder).join("model.gguf")).unwrap();
        let configs = [hf.config(), gguf.config()];
        for key in [
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
            "max_position_embeddings",
            "vocab_size",
            "bos_token_id",
            "eos_token_id",
        ] {
            let [a, b] = configs.map(|config| config.usize(key).unwrap());
            assert_eq!(a, b, "{folder}: {key}");
        }
        for key in ["rms_norm_eps", "rope_theta"] {
            let [a, b] = configs.map(|config| config.f32(key).unwrap());
            assert_eq!(a, b, "{folder}: {key}");
        }
        assert_eq!(configs.map(|config| config.opt_usize("num_local_experts").unwrap()), [n_experts; 2]);
        let embedding = ["model.embed_tokens.weight", "token_embd.weight"];
        let [a, b] = [hf.tensor(embedding[0]).unwrap(), gguf.tensor(embedding[1]).unwrap()];
        assert_eq!(a.info.shape, b.info.shape);
        assert_eq!(a.to_f32().unwrap(), b.to_f32().unwrap());
    }
    let yarn = Source::open(data.join("llama-yarn/model.gguf")).unwrap();
    let rope = yarn.config().section("rope_parameters").unwrap().unwrap();
    assert_eq!((rope.opt_str("rope_type").unwrap(), rope.f32("factor").unwrap()), (Some("yarn"), 4.0));
}
