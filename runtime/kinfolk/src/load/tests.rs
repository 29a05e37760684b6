use std::sync::{Arc, Mutex};

use kinfolk_decoder::{Cancel, DecoderError, LoadError, LoadProgress, LoadRole};
use serde_json::json;

use super::{LoadChoiceError, LoadOptions, executors};
use crate::{
    LmRunner, Registry, RunnerError,
    admission::{AdmissionOptions, Memory, examine},
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

/// What [`LLAMA`] is reckoned to take.
fn reckoned(choose: impl FnOnce(&mut AdmissionOptions)) -> Memory {
    let mut options = AdmissionOptions::default();
    choose(&mut options);
    examine(&Registry::of([FAMILY]), &source(LLAMA), &options).unwrap().memory
}

fn gib(bytes: u64) -> f32 {
    bytes as f32 / (1u64 << 30) as f32
}

#[test]
fn a_model_beyond_the_memory_allowed_is_refused_with_what_an_admission_reckons() {
    let memory = reckoned(|_| {});
    let all = memory.total_bytes;
    assert!(load(request(source(LLAMA), |o| o.max_memory_gb = Some(gib(all + 4096)))).is_ok());
    let found: LoadChoiceError = refused(LLAMA, |o| o.max_memory_gb = Some(gib(all - 4096)));
    let LoadChoiceError::TooLarge(too_large) = found else { panic!("{found}") };
    assert!(too_large.available_bytes < all && too_large.available_bytes > all - 8192);
    assert_eq!((too_large.memory, too_large.context_length), (memory, 256));
    // What it offers is taken.
    let context = too_large.remedies.context_length.unwrap();
    let choose = |o: &mut LoadOptions| (o.max_memory_gb, o.max_seq) = (Some(gib(all - 4096)), Some(context));
    assert!(load(request(source(LLAMA), choose)).is_ok());
}

#[test]
fn a_limit_that_is_no_amount_of_memory_is_refused_as_one() {
    for nothing in [-1.0, f32::NAN, f32::NEG_INFINITY] {
        let found: LoadChoiceError = refused(LLAMA, |o| o.max_memory_gb = Some(nothing));
        assert!(matches!(found, LoadChoiceError::MemoryLimit { .. }), "{found}");
        assert_eq!(found.to_string(), format!("max_memory_gb: expected a number of at least 0, found {nothing}"));
    }
    let found: LoadChoiceError = refused(LLAMA, |o| o.max_memory_gb = Some(0.0));
    assert!(matches!(found, LoadChoiceError::TooLarge(_)), "{found}");
    assert!(load(request(source(LLAMA), |o| o.max_memory_gb = Some(f32::INFINITY))).is_ok());
}

#[test]
fn an_endless_context_takes_more_than_any_limit_and_overflows_nothing() {
    let source = source_with(LLAMA, json!({ "max_position_embeddings": u64::MAX }));
    let error = load(request(source, |o| o.max_memory_gb = Some(1e9))).err().unwrap();
    let Some(LoadChoiceError::TooLarge(found)) = error.downcast_ref() else { panic!("{error}") };
    assert_eq!((found.memory.cache_bytes, found.memory.total_bytes), (u64::MAX, u64::MAX));
}

#[test]
fn a_load_for_embeddings_needs_no_memory_for_the_head() {
    let of_role = |role| reckoned(|o| o.role = role);
    let (text, embedding) = (of_role(LoadRole::Text), of_role(LoadRole::Embedding));
    assert_eq!(text.weight_bytes - embedding.weight_bytes, 320 * 48 * 4);
    let limit = gib(embedding.total_bytes + 4096);
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
