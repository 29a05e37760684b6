//! Slots find their tensors, and everything wrong is told at once.

use kinfolk_decoder::{
    Activation, BindProblem, Decoder, DecoderError, Ffn, GatedMlp, LoadRole, Moe, Norm, QkRows, SharedExpert, Slot,
    Source, Wiring,
};
use serde_json::json;

use crate::{
    checkpoint::{describe, fixture, source, tensors},
    warnings::during,
};

#[track_caller]
fn problems(decoder: &Decoder, source: &Source) -> Vec<BindProblem> {
    match decoder.bind(source) {
        Err(DecoderError::Tensors { problems, .. }) => problems,
        other => panic!("{other:?}"),
    }
}

/// A description with everything a description can have.
fn full() -> Decoder {
    let mut decoder = describe(json!({ "num_hidden_layers": 2 })).unwrap();
    let norm = Some(Norm::rms(1e-5));
    decoder.attentions_mut().for_each(|a| a.qk_norm = norm);
    let expert = GatedMlp { intermediate_size: 6, activation: Activation::Silu };
    decoder.layers[1].ffn =
        Ffn::Moe(Moe { n_experts: 3, top_k: 2, expert, renormalize: true, shared: Some(SharedExpert { expert }) });
    for layer in &mut decoder.layers {
        layer.wiring = Wiring::Sequential { pre_mixer: norm, post_mixer: norm, pre_ffn: norm, post_ffn: norm };
    }
    decoder
}

#[test]
fn every_slot_has_a_name_to_look_for_in_either_format() {
    let decoder = full();
    let required: Vec<String> = decoder.slots().iter().filter(|s| !s.optional).map(|s| s.slot.to_string()).collect();
    let mut sources = [source(&[]), fixture("llama/model.gguf")];
    // Of the GGUF file only the kind counts: its tensors are another model's.
    for (source, may_be_there) in sources.iter_mut().zip([0, required.len()]) {
        let mut missing = Vec::new();
        for problem in problems(&decoder, source) {
            if let BindProblem::Missing { slot, names } = problem {
                assert!(!names.is_empty() && names.iter().all(|n| !n.contains('{')), "`{slot}`: {names:?}");
                missing.push(slot);
            }
        }
        assert!(missing.len() + may_be_there >= required.len(), "{missing:?}");
        assert!(missing.iter().all(|slot| required.contains(slot)));
    }
    assert!(required.iter().any(|slot| slot == "layers.1.moe.experts.2.down"));
    assert!(required.iter().all(|slot| !slot.contains('{')), "{required:?}");
}

#[test]
fn slots_are_asked_for_once_each() {
    let slots = full().slots();
    let distinct: std::collections::BTreeSet<Slot> = slots.iter().map(|s| s.slot).collect();
    assert_eq!(distinct.len(), slots.len());
}

#[test]
fn everything_wrong_with_a_checkpoint_is_told_at_once() {
    let mut tensors = tensors();
    tensors.retain(|(name, ..)| name != "model.norm.weight");
    for (name, dtype, shape) in &mut tensors {
        match name.as_str() {
            "model.layers.0.self_attn.k_proj.weight" => *shape = vec![8, 4],
            // F8: eight-bit floats without their scales are not the weights.
            "model.layers.0.mlp.up_proj.weight" => *dtype = "F8_E4M3",
            _ => {}
        }
    }
    let source = source(&tensors);
    let decoder = describe(json!({})).unwrap();
    let found = problems(&decoder, &source);
    let [shape, dtype, missing] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        shape,
        &BindProblem::Shape {
            tensor: "model.layers.0.self_attn.k_proj.weight".into(),
            expected: vec![4, 8],
            found: vec![8, 4]
        }
    );
    assert!(matches!(dtype, BindProblem::NotDecodable { tensor, .. } if tensor == "model.layers.0.mlp.up_proj.weight"));
    assert!(
        matches!(missing, BindProblem::Missing { slot, names } if slot == "norm.final" && names[..] == ["model.norm.weight"])
    );
    let text = decoder.bind(&source).unwrap_err().to_string();
    assert!(
        text.starts_with("`tiny.safetensors`: tensor `model.layers.0.self_attn.k_proj.weight`: expected shape [4, 8]")
    );
    for part in ["`model.layers.0.mlp.up_proj.weight`: type F8_E4M3", "`norm.final` is missing"] {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

#[test]
fn an_error_with_many_problems_shows_the_first_and_counts_the_rest() {
    let error = describe(json!({ "num_hidden_layers": 9 })).unwrap().bind(&source(&[])).unwrap_err().to_string();
    assert!(error.ends_with("; and 80 more"), "{error}");
    assert!(error.len() < 1000, "{error}");
}

#[test]
fn the_head_is_tied_where_the_checkpoint_has_none_whatever_the_config_says() {
    // B7, B9.
    for tie in [json!({ "tie_word_embeddings": false }), json!({ "tie_word_embeddings": true }), json!({})] {
        let source = source(&tensors());
        assert!(describe(tie.clone()).unwrap().bind(&source).unwrap().matrix(Slot::model("head")).is_none(), "{tie}");
    }
    for name in ["lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight"] {
        let mut tensors = tensors();
        tensors.push((name.to_owned(), "F32", vec![5, 8]));
        let source = source(&tensors);
        let weights = describe(json!({ "tie_word_embeddings": true })).unwrap();
        let weights = weights.bind(&source).unwrap();
        assert_eq!(weights.matrix(Slot::model("head")).unwrap().row(0)[..4], 11f32.to_le_bytes(), "{name}");
    }
}

#[test]
fn a_head_of_another_shape_is_wrong_and_not_tied() {
    let mut tensors = tensors();
    tensors.push(("lm_head.weight".to_owned(), "F32", vec![4, 8]));
    let found = problems(&describe(json!({})).unwrap(), &source(&tensors));
    assert!(matches!(&found[..], [BindProblem::Shape { tensor, .. }] if tensor == "lm_head.weight"), "{found:?}");
}

#[test]
fn the_body_is_found_under_every_published_prefix() {
    for prefix in ["", "model.", "language_model.model.", "model.language_model.", "language_model."] {
        let mut tensors = tensors();
        for (name, ..) in &mut tensors {
            *name = name.replacen("model.", prefix, 1);
        }
        let source = source(&tensors);
        let decoder = describe(json!({})).unwrap();
        let weights = decoder.bind(&source).unwrap();
        assert_eq!(weights.matrix(Slot::model("embed")).unwrap().n_rows, 5, "`{prefix}`");
        assert_eq!(weights.vector(Slot::model("norm.final")).unwrap().unwrap(), [10.0; 8]);
    }
}

#[test]
fn a_bias_is_there_if_the_checkpoint_has_it() {
    let mut tensors = tensors();
    tensors.push(("model.layers.0.self_attn.q_proj.bias".to_owned(), "F32", vec![8]));
    let source = source(&tensors);
    let decoder = describe(json!({})).unwrap();
    let weights = decoder.bind(&source).unwrap();
    let bias = |pattern| weights.vector(Slot::layer(pattern, 0).bias()).unwrap();
    assert_eq!(bias("layers.{i}.attn.q"), Some(vec![11.0; 8]));
    assert_eq!(bias("layers.{i}.attn.k"), None);
}

#[test]
fn norms_that_add_one_do_so_from_safetensors_alone() {
    let mut decoder = describe(json!({})).unwrap();
    decoder.names = decoder.names.with_norms_add_one();
    let source = source(&tensors());
    let weights = decoder.bind(&source).unwrap();
    assert_eq!(weights.vector(Slot::layer("layers.{i}.norm.pre_mixer", 0)).unwrap().unwrap(), [2.0; 8]);
    assert_eq!(weights.matrix(Slot::layer("layers.{i}.attn.q", 0)).unwrap().row(0)[..4], 2f32.to_le_bytes());
}

/// Compares what `decoder` makes of a fixture's safetensors and of its GGUF.
#[track_caller]
fn same_in_both_formats(fixture_name: &str, adjust: impl Fn(&mut Decoder, &Source)) {
    let [safetensors, gguf] = ["", "/model.gguf"].map(|file| fixture(&format!("{fixture_name}{file}")));
    let [a, b] = [&safetensors, &gguf].map(|source| {
        let mut decoder = Decoder::llama_shaped(source.config(), 10_000.0, Activation::Silu).unwrap();
        adjust(&mut decoder, source);
        decoder
    });
    let (of_a, of_b) = (a.bind(&safetensors).unwrap(), b.bind(&gguf).unwrap());
    assert_eq!(a.slots().len(), b.slots().len());
    let mut n_matrices = 0;
    for SlotOf { slot, is_vector } in a.slots().iter().map(|s| SlotOf { slot: s.slot, is_vector: s.shape.len() == 1 }) {
        if is_vector {
            assert_eq!(of_a.vector(slot).unwrap(), of_b.vector(slot).unwrap(), "`{slot}`");
            continue;
        }
        match (of_a.matrix(slot), of_b.matrix(slot)) {
            (Some(a), Some(b)) => {
                assert_eq!((a.dtype, a.n_rows, a.n_cols), (b.dtype, b.n_rows, b.n_cols), "`{slot}`");
                assert!((0..a.n_rows).all(|r| a.row(r) == b.row(r)), "`{slot}`");
                n_matrices += 1;
            }
            (None, None) => {}
            one => panic!("`{slot}`: {one:?}"),
        }
    }
    assert!(n_matrices > 14, "{n_matrices}");
}

struct SlotOf {
    slot: Slot,
    is_vector: bool,
}

#[test]
fn paired_query_and_key_rows_of_gguf_are_put_back_in_order() {
    same_in_both_formats("llama", |decoder, _| {
        decoder.names = std::mem::take(&mut decoder.names).with_gguf_qk_rows(QkRows::Pairs);
    });
}

#[test]
fn stacked_experts_of_gguf_are_taken_apart() {
    same_in_both_formats("qwen3_moe", |decoder, source| {
        let norm = decoder.final_norm;
        decoder.attentions_mut().for_each(|a| a.qk_norm = Some(norm));
        let moe = Moe::from_config(source.config(), "moe_intermediate_size", Activation::Silu, true).unwrap();
        decoder.set_experts(source.config(), moe).unwrap();
    });
}

#[test]
fn norms_less_one_are_the_same_norms_in_both_formats() {
    same_in_both_formats("gemma", |decoder, _| {
        decoder.names = std::mem::take(&mut decoder.names).with_norms_add_one();
    });
}

#[test]
fn tensors_packed_in_a_layout_of_their_own_are_refused_by_its_name() {
    for (section, layout) in [
        (json!({"quantization_config": {"quant_method": "awq"}}), "`awq`"),
        (json!({"quantization": {"bits": 4, "group_size": 64}}), "`mlx`"),
        (json!({"quantization": {"mode": "mxfp4"}}), "`mlx mxfp4`"),
        (json!({"quantization": {"mode": "affine"}, "quantization_config": {"mode": "affine"}}), "`mlx affine`"),
    ] {
        let decoder = describe(json!({})).unwrap();
        let mut source = source(&tensors());
        source.set_config(kinfolk_decoder::Config::from_json("config.json", &section.to_string()).unwrap());
        let error = decoder.bind(&source).unwrap_err().to_string();
        assert!(error.contains(layout) && error.contains("config.json"), "{error}");
    }
}

#[test]
fn a_projection_of_integers_is_not_taken_for_its_values() {
    let mut tensors = tensors();
    tensors[2].1 = "I8";
    let found = problems(&describe(json!({})).unwrap(), &source(&tensors));
    assert!(matches!(&found[..], [BindProblem::NotDecodable { tensor, .. }] if tensor.contains("q_proj")), "{found:?}");
}

#[test]
fn a_load_for_embeddings_takes_no_notice_of_the_head() {
    let decoder = describe(json!({ "tie_word_embeddings": false })).unwrap();
    let with_head = |dtype, shape| source(&[tensors(), vec![("lm_head.weight".to_owned(), dtype, shape)]].concat());
    let n_tensors = tensors().len();
    for (source, of_text) in [
        (source(&tensors()), n_tensors),
        (with_head("F32", vec![5, 8]), n_tensors + 1),
        (with_head("F32", vec![7, 8]), n_tensors + 1),
        (with_head("F8_E4M3", vec![5, 8]), n_tensors + 1),
    ] {
        let weights = decoder.bind_for(&source, LoadRole::Embedding).unwrap();
        assert!(weights.matrix(Slot::model("head")).is_none());
        assert!(weights.matrix(Slot::model("embed")).is_some());
        let n = |role| decoder.tensors(&source, role).count();
        assert_eq!((n(LoadRole::Text), n(LoadRole::Embedding)), (of_text, n_tensors));
        assert!(decoder.tensors(&source, LoadRole::Embedding).all(|tensor| tensor.name != "lm_head.weight"));
    }
    assert!(decoder.bind(&with_head("F32", vec![7, 8])).is_err(), "text does look at it");
}

#[test]
fn a_head_that_the_config_promises_and_nobody_finds_is_warned_of_where_it_would_be_used() {
    // B7.
    let warnings = |tie: serde_json::Value, tensors: &[_], role| {
        let mut keys = crate::checkpoint::keys();
        keys.as_object_mut().unwrap().extend(tie.as_object().unwrap().clone());
        let mut source = source(tensors);
        source.set_config(kinfolk_decoder::Config::from_json("config.json", &keys.to_string()).unwrap());
        let decoder = describe(tie).unwrap();
        during(|| decoder.bind_for(&source, role).map(drop)).1
    };
    let untied = || json!({ "tie_word_embeddings": false });
    assert_eq!(warnings(untied(), &tensors(), LoadRole::Text), 1);
    assert_eq!(warnings(untied(), &tensors(), LoadRole::Embedding), 0);
    assert_eq!(warnings(json!({}), &tensors(), LoadRole::Text), 0);
    let with_head = [tensors(), vec![("lm_head.weight".to_owned(), "F32", vec![5, 8])]].concat();
    assert_eq!(warnings(untied(), &with_head, LoadRole::Text), 0);
}
