//! What a caller can get wrong is told by type and changes nothing.

use std::{thread, time::Duration};

use kinfolk_decoder::{Cache, Cancel, ForwardError, Model, Sequence, Want};

use crate::fixtures::{ALL, CONTEXT, LLAMA, VOCAB, cold, forward, load, tokens, try_forward};

/// Runs `tokens`, expects `error`, and that the sequence is as it was.
#[track_caller]
fn refused(model: &dyn Model, cache: &mut dyn Cache, tokens: &[u32], error: ForwardError) {
    let before = cache.snapshot();
    assert_eq!(try_forward(model, cache, tokens, Want::LastLogits), Err(error));
    assert_eq!(cache.snapshot(), before, "nothing has changed");
}

#[test]
fn what_no_model_could_compute_is_refused_and_changes_nothing() {
    for fixture in ALL {
        let model = load(fixture);
        let mut cache = model.new_cache();
        forward(&*model, &mut *cache, &tokens(20));
        refused(&*model, &mut *cache, &[], ForwardError::NoTokens);
        for bad in [VOCAB, u32::MAX] {
            let error = ForwardError::TokenOutOfRange { token: bad, vocab_size: VOCAB as usize };
            refused(&*model, &mut *cache, &[1, bad, 2], error);
        }
        let error = ForwardError::ContextFull { context_length: CONTEXT, asked: CONTEXT + 1 };
        refused(&*model, &mut *cache, &tokens(CONTEXT - 19), error);
        let all = tokens(30);
        assert_eq!(forward(&*model, &mut *cache, &all[20..]), cold(&*model, &all), "{fixture}");
    }
}

#[test]
fn the_context_is_filled_to_the_last_token() {
    let model = load(LLAMA);
    let mut cache = model.new_cache();
    forward(&*model, &mut *cache, &tokens(CONTEXT));
    let error = ForwardError::ContextFull { context_length: CONTEXT, asked: CONTEXT + 1 };
    refused(&*model, &mut *cache, &[1], error);
}

#[test]
fn a_cache_of_another_model_is_refused_also_if_it_is_the_same_file() {
    let (model, same) = (load(LLAMA), load(LLAMA));
    let mut cache = same.new_cache();
    forward(&*same, &mut *cache, &tokens(4));
    refused(&*model, &mut *cache, &[1], ForwardError::ForeignCache);
}

#[test]
fn one_bad_sequence_stops_the_batch_and_changes_none() {
    let model = load(LLAMA);
    let mut caches = [model.new_cache(), model.new_cache()];
    caches.iter_mut().for_each(|cache| drop(forward(&*model, &mut **cache, &tokens(4))));
    let before = caches.each_ref().map(|cache| cache.snapshot());
    let [good, bad] = &mut caches;
    let mut batch = [
        Sequence { cache: &mut **good, tokens: &[1, 2], want: Want::LastLogits },
        Sequence { cache: &mut **bad, tokens: &[VOCAB], want: Want::LastLogits },
    ];
    assert!(model.forward(&mut batch, &Cancel::new()).is_err());
    assert_eq!(caches.each_ref().map(|cache| cache.snapshot()), before);
}

#[test]
fn a_cancelled_pass_leaves_the_cache_as_it_was() {
    for fixture in ALL {
        let model = load(fixture);
        let all = tokens(60);
        let expected = cold(&*model, &all);
        let mut cache = model.new_cache();
        forward(&*model, &mut *cache, &all[..20]);
        let before = cache.snapshot();
        let cancel = Cancel::new();
        cancel.cancel();
        let sequence = Sequence { cache: &mut *cache, tokens: &all[20..], want: Want::LastLogits };
        assert_eq!(model.forward(&mut [sequence], &cancel), Err(ForwardError::Cancelled));
        assert_eq!(cache.snapshot(), before, "{fixture}");
        assert_eq!(forward(&*model, &mut *cache, &all[20..]), expected, "{fixture}");
    }
}

#[test]
fn a_pass_cancelled_at_any_moment_happened_or_did_not() {
    for fixture in ALL {
        let model = load(fixture);
        let all = tokens(200);
        let at_once = |cache: &mut dyn Cache| try_forward(&*model, cache, &all[30..], Want::LastLogits).unwrap();
        let expected = {
            let mut cache = model.new_cache();
            forward(&*model, &mut *cache, &all[..30]);
            at_once(&mut *cache)
        };
        for delay_us in (0..2000).step_by(100) {
            let mut cache = model.new_cache();
            forward(&*model, &mut *cache, &all[..30]);
            let before = cache.snapshot();
            let cancel = Cancel::new();
            let outcome = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_micros(delay_us));
                    cancel.cancel();
                });
                let sequence = Sequence { cache: &mut *cache, tokens: &all[30..], want: Want::LastLogits };
                model.forward(&mut [sequence], &cancel)
            });
            match outcome {
                Ok(outputs) => assert_eq!(outputs[0].values(), expected),
                Err(error) => {
                    assert_eq!(error, ForwardError::Cancelled);
                    assert_eq!(cache.snapshot(), before, "{fixture} after {delay_us} µs");
                    assert_eq!(at_once(&mut *cache), expected);
                }
            }
        }
    }
}
