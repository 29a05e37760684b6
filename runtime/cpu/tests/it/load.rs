//! Loading: progress, cancellation, choices.

use std::sync::Mutex;

use kinfolk_cpu::{CPU, LevelError, levels, use_level};
use kinfolk_decoder::{Cancel, Executor, LoadContext, LoadError, LoadProgress};

use crate::fixtures::{ALL, CONTEXT, LLAMA, cold, describe, difference, load, load_with, source, tokens, try_load};

#[test]
fn progress_only_grows_and_ends_at_the_total() {
    for file in ["llama/model.gguf", "llama", "qwen3_moe/model.gguf", "mistral"] {
        let source = source(file);
        let seen = Mutex::new(Vec::new());
        let report = |progress: LoadProgress| seen.lock().unwrap().push(progress);
        let mut context = LoadContext::default();
        context.progress = Some(&report);
        try_load(&source, &context).unwrap();
        let seen = seen.into_inner().unwrap();
        assert!(seen.is_sorted_by_key(|p| p.done_bytes), "{file}: {seen:?}");
        assert!(seen.iter().all(|p| p.total_bytes == source.tensor_bytes()), "{file}");
        let last = seen.last().unwrap();
        assert_eq!(last.done_bytes, last.total_bytes, "{file}");
        assert!(seen[0].done_bytes < last.total_bytes, "{file}: not all of it at once");
    }
}

#[test]
fn a_load_is_cancelled_at_any_step() {
    // K4.
    for n_steps in [0, 1, 4, 9] {
        let cancel = Cancel::new();
        let steps = Mutex::new(0);
        let report = |_: LoadProgress| {
            let mut steps = steps.lock().unwrap();
            *steps += 1;
            if *steps == n_steps {
                cancel.cancel();
            }
        };
        if n_steps == 0 {
            cancel.cancel();
        }
        let mut context = LoadContext::default();
        context.cancel = cancel.clone();
        context.progress = Some(&report);
        assert!(matches!(try_load(&source(LLAMA), &context), Err(LoadError::Cancelled)), "after {n_steps} steps");
        assert_eq!(*steps.lock().unwrap(), n_steps, "nothing is loaded after the cancellation");
    }
}

#[test]
fn decoded_weights_give_what_packed_ones_do_with_activations_of_16_bits() {
    let folder = crate::fixtures::path("quant-llama");
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let of = |packed| {
            let model = load_with(path.to_str().unwrap(), |context| context.packed_weights = packed);
            (cold(&*model, &tokens(20)), model.weight_bytes())
        };
        let (packed, packed_bytes) = of(None);
        let (decoded, decoded_bytes) = of(Some(false));
        assert!(difference(&packed, &decoded) <= 1e-3, "{}", path.display());
        assert!(packed_bytes < decoded_bytes, "{}: {packed_bytes} and {decoded_bytes}", path.display());
        n += 1;
    }
    assert!(n > 0, "no quantised fixture found");
}

#[test]
fn the_context_may_be_shorter_than_the_model_s_and_not_longer() {
    let short = load_with(LLAMA, |context| context.context_length = Some(16));
    assert_eq!(short.context_length(), 16);
    assert_eq!(cold(&*short, &tokens(16)), cold(&*load(LLAMA), &tokens(16)));
    for asked in [0, CONTEXT + 1, usize::MAX] {
        let mut context = LoadContext::default();
        context.context_length = Some(asked);
        let error = try_load(&source(LLAMA), &context).unwrap_err();
        assert!(matches!(error, LoadError::ContextLength { max: CONTEXT, asked: found } if found == asked), "{error}");
    }
}

#[test]
fn a_number_of_threads_no_machine_has_is_refused() {
    for asked in [0, 1025, 100_000, usize::MAX] {
        let mut context = LoadContext::default();
        context.threads = Some(asked);
        let error = try_load(&source(LLAMA), &context).unwrap_err();
        assert!(matches!(error, LoadError::ThreadCount { max: 1024, asked: found } if found == asked), "{error}");
    }
}

#[test]
fn every_fixture_is_supported() {
    for fixture in ALL {
        let source = source(fixture);
        assert_eq!(CPU.supports(&describe(source.config()), &source), Ok(()));
    }
}

#[test]
fn an_instruction_set_is_chosen_before_the_first_model_or_not_at_all() {
    let unknown = use_level("warp").unwrap_err();
    assert!(matches!(&unknown, LevelError::Unknown { expected, .. } if expected.contains("scalar")), "{unknown}");
    try_load(&source(LLAMA), &LoadContext::default()).unwrap();
    let best = *levels().last().unwrap();
    assert_eq!(use_level(best), Ok(()), "which it is already");
    for other in levels().into_iter().filter(|level| *level != best) {
        assert_eq!(use_level(other), Err(LevelError::InUse { current: best, found: other.to_owned() }));
    }
}
