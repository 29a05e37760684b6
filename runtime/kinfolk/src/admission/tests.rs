use kinfolk_decoder::{LoadRole, Source};
use kinfolk_weights::{Dtype, OpenOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{AdmissionOptions, Assessment, Basis, Listing, Model, Refused, TooLarge, Verdict, examine};
use crate::{
    Registry,
    fixture::{FAMILY, LLAMA, QUANTISED, WINDOWED, path, source},
};

fn options(choose: impl FnOnce(&mut AdmissionOptions)) -> AdmissionOptions {
    let mut options = AdmissionOptions::default();
    choose(&mut options);
    options
}

fn found<'a>(model: impl Into<Model<'a>>, choose: impl FnOnce(&mut AdmissionOptions)) -> Result<Assessment, Refused> {
    examine(&Registry::of([FAMILY]), model, &options(choose))
}

#[track_caller]
fn assessed<'a>(model: impl Into<Model<'a>>, choose: impl FnOnce(&mut AdmissionOptions)) -> Assessment {
    found(model, choose).unwrap()
}

#[track_caller]
fn too_large<'a>(model: impl Into<Model<'a>>, choose: impl FnOnce(&mut AdmissionOptions)) -> TooLarge {
    match assessed(model, choose).admit() {
        Err(Refused::TooLarge(too_large)) => *too_large,
        other => panic!("{other:?}"),
    }
}

fn config(file: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path(file).join("config.json")).unwrap()).unwrap()
}

/// [`LLAMA`] as it is published where its config has some keys changed, beside files of these sizes.
fn listing(changes: Value, files: &[(&str, u64)]) -> Listing {
    let mut config = config(LLAMA);
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let files = files.iter().map(|&(name, n_bytes)| (name.to_owned(), n_bytes));
    Listing::new("org/llama", files).unwrap().with_config(&config.to_string()).unwrap()
}

/// A model whose rows fill the blocks of every scheme, so that what is stored in one takes what the scheme says.
fn wide() -> Value {
    json!({ "hidden_size": 512, "head_dim": 128, "intermediate_size": 1024, "num_hidden_layers": 8, "vocab_size": 8192 })
}

const SAFETENSORS: &str = "model.safetensors";

#[test]
fn a_listing_is_assessed_as_the_checkpoint_it_lists() {
    for file in [LLAMA, WINDOWED] {
        let there = assessed(&source(file), |_| {});
        let listed = assessed(&Listing::of_directory(path(file)).unwrap(), |_| {});
        assert_eq!((listed.family, listed.executor, &listed.files), (there.family, there.executor, &there.files));
        assert_eq!((&listed.decoder, listed.n_parameters), (&there.decoder, there.n_parameters));
        assert_eq!(listed.quantisation.schemes, there.quantisation.schemes);
        assert_eq!((there.quantisation.basis, listed.quantisation.basis), (Basis::Tensors, Basis::Config));
        // The file is the tensors and a header.
        let header = listed.memory.weight_bytes - there.memory.weight_bytes;
        assert!(header < 8192, "{file}: {header}");
        assert_eq!(
            (listed.memory.cache_bytes, listed.context_length),
            (there.memory.cache_bytes, there.context_length)
        );
    }
}

#[test]
fn an_index_alone_is_enough_and_tells_what_is_absent() {
    let source = source(LLAMA);
    let shard = "model-00001-of-00001.safetensors";
    let index = |without: &str, with: &str| {
        let names = source.tensors().map(|t| t.name.as_str()).filter(|name| *name != without);
        let map: serde_json::Map<String, Value> = names
            .chain([with].into_iter().filter(|name| !name.is_empty()))
            .map(|name| (name.to_owned(), shard.into()))
            .collect();
        let metadata = json!({ "total_size": 10_000_000 });
        let text = json!({ "metadata": metadata, "weight_map": map }).to_string();
        listing(json!({}), &[]).with_index("model.safetensors.index.json", text)
    };
    let listed = assessed(&index("", ""), |_| {});
    assert_eq!((listed.absent, listed.n_parameters), (vec![shard.to_owned()], assessed(&source, |_| {}).n_parameters));
    // The larger of the two counts where both are of the same tensors.
    assert_eq!(listed.memory.weight_bytes, 10_000_000);
    let with_images = assessed(&index("", "vision_tower.weight"), |_| {});
    assert_eq!(with_images.memory.weight_bytes, assessed(&source, |_| {}).memory.weight_bytes);
    // Nor do images make the text wider than the config says, however large the file.
    let wide_file = index("", "vision_tower.weight").with_config(&{
        let mut config = config(LLAMA);
        config["dtype"] = json!("bfloat16");
        config.to_string()
    });
    let quantisation = assessed(&wide_file.unwrap(), |_| {}).quantisation;
    assert_eq!((quantisation.schemes[0].scheme, quantisation.basis), ("BF16", Basis::Config));
    let tied = assessed(&index("lm_head.weight", ""), |_| {});
    assert_eq!(listed.n_parameters - tied.n_parameters, 320 * 48);
    let refused = found(&index("model.norm.weight", ""), |_| {}).unwrap_err();
    assert!(
        matches!(refused, Refused::Description(_)) && refused.to_string().contains("`model.norm.weight`"),
        "{refused}"
    );
}

#[test]
fn types_are_told_from_the_config_and_from_sizes() {
    let n_parameters = assessed(&source(LLAMA), |_| {}).n_parameters;
    let n_head = 320 * 48;
    for (dtype, n_bytes, scheme, basis, bytes) in [
        (json!("bfloat16"), 0, "BF16", Basis::Config, 2 * n_parameters),
        (json!("torch.float16"), 0, "F16", Basis::Config, 2 * n_parameters),
        (json!("float32"), 2 * n_parameters, "F32", Basis::Config, 4 * n_parameters),
        (json!("bfloat16"), 4 * n_parameters, "F32", Basis::FileSizes, 4 * n_parameters),
        (json!("auto"), 2 * n_parameters, "BF16", Basis::FileSizes, 2 * n_parameters),
        (json!(null), 4 * n_parameters, "F32", Basis::FileSizes, 4 * n_parameters),
        (json!(null), 0, "F32", Basis::Assumed, 4 * n_parameters),
        // A head of its own takes room in the files, whatever the config says.
        (json!("bfloat16"), 2 * (n_parameters - n_head), "BF16", Basis::Config, 2 * (n_parameters - n_head)),
    ] {
        let files: &[(&str, u64)] = if n_bytes > 0 { &[(SAFETENSORS, n_bytes)] } else { &[] };
        let found = assessed(&listing(json!({ "dtype": dtype }), files), |_| {});
        let quantisation = found.quantisation;
        assert_eq!((quantisation.schemes[0].scheme, quantisation.basis), (scheme, basis), "{dtype} {n_bytes}");
        // Norms are f32 in memory.
        let spare = found.memory.weight_bytes.abs_diff(bytes);
        assert!(spare <= 4 * 5 * 48, "{dtype} {n_bytes}: {} of {bytes}", found.memory.weight_bytes);
    }
}

#[test]
fn an_embedding_load_has_the_bits_of_what_it_loads() {
    let untied = |files: &[(&str, u64)]| {
        let mut config = wide();
        (config["dtype"], config["tie_word_embeddings"]) = (json!("bfloat16"), json!(false));
        listing(config, files)
    };
    let n_bytes = 2 * assessed(&untied(&[]), |_| {}).n_parameters;
    let embedding = assessed(&untied(&[(SAFETENSORS, n_bytes)]), |o| o.role = LoadRole::Embedding);
    assert_eq!(embedding.quantisation.bits_per_weight, 16.0);
}

#[test]
fn gguf_files_are_told_by_their_names_and_sizes() {
    let file = source(QUANTISED);
    let there = assessed(&file, |_| {});
    let n_bytes = path(QUANTISED).metadata().unwrap().len();
    let text = std::fs::read_to_string(path("quant-llama/config.json")).unwrap();
    let of = |name: &str, others: &[(&str, u64)], choose: &dyn Fn(&mut AdmissionOptions)| {
        let files = others.iter().copied().chain([(name, n_bytes)]).map(|(name, n)| (name.to_owned(), n));
        assessed(&Listing::new("org/llama", files).unwrap().with_config(&text).unwrap(), choose)
    };
    let listed = of("model-Q4_K_M.gguf", &[], &|_| {});
    assert_eq!((listed.n_parameters, listed.memory.cache_bytes), (there.n_parameters, there.memory.cache_bytes));
    assert_eq!((listed.quantisation.schemes[0].scheme, listed.quantisation.basis), ("Q4_K", Basis::FileName));
    // The file's header, which is not weights, is the larger part of a file this small. An executor's layout may take a little more than
    // the file, which a listing does not tell.
    assert!((there.memory.weight_bytes * 97 / 100..=n_bytes).contains(&listed.memory.weight_bytes));
    assert_eq!(of("model.gguf", &[], &|_| {}).quantisation.basis, Basis::FileSizes);
    // As an open folder: safetensors unless GGUF is asked for, then the one preferred.
    let both = [("a-Q8_0.gguf", 2 * n_bytes), ("model.safetensors", 9 * n_bytes)];
    assert_eq!(of("b-Q4_K_M.gguf", &both, &|_| {}).files, [SAFETENSORS]);
    assert_eq!(of("b-Q4_K_M.gguf", &both[..1], &|_| {}).files, ["b-Q4_K_M.gguf"]);
    let prefer = |o: &mut AdmissionOptions| o.open.prefer_gguf = Some("q8_0".into());
    assert_eq!(of("b-Q4_K_M.gguf", &both[..1], &prefer).files, ["a-Q8_0.gguf"]);
    // The layout in the config is that of the safetensors it was converted from.
    let mut packed = wide();
    packed["quantization_config"] = json!({ "quant_method": "mxfp4" });
    let packed = listing(packed, &[("a-Q8_0.gguf", 1)]);
    assert_eq!(assessed(&packed, |_| {}).quantisation.schemes[0].scheme, "Q8_0");
}

#[test]
fn what_is_in_the_way_is_told_by_kind() {
    let plain = || listing(json!({}), &[(SAFETENSORS, 5)]);
    let without_config = |file: &str| Listing::new("org/llama", [(file.to_owned(), 5)]).unwrap();
    type Case = (Listing, fn(&mut AdmissionOptions), fn(&Refused) -> bool, &'static str);
    let cases: Vec<Case> = vec![
        (
            listing(json!({ "model_type": "nobody_knows", "architectures": [] }), &[]),
            |_| {},
            |r| matches!(r, Refused::Family(_)),
            "`nobody_knows`",
        ),
        (
            listing(json!({ "model_type": "qwen3", "architectures": [] }), &[]),
            |_| {},
            |r| matches!(r, Refused::Family(_)),
            "cargo add kinfolk-qwen3",
        ),
        (plain(), |o| o.family = Some("gemma".into()), |r| matches!(r, Refused::Family(_)), "`gemma`"),
        (without_config(SAFETENSORS), |_| {}, |r| matches!(r, Refused::NoConfig { .. }), "expected `config.json`"),
        (without_config("a.gguf"), |_| {}, |r| matches!(r, Refused::NoConfig { .. }), "GGUF file says itself"),
        (without_config("README.md"), |_| {}, |r| matches!(r, Refused::Files(_)), "expected a GGUF file"),
        (
            listing(json!({}), &[("a.gguf", 1), ("b.gguf", 1)]),
            |_| {},
            |r| matches!(r, Refused::Files(_)),
            "`a.gguf`, `b.gguf`",
        ),
        (listing(json!({}), &[("pytorch_model.bin", 1)]), |_| {}, |r| matches!(r, Refused::Files(_)), "PyTorch"),
        (
            listing(json!({ "hidden_size": null }), &[]),
            |_| {},
            |r| matches!(r, Refused::Description(_)),
            "`hidden_size`",
        ),
        (
            listing(json!({ "num_hidden_layers": 1u64 << 40 }), &[]),
            |_| {},
            |r| matches!(r, Refused::Description(_)),
            "1099511627776",
        ),
        (listing(json!({ "dtype": 5 }), &[]), |_| {}, |r| matches!(r, Refused::Description(_)), "`dtype`"),
        (
            listing(json!({ "quantization_config": { "quant_method": "awq" } }), &[]),
            |_| {},
            |r| matches!(r, Refused::Quantisation { .. }),
            "`awq`",
        ),
        (
            listing(json!({ "quantization_config": { "quant_method": "gptq" } }), &[]),
            |_| {},
            |r| matches!(r, Refused::Quantisation { .. }),
            "`gptq`",
        ),
        (
            listing(json!({ "quantization": { "bits": 4, "group_size": 64 } }), &[]),
            |_| {},
            |r| matches!(r, Refused::Quantisation { .. }),
            "`mlx`",
        ),
        (
            listing(json!({ "dtype": "float8_e4m3fn" }), &[]),
            |_| {},
            |r| matches!(r, Refused::Quantisation { .. }),
            "`F8_E4M3`",
        ),
        (plain(), |o| o.executor = Some("abacus".into()), |r| matches!(r, Refused::Executor(_)), "`abacus`"),
        (plain(), |o| o.device = Some("gpu:7".into()), |r| matches!(r, Refused::Executor(_)), "`gpu:7`"),
        (
            plain(),
            |o| o.context_length = Some(257),
            |r| matches!(r, Refused::ContextLength { max: 256, asked: 257 }),
            "1 to 256 tokens, found 257",
        ),
        (plain(), |o| o.context_length = Some(0), |r| matches!(r, Refused::ContextLength { .. }), "found 0"),
    ];
    for (listing, choose, is_kind, part) in cases {
        let refused = found(&listing, choose).unwrap_err();
        let message = refused.to_string();
        assert!(is_kind(&refused) && message.contains(part), "{part}: {refused:?}: {message}");
        assert!(!message.ends_with('.') && message.starts_with(|c: char| !c.is_uppercase()), "{message}");
    }
}

/// A family that loads by its own means.
#[test]
fn a_runner_without_description_is_known_by_loading_it() {
    let own = crate::Family { describe: None, ..FAMILY };
    let refused = examine(&Registry::of([own]), &source(LLAMA), &AdmissionOptions::default()).unwrap_err();
    assert!(matches!(refused, Refused::NotDescribed { family: "fixture" }), "{refused}");
}

#[test]
fn the_verdict_is_by_the_memory_given() {
    let total = assessed(&source(LLAMA), |_| {}).memory.total_bytes;
    let with = |bytes| assessed(&source(LLAMA), |o| o.available_bytes = Some(bytes));
    assert_eq!(with(total).verdict, Verdict::Fits);
    assert!(matches!(with(total - 1).verdict, Verdict::TooLarge(_)));
    assert_eq!(assessed(&source(LLAMA), |_| {}).verdict, Verdict::Fits, "this machine has a megabyte");
}

/// Every single remedy, taken, makes the model fit.
#[track_caller]
fn check_remedies(listing: &Listing, choose: impl Fn(&mut AdmissionOptions)) -> TooLarge {
    let refused = too_large(listing, &choose);
    let fits = |change: &dyn Fn(&mut AdmissionOptions)| {
        let found = assessed(listing, |o| {
            choose(o);
            change(o);
        });
        found.verdict == Verdict::Fits
    };
    let remedies = refused.remedies.clone();
    if let Some(n) = remedies.context_length {
        assert!(fits(&|o| o.context_length = Some(n)) && !fits(&|o| o.context_length = Some(n + 1)), "{n}");
    }
    if let Some(n) = remedies.n_sequences {
        assert!(fits(&|o| o.n_sequences = n) && !fits(&|o| o.n_sequences = n + 1), "{n}");
    }
    assert_eq!(remedies.embedding, fits(&|o| o.role = LoadRole::Embedding));
    for file in &remedies.files {
        assert!(fits(&|o| o.open.prefer_gguf = Some(file.clone())), "{file}");
    }
    assert!(fits(&|o| o.available_bytes = Some(remedies.needed_bytes)));
    refused
}

#[test]
fn what_makes_it_fit_is_offered_and_nothing_else() {
    let n_weights = assessed(&listing(wide(), &[]), |_| {}).n_parameters;
    let gguf =
        [("m-Q8_0.gguf", n_weights * 17 / 16), ("m-Q4_K_M.gguf", n_weights * 6 / 10), ("m-Q2_K.gguf", n_weights / 3)];
    let published = listing(wide(), &gguf);
    let q8 = |o: &mut AdmissionOptions| o.open.prefer_gguf = Some("q8_0".into());
    let memory = assessed(&published, q8).memory;

    // A little too much: nearly everything helps.
    let slightly = check_remedies(&published, |o| {
        q8(o);
        o.available_bytes = Some(memory.total_bytes - (1 << 20));
    });
    let remedies = &slightly.remedies;
    assert!(remedies.context_length.is_some_and(|n| (64..256).contains(&n)), "{remedies:?}");
    assert_eq!(remedies.files, ["m-Q2_K.gguf", "m-Q4_K_M.gguf"]);
    assert!(remedies.embedding, "the head is a tenth of it");
    assert_eq!((remedies.bits_per_weight, remedies.n_sequences), (Some(6.5), None));
    let message = slightly.to_string();
    for part in ["expected at most", "with a context of", "`m-Q2_K.gguf`", "6.5 bits", "embeddings", "GiB free"] {
        assert!(message.contains(part), "{part} in {message}");
    }

    // Half of the weights too much: only smaller weights do.
    let half = check_remedies(&published, |o| {
        q8(o);
        o.available_bytes = Some(memory.total_bytes - memory.weight_bytes / 2);
    });
    assert_eq!((half.remedies.context_length, half.remedies.embedding), (None, false));
    assert_eq!(half.remedies.files, ["m-Q2_K.gguf"]);
    assert_eq!(half.remedies.bits_per_weight, Some(3.4));

    // Nothing to be done.
    let hopeless = check_remedies(&published, |o| {
        q8(o);
        o.available_bytes = Some(0);
    });
    assert_eq!((hopeless.remedies.files.len(), hopeless.remedies.bits_per_weight), (0, None));
    assert!(hopeless.to_string().contains("; it fits on a machine with 0.1 GiB free"), "{hopeless}");
}

#[test]
fn bits_per_weight_are_offered_for_what_the_role_loads() {
    // The head takes more than all that comes on top of the weights.
    let mut config = wide();
    (config["vocab_size"], config["tie_word_embeddings"]) = (json!(262_144), json!(false));
    let in_type = |dtype: &str| {
        let mut config = config.clone();
        config["dtype"] = json!(dtype);
        listing(config, &[])
    };
    let embedding = |o: &mut AdmissionOptions| o.role = LoadRole::Embedding;
    let halves = assessed(&in_type("float16"), embedding).memory.total_bytes;
    let refused = too_large(&in_type("float32"), |o| {
        embedding(o);
        o.available_bytes = Some(halves);
    });
    assert_eq!(refused.remedies.bits_per_weight, Some(16.0));
}

#[test]
fn fewer_sequences_and_packed_weights_are_offered_where_they_help() {
    let published = listing(wide(), &[]);
    let many = |o: &mut AdmissionOptions| o.n_sequences = 12;
    let memory = assessed(&published, many).memory;
    let refused = check_remedies(&published, |o| {
        many(o);
        o.available_bytes = Some(memory.total_bytes - memory.cache_bytes / 2);
    });
    assert!(refused.remedies.n_sequences.is_some_and(|n| (5..=6).contains(&n)), "{refused:?}");
    assert!(
        refused.to_string().contains("for 12 × 256 tokens") && refused.to_string().contains("sequences"),
        "{refused}"
    );

    let decoded = |o: &mut AdmissionOptions| o.packed_weights = Some(false);
    let quantised = source(QUANTISED);
    let (packed, all) = (assessed(&quantised, |_| {}).memory, assessed(&quantised, decoded).memory);
    assert!(all.weight_bytes > 2 * packed.weight_bytes);
    let refused = too_large(&quantised, |o| {
        decoded(o);
        o.available_bytes = Some(packed.total_bytes);
    });
    assert!(refused.remedies.packed_weights && refused.remedies.bits_per_weight.is_none(), "{refused:?}");
}

#[test]
fn half_precision_weights_stay_what_they_are_when_quantised_ones_are_decoded() {
    let halves = listing(json!({ "dtype": "float16" }), &[]);
    let with = |packed| assessed(&halves, |o| o.packed_weights = packed).memory;
    assert_eq!(with(Some(false)), with(None));
}

#[test]
fn numbers_no_machine_has_overflow_nothing() {
    let endless = listing(json!({ "max_position_embeddings": u64::MAX }), &[(SAFETENSORS, u64::MAX)]);
    let refused = too_large(&endless, |o| {
        o.n_sequences = usize::MAX;
        o.available_bytes = Some(u64::MAX - 1);
    });
    assert_eq!(refused.memory.total_bytes, u64::MAX);
    assert_eq!(refused.remedies.context_length, None, "the file alone is too large");
    let open: Source = source(LLAMA);
    assert_eq!(assessed(&open, |o| o.n_sequences = 0).n_sequences, 1);
}

/// Values that a hostile config may have for a size.
fn size() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0u64..600).prop_map(|n| json!(n)),
        any::<u64>().prop_map(|n| json!(n)),
        (0u32..30).prop_map(|n| json!(1u64 << n)),
        any::<f64>().prop_map(|n| json!(n)),
        Just(json!(null)),
        Just(json!("wide")),
        Just(json!([4, 5])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_listing_panics_or_is_admitted_beyond_its_memory(
        changed in proptest::collection::vec((0usize..9, size()), 0..4),
        n_bytes in any::<u64>(),
        file in "(model|m-Q4_K_M|m-q8_0)\\.(safetensors|gguf)",
        context_length in proptest::option::of(any::<usize>()),
        n_sequences in any::<usize>(),
        available in any::<u64>(),
    ) {
        const KEYS: [&str; 9] = [
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings",
        ];
        let changes: Value = changed.into_iter().map(|(key, value)| (KEYS[key].to_owned(), value)).collect::<serde_json::Map<_, _>>().into();
        let listed = listing(changes, &[(file.as_str(), n_bytes), ("other-Q2_K.gguf", n_bytes / 2)]);
        let choose = |o: &mut AdmissionOptions| {
            (o.context_length, o.n_sequences, o.available_bytes) = (context_length, n_sequences, Some(available));
            o.open = OpenOptions::default();
        };
        if let Ok(found) = found(&listed, choose) {
            let admitted = found.memory.total_bytes <= available;
            prop_assert_eq!(found.verdict == Verdict::Fits, admitted);
            let _ = found.admit().map_err(|refused| refused.to_string());
        }
    }
}

#[test]
fn schemes_of_file_names_are_types_that_can_be_decoded() {
    for name in ["Q4_K_M", "IQ1_S", "TQ1_0", "MXFP4", "BF16"] {
        let dtype = Dtype::from_file_name(&format!("m-{name}.gguf")).unwrap();
        let found = assessed(&listing(wide(), &[(&format!("m-{name}.gguf"), 1)]), |_| {});
        assert!(
            found.quantisation.schemes.iter().any(|share| share.scheme == dtype.name() && share.decodable),
            "{name}"
        );
    }
}
