use std::sync::{Arc, Mutex};

use kinfolk_decoder::{Cancel, DecoderError, LoadError, LoadProgress, LoadRole};
use serde_json::json;

use super::{LoadChoiceError, LoadOptions, MemoryNeed, executors};
use crate::{
    LmRunner, RunnerError,
    fixture::{FAMILY, LLAMA, QUANTISED, WINDOWED, load, request, source, source_with, tokens},
};

#[track_caller]
fn refused<E: std::error::Error + Send + Sync + 'static>(file: &str, choose: impl FnOnce(&mut LoadOptions)) -> E {
    match load(request(source(file), choose)) {
        Ok(_) => panic!("it loaded"),
        Err(error) => error.downcast().unwrap(),
    }
}

#[test]
fn executors_are_sorted_with_the_cpu_last_and_none_twice() {
    let names: Vec<&str> = executors().iter().map(|e| e.name()).collect();
    assert_eq!(names.last(), Some(&"cpu"));
    assert!(names[..names.len() - 1].is_sorted_by(|a, b| a < b), "{names:?}");
}

#[test]
fn an_executor_that_is_not_there_is_refused_with_those_that_are() {
    let known = executors().iter().map(|e| e.name()).collect();
    let found: LoadChoiceError = refused(LLAMA, |o| o.executor = Some("abacus".to_owned()));
    assert_eq!(found, LoadChoiceError::UnknownExecutor { asked: "abacus".to_owned(), known });
    assert!(found.to_string().ends_with("cpu], found `abacus`"), "{found}");
}

#[test]
fn a_device_that_is_not_there_is_refused_with_those_that_are() {
    let found: LoadChoiceError = refused(LLAMA, |o| {
        o.executor = Some("cpu".to_owned());
        o.device = Some("gpu:7".to_owned());
    });
    let known = vec!["cpu".to_owned()];
    assert_eq!(found, LoadChoiceError::UnknownDevice { executor: "cpu", asked: "gpu:7".to_owned(), known });
    assert!(load(request(source(LLAMA), |o| o.device = Some("cpu".to_owned()))).is_ok());
}

#[test]
fn a_model_beyond_the_memory_allowed_is_refused_with_figures() {
    let need = MemoryNeed::of(&FAMILY.describe.unwrap()(source(LLAMA).config()).unwrap(), &source(LLAMA), 256, None);
    let gib = |bytes: u64| bytes as f32 / (1u64 << 30) as f32;
    let all = need.weight_bytes + need.cache_bytes;
    assert!(load(request(source(LLAMA), |o| o.max_memory_gb = Some(gib(all + 4096)))).is_ok());
    let found: LoadChoiceError = refused(LLAMA, |o| o.max_memory_gb = Some(gib(all - 4096)));
    match found {
        LoadChoiceError::MemoryLimit { limit_bytes, weight_bytes, cache_bytes, context_length } => {
            assert!(limit_bytes < all);
            assert_eq!((weight_bytes, cache_bytes, context_length), (need.weight_bytes, need.cache_bytes, 256));
        }
        other => panic!("{other}"),
    }
    // A shorter context takes less.
    let choose = |o: &mut LoadOptions| (o.max_memory_gb, o.max_seq) = (Some(gib(all - 4096)), Some(64));
    assert!(load(request(source(LLAMA), choose)).is_ok());
    for nothing in [0.0, -1.0, f32::NAN] {
        let found: LoadChoiceError = refused(LLAMA, |o| o.max_memory_gb = Some(nothing));
        assert!(matches!(found, LoadChoiceError::MemoryLimit { limit_bytes: 0, .. }), "{found}");
    }
}

#[test]
fn an_endless_context_takes_more_than_any_limit_and_overflows_nothing() {
    let source = source_with(LLAMA, json!({ "max_position_embeddings": u64::MAX }));
    let error = load(request(source, |o| o.max_memory_gb = Some(1e9))).err().unwrap();
    let found = error.downcast_ref::<LoadChoiceError>();
    assert!(matches!(found, Some(LoadChoiceError::MemoryLimit { cache_bytes: u64::MAX, .. })), "{error}");
}

#[test]
fn the_memory_need_is_what_the_model_takes() {
    for (file, packed) in [(LLAMA, None), (LLAMA, Some(false)), (QUANTISED, None), (QUANTISED, Some(false))] {
        let source = source(file);
        let decoder = FAMILY.describe.unwrap()(source.config()).unwrap();
        let need = MemoryNeed::of(&decoder, &source, 100, packed);
        let mut runner = load(request(source, |o| o.packed_weights = packed)).unwrap();
        // Norms are not counted among the model's weights; they are small.
        let weight_bytes = runner.model().unwrap().weight_bytes();
        let range = need.weight_bytes - need.weight_bytes / 20..=need.weight_bytes;
        assert!(range.contains(&weight_bytes), "{file} {packed:?}: {weight_bytes} of {}", need.weight_bytes);
        runner.prefill_logits(&tokens(100)).unwrap();
        let cache_bytes = runner.kv_store_stats().unwrap().bytes as u64;
        assert!((need.cache_bytes..=2 * need.cache_bytes).contains(&cache_bytes), "{file}: {cache_bytes}");
    }
}

#[test]
fn a_load_for_embeddings_needs_no_memory_for_the_head() {
    let decoder = FAMILY.describe.unwrap()(source(LLAMA).config()).unwrap();
    let need = |role| MemoryNeed::for_role(role, &decoder, &source(LLAMA), 256, None);
    let (text, embedding) = (need(LoadRole::Text), need(LoadRole::Embedding));
    assert_eq!(text.weight_bytes - embedding.weight_bytes, 320 * 48 * 4);
    assert_eq!(text, MemoryNeed::of(&decoder, &source(LLAMA), 256, None));
    let limit = (embedding.weight_bytes + embedding.cache_bytes + 4096) as f32 / (1u64 << 30) as f32;
    let with = |role| load(request(source(LLAMA), |o| (o.role, o.max_memory_gb) = (role, Some(limit))));
    assert!(with(LoadRole::Text).is_err() && with(LoadRole::Embedding).is_ok());
}

#[test]
fn a_runner_for_embeddings_gives_hidden_states_and_says_that_it_has_no_logits() {
    let mut runner = load(request(source(LLAMA), |o| o.role = LoadRole::Embedding)).unwrap();
    let abilities = runner.capabilities();
    assert!(abilities.embeddings && abilities.batching);
    assert!(!abilities.prefill_decode_pair && !abilities.prefix_reuse && !abilities.sessions);
    assert_eq!(
        runner.embed(&tokens(9)).unwrap(),
        load(request(source(LLAMA), |_| {})).unwrap().embed(&tokens(9)).unwrap()
    );
    for refused in [runner.predict_logits(&[1]), runner.prefill_logits(&[1]), runner.prefill_logits_reusing(&[1])] {
        assert_eq!(refused.unwrap_err().downcast_ref(), Some(&RunnerError::NoHead));
    }
    let error = crate::HostDriven::new(runner).prefill_logits(&[1]).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::NoHead), "no slow way around it is looked for");
}

#[test]
fn half_precision_weights_stay_what_they_are_when_quantised_ones_are_decoded() {
    let source = source_of_halves();
    let decoder = FAMILY.describe.unwrap()(source.config()).unwrap();
    let need = |packed| MemoryNeed::of(&decoder, &source, 1, packed).weight_bytes;
    assert_eq!(need(Some(false)), need(None));
}

/// [`LLAMA`]'s config over one F16 tensor: enough to ask what it needs.
fn source_of_halves() -> kinfolk_decoder::Source {
    let header = br#"{"w":{"dtype":"F16","shape":[4,8],"data_offsets":[0,64]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 64]].concat();
    let mut halves = kinfolk_decoder::Source::from_bytes("halves.safetensors", bytes).unwrap();
    halves.set_config(source(LLAMA).config().clone());
    halves
}

#[test]
fn a_cancelled_load_says_so_whenever_it_is_cancelled() {
    for n_steps in [0, 1, 5] {
        let cancel = Cancel::new();
        let steps = Arc::new(Mutex::new(0));
        let (by_report, counted) = (cancel.clone(), Arc::clone(&steps));
        if n_steps == 0 {
            cancel.cancel();
        }
        let error: LoadError = refused(LLAMA, |o| {
            o.cancel = cancel.clone();
            o.progress = Some(Arc::new(move |_| {
                let mut steps = counted.lock().unwrap();
                *steps += 1;
                if *steps == n_steps {
                    by_report.cancel();
                }
            }));
        });
        assert!(matches!(error, LoadError::Cancelled), "{error}");
        assert_eq!(*steps.lock().unwrap(), n_steps);
    }
}

#[test]
fn progress_reaches_the_host_and_ends_at_the_total() {
    let seen = Arc::new(Mutex::new(Vec::<LoadProgress>::new()));
    let ear = Arc::clone(&seen);
    load(request(source(QUANTISED), |o| o.progress = Some(Arc::new(move |p| ear.lock().unwrap().push(p))))).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 2 && seen.is_sorted_by_key(|p| p.done_bytes), "{seen:?}");
    assert!(seen.last().is_some_and(|p| p.done_bytes == p.total_bytes));
}

#[test]
fn a_context_the_model_does_not_have_is_refused_with_its_own() {
    for asked in [0, 257] {
        let error: LoadError = refused(WINDOWED, |o| o.max_seq = Some(asked));
        assert!(matches!(error, LoadError::ContextLength { max: 256, asked: found } if found == asked), "{error}");
    }
    let runner = load(request(source(WINDOWED), |o| (o.max_seq, o.threads) = (Some(7), Some(1)))).unwrap();
    assert_eq!((runner.context_length(), runner.model().unwrap().threads()), (7, 1));
}

#[test]
fn a_checkpoint_that_does_not_fit_its_config_is_told_by_tensor() {
    let error = load(request(source_with(LLAMA, json!({ "hidden_size": 52 })), |_| {})).err().unwrap();
    let Some(LoadError::Decoder(DecoderError::Tensors { problems, .. })) = error.downcast_ref() else {
        panic!("{error}");
    };
    assert!(problems.len() > 10, "{problems:?}");
    assert!(error.to_string().contains("expected shape [320, 52], found [320, 48]"), "{error}");
}
