//! Every spelling of a rope, and numbers that give none.

use kinfolk_decoder::{ConfigError, Rope, RopeScaling};
use serde_json::{Value, json};

use crate::checkpoint::{config, gguf};

fn read(changes: Value, layer_type: &str) -> Result<Rope, ConfigError> {
    Rope::from_config(&config(changes), 4, layer_type, 10_000.0)
}

#[track_caller]
fn full(changes: Value) -> Rope {
    read(changes, "full_attention").unwrap()
}

#[test]
fn a_config_without_a_rope_gets_the_family_s_base_and_no_scaling() {
    let rope = full(json!({}));
    assert_eq!((rope.theta, rope.dims, rope.scaling), (10_000.0, 4, RopeScaling::Default));
}

#[test]
fn no_scaling_has_many_spellings() {
    // B19 first.
    let spellings = [
        json!({ "rope_type": "default" }),
        json!({ "type": "default" }),
        json!({ "rope_type": "none" }),
        json!({ "rope_theta": 500.0 }),
        json!({}),
        json!(null),
    ];
    for section in spellings {
        for key in ["rope_scaling", "rope_parameters"] {
            assert_eq!(full(json!({ key: section })).scaling, RopeScaling::Default, "{key}: {section}");
        }
    }
}

#[test]
fn old_and_new_spellings_mean_the_same() {
    let linear = RopeScaling::Linear { factor: 4.0 };
    let spellings = [
        json!({ "rope_theta": 500.0, "rope_scaling": { "type": "linear", "factor": 4.0 } }),
        json!({ "rope_theta": 500, "rope_scaling": { "rope_type": "linear", "factor": 4 } }),
        json!({ "rope_parameters": { "rope_type": "linear", "factor": 4.0, "rope_theta": 500.0 } }),
        json!({ "rope_theta": 500.0, "rope_parameters": { "rope_type": "linear", "factor": 4.0 } }),
        json!({ "rope_parameters": { "full_attention": { "rope_type": "linear", "factor": 4.0, "rope_theta": 500.0 } } }),
        // Published with both: the new one holds.
        json!({
            "rope_parameters": { "rope_type": "linear", "factor": 4.0, "rope_theta": 500.0 },
            "rope_scaling": { "type": "dynamic", "factor": 2.0 }, "rope_theta": 7.0,
        }),
    ];
    for spelling in spellings {
        let rope = full(spelling.clone());
        assert_eq!((rope.theta, &rope.scaling), (500.0, &linear), "{spelling}");
    }
}

#[test]
fn each_kind_of_layer_may_have_a_rope_of_its_own() {
    let ropes = json!({ "rope_parameters": {
        "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
    } });
    let full = read(ropes.clone(), "full_attention").unwrap();
    assert_eq!((full.theta, full.scaling), (1e6, RopeScaling::Linear { factor: 8.0 }));
    let sliding = read(ropes, "sliding_attention").unwrap();
    assert_eq!((sliding.theta, sliding.scaling), (1e4, RopeScaling::Default));
}

#[test]
fn longrope_is_also_called_su_and_takes_its_original_context_from_either_place() {
    let factors = json!([1.0, 2.0]);
    let expected = |attention_factor| RopeScaling::LongRope {
        short: vec![1.0, 2.0],
        long: vec![1.0, 2.0],
        original: 8,
        attention_factor,
    };
    let derived = (1.0 + (32f32 / 8.0).ln() / 8f32.ln()).sqrt();
    for kind in ["su", "longrope"] {
        let outside = json!({
            "original_max_position_embeddings": 8,
            "rope_scaling": { "type": kind, "short_factor": factors, "long_factor": factors },
        });
        assert_eq!(full(outside).scaling, expected(derived), "{kind}");
        let inside = json!({ "rope_scaling": {
            "rope_type": kind, "short_factor": factors, "long_factor": factors, "original_max_position_embeddings": 8,
            "attention_factor": 1.25,
        } });
        assert_eq!(full(inside).scaling, expected(1.25), "{kind}");
    }
}

#[test]
fn yarn_scales_its_vectors_by_what_the_config_gives() {
    let factor_of = |extra: Value| {
        let mut section = json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8 });
        section.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        full(json!({ "rope_scaling": section })).frequencies(1, 32).attention_factor
    };
    let m = |mscale: f32| 0.1 * mscale * 4f32.ln() + 1.0;
    let cases = [
        (json!({}), m(1.0)),
        (json!({ "attention_factor": 1.5 }), 1.5),
        (json!({ "mscale": 1.0, "mscale_all_dim": 1.0 }), 1.0),
        (json!({ "mscale": 0.7, "mscale_all_dim": 0.3 }), m(0.7) / m(0.3)),
        // One of the two alone says nothing, and neither does 0.
        (json!({ "mscale": 0.7 }), m(1.0)),
        (json!({ "mscale": 0.7, "mscale_all_dim": 0.0 }), m(1.0)),
    ];
    for (extra, expected) in cases {
        let found = factor_of(extra.clone());
        assert!((found - expected).abs() < 1e-6, "{extra}: {found} for {expected}");
    }
}

#[test]
fn gguf_files_give_yarn_one_mscale_of_two() {
    let factor_of = |multiplier: Option<f32>| {
        let texts = [("tiny.rope.scaling.type", "yarn")];
        let mut numbers = vec![
            ("tiny.rope.freq_base", 1e4),
            ("tiny.rope.scaling.factor", 4.0),
            ("tiny.rope.scaling.original_context_length", 8.0),
            ("tiny.rope.dimension_count", 4.0),
        ];
        numbers.extend(multiplier.map(|m| ("tiny.rope.scaling.yarn_log_multiplier", m)));
        let source = gguf(&texts, &numbers);
        let rope = Rope::from_config(source.config(), 4, "full_attention", 1.0).unwrap();
        rope.frequencies(1, 32).attention_factor
    };
    let m = |mscale: f32| 0.1 * mscale * 4f32.ln() + 1.0;
    // 1 is what Ministral 3 has: no scaling of the vectors at all.
    for (multiplier, expected) in [(Some(1.0), 1.0), (Some(0.5), m(1.0) / m(0.5)), (Some(0.0), m(1.0)), (None, m(1.0))]
    {
        let found = factor_of(multiplier);
        assert!((found - expected).abs() < 1e-6, "{multiplier:?}: {found} for {expected}");
    }
}

#[test]
fn gguf_numbers_that_are_none_give_no_rope() {
    let numbers = |theta: f32, factor: f32| {
        [
            ("tiny.rope.freq_base", theta),
            ("tiny.rope.scaling.factor", factor),
            ("tiny.rope.dimension_count", 4.0),
            ("tiny.context_length", 32.0),
        ]
    };
    for kind in ["linear", "yarn", "dynamic"] {
        for (theta, factor) in [(f32::NAN, 2.0), (f32::INFINITY, 2.0), (1e4, f32::NAN), (1e4, f32::INFINITY)] {
            let source = gguf(&[("tiny.rope.scaling.type", kind)], &numbers(theta, factor));
            let rope = Rope::from_config(source.config(), 4, "full_attention", 1.0);
            assert!(rope.is_err(), "{kind}, {theta}, {factor}: {rope:?}");
        }
        let source = gguf(&[("tiny.rope.scaling.type", kind)], &numbers(1e4, 2.0));
        assert!(Rope::from_config(source.config(), 4, "full_attention", 1.0).is_ok(), "{kind}");
    }
}

#[test]
fn part_of_a_head_rotates_by_fraction_or_count() {
    assert_eq!(full(json!({ "partial_rotary_factor": 0.5 })).dims, 2);
    assert_eq!(full(json!({ "rope_parameters": { "partial_rotary_factor": 0.5 } })).dims, 2);
    assert_eq!(full(json!({ "rotary_dim": 2 })).dims, 2);
    for senseless in [0.0, 0.3, 1.5, -1.0, 1e30] {
        assert!(read(json!({ "partial_rotary_factor": senseless }), "full_attention").is_err(), "{senseless}");
    }
}

#[test]
fn a_scaling_that_is_not_known_is_refused_by_name() {
    let error = read(json!({ "rope_scaling": { "type": "mrope" } }), "full_attention").unwrap_err().to_string();
    assert!(error.contains("`rope_scaling.") && error.ends_with("found `mrope`"), "{error}");
}

#[test]
fn numbers_that_give_no_frequencies_are_refused() {
    let factors = json!([1.0, 2.0]);
    let section = |section: Value| json!({ "rope_scaling": section });
    let bad = [
        json!({ "rope_theta": 0.0 }),
        json!({ "rope_theta": -1.0 }),
        section(json!({ "type": "linear" })),
        section(json!({ "type": "linear", "factor": 0.0 })),
        section(json!({ "type": "linear", "factor": -2.0 })),
        section(json!({ "type": "linear", "factor": "4" })),
        section(json!({ "type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 0 })),
        // The ramp divides by the logarithm of the base.
        json!({ "rope_theta": 1.0, "rope_scaling": { "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256 } }),
        section(json!({ "type": "yarn", "factor": 4.0, "beta_fast": -1.0 })),
        section(json!({ "type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": -7.213475204444817 })),
        section(json!({ "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0 })),
        section(json!({ "type": "longrope", "short_factor": factors })),
        section(json!({ "type": "longrope", "short_factor": factors, "long_factor": [1.0] })),
        section(json!({ "type": "longrope", "short_factor": factors, "long_factor": [1.0, 0.0] })),
        section(
            json!({ "type": "longrope", "short_factor": factors, "long_factor": factors, "original_max_position_embeddings": 1 }),
        ),
    ];
    for changes in bad {
        let result = read(changes.clone(), "full_attention");
        assert!(result.is_err(), "{changes}: {:?}", result.map(|rope| rope.frequencies(0, 32)));
    }
}

#[test]
fn every_rope_that_is_read_has_finite_frequencies_at_any_length() {
    let original = |kind: &str, factor: f32| {
        json!({
            "type": kind, "factor": factor, "original_max_position_embeddings": 8, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0],
        })
    };
    let mut n = 0;
    for kind in ["default", "linear", "dynamic", "yarn", "llama3", "longrope"] {
        for factor in [f32::MIN_POSITIVE, 0.5, 1.0, 8.0, f32::MAX] {
            for theta in [1e-30f32, 0.5, 1.0, 1.000_001, 1e4, f32::MAX] {
                for fraction in [0.5, 1.0] {
                    let changes = json!({ "rope_theta": theta, "rope_scaling": original(kind, factor), "partial_rotary_factor": fraction });
                    let Ok(rope) = read(changes, "full_attention") else { continue };
                    n += 1;
                    for (len, context) in [(0, 1), (8, 32), (9, 32), (usize::MAX, usize::MAX)] {
                        let found = rope.frequencies(len, context);
                        let finite = found.inv_freq.iter().chain([&found.attention_factor]).all(|f| f.is_finite());
                        assert!(finite, "{rope:?} at {len} of {context}: {found:?}");
                    }
                }
            }
        }
    }
    assert!(n > 200, "{n} ropes were read");
}
