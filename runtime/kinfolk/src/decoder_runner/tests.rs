//! The runner over whole small models, and over one whose passes fail when the test says so.

use std::sync::Arc;

use kinfolk_decoder::{Cancel, ForwardError, Model, Sequence, Want, Workload};
use kinfolk_weights::Fingerprint;
use serde_json::json;

use super::DecoderRunner;
use crate::{
    LmRunner, RunnerError,
    fixture::{LLAMA, VOCAB, WINDOWED, assert_near, load, request, source, source_with, tokens},
    watched_model::Watched,
};

/// Of no checkpoint.
fn no_fingerprint() -> Fingerprint {
    Fingerprint::from_bytes([0; 32])
}

/// [`LLAMA`] with room for prompts of several chunks.
fn long_model() -> Arc<dyn Model> {
    let source = source_with(LLAMA, json!({ "max_position_embeddings": 4096 }));
    load(request(source, |_| {})).unwrap().model().unwrap()
}

fn runner(file: &str) -> Box<dyn LmRunner> {
    load(request(source(file), |_| {})).unwrap()
}

#[test]
fn a_prompt_of_several_chunks_equals_one_pass() {
    let model = long_model();
    let prompt = tokens(2 * Workload::CHUNK_TOKENS + 100);
    let mut cache = model.new_cache();
    let whole = Sequence { cache: &mut *cache, tokens: &prompt, want: Want::LastLogits };
    let expected = model.forward(&mut [whole], &Cancel::new()).unwrap().remove(0).values().to_vec();
    let watched = Arc::new(Watched::new(model));
    let mut runner =
        DecoderRunner::new("test", Arc::clone(&watched) as Arc<dyn Model>, no_fingerprint(), Cancel::new());
    assert_eq!(runner.prefill_logits(&prompt).unwrap(), expected);
    assert_eq!(watched.passes.lock().unwrap().len(), 3);
    assert_eq!(runner.predict_logits(&prompt).unwrap(), expected);
}

#[test]
fn a_pass_that_fails_leaves_the_chunks_before_it_and_a_retry_is_right() {
    let model = long_model();
    let prompt = tokens(2 * Workload::CHUNK_TOKENS + 100);
    let expected = DecoderRunner::new("test", Arc::clone(&model), no_fingerprint(), Cancel::new())
        .prefill_logits(&prompt)
        .unwrap();
    for pass in 0..3 {
        let watched = Watched { fails_at: Some(pass), ..Watched::new(Arc::clone(&model)) };
        let mut runner = DecoderRunner::new("test", Arc::new(watched), no_fingerprint(), Cancel::new());
        let error = runner.prefill_logits_reusing(&prompt).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&ForwardError::OutOfMemory { needed_bytes: 42 }));
        assert_eq!(runner.kv_store_stats().unwrap().tokens, pass * Workload::CHUNK_TOKENS);
        assert_eq!(runner.begin_prompt(&prompt).unwrap(), pass * Workload::CHUNK_TOKENS);
        assert_eq!(runner.prefill_logits_reusing(&prompt).unwrap(), expected, "pass {pass}");
    }
}

#[test]
fn a_cancellation_is_typed_and_seen_between_chunks() {
    let cancel = Cancel::new();
    let watched = Watched { cancels_after: Some((0, cancel.clone())), ..Watched::new(long_model()) };
    let mut runner = DecoderRunner::new("test", Arc::new(watched), no_fingerprint(), cancel);
    let error = runner.prefill_logits(&tokens(3 * Workload::CHUNK_TOKENS)).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::Cancelled));
    assert_eq!(runner.kv_store_stats().unwrap().tokens, Workload::CHUNK_TOKENS);
}

#[test]
fn what_no_context_can_hold_is_typed_and_changes_nothing() {
    let mut runner = runner(LLAMA);
    let refused = |answer: anyhow::Result<Vec<f32>>| answer.unwrap_err().downcast::<RunnerError>().unwrap();
    assert_eq!(refused(runner.decode_logits(1)), RunnerError::NotPrefilled);
    runner.prefill_logits(&tokens(255)).unwrap();
    let before = runner.export_session().unwrap();
    let bad = VOCAB as u32;
    let out_of_range = RunnerError::TokenOutOfRange { token: bad, vocab_size: VOCAB };
    let full = RunnerError::ContextFull { context_length: 256, asked: 257 };
    assert_eq!(refused(runner.prefill_logits(&[])), RunnerError::EmptyPrompt);
    assert_eq!(refused(runner.prefill_logits_reusing(&[])), RunnerError::EmptyPrompt);
    assert_eq!(refused(runner.prefill_logits(&[1, bad])), out_of_range);
    assert_eq!(refused(runner.decode_logits(bad)), out_of_range);
    assert_eq!(refused(runner.predict_logits(&tokens(257))), full);
    assert_eq!(refused(runner.prefill_logits_reusing(&tokens(257))), full);
    assert_eq!(refused(runner.embed(&tokens(257))), full);
    assert!(runner.begin_prompt(&[]).is_err());
    assert_eq!(runner.export_session().unwrap(), before);
    runner.decode_logits(1).unwrap();
    assert_eq!(refused(runner.decode_logits(1)), full, "the context is full");
    assert_eq!(runner.kv_store_stats().unwrap().tokens, 256);
}

#[test]
fn reuse_after_any_divergence_equals_a_cold_prefill_also_behind_a_window() {
    for file in [LLAMA, WINDOWED] {
        let mut runner = runner(file);
        let first = tokens(100);
        runner.prefill_logits(&first).unwrap();
        for diverges_at in [99, 60, 13, 3, 0] {
            let mut prompt = tokens(120);
            prompt[diverges_at..].iter_mut().for_each(|t| *t = (*t + 1) % VOCAB as u32);
            let expected = runner.predict_logits(&prompt).unwrap();
            let found = runner.prefill_logits_reusing(&prompt).unwrap();
            assert_near(&found, &expected, format_args!("{file} at {diverges_at}"));
            runner.prefill_logits_reusing(&first).unwrap();
        }
    }
}

#[test]
fn a_second_prompt_computes_at_least_one_token() {
    for file in [LLAMA, WINDOWED] {
        let mut runner = runner(file);
        runner.prefill_logits(&tokens(30)).unwrap();
        assert_eq!(runner.begin_prompt(&tokens(30)).unwrap(), 29, "{file}");
        let expected = runner.predict_logits(&tokens(30)).unwrap();
        assert_eq!(runner.prefill_logits_reusing(&tokens(30)).unwrap(), expected);
    }
    let mut runner = runner(LLAMA);
    runner.prefill_logits(&tokens(30)).unwrap();
    assert_eq!(runner.begin_prompt(&tokens(13)).unwrap(), 12);
}

#[test]
fn damaged_sessions_are_refused_or_survived_and_never_panic() {
    for file in [LLAMA, WINDOWED] {
        let mut runner = runner(file);
        runner.prefill_logits(&tokens(20)).unwrap();
        let good = runner.export_session().unwrap();
        for cut in (0..200).chain((200..good.len()).step_by(1999)) {
            let error = runner.restore_session(&good[..cut]).unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(RunnerError::InvalidSession { .. })), "{error}");
        }
        assert_eq!(runner.export_session().unwrap(), good, "what is refused changes nothing");
        for place in 0..300 {
            for bits in [1, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[place] ^= bits;
                if runner.restore_session(&bytes).is_ok() {
                    runner.decode_logits(1).unwrap();
                    runner.prefill_logits_reusing(&tokens(25)).unwrap();
                }
            }
        }
        runner.restore_session(&good).unwrap();
        let expected = runner.predict_logits(&tokens(21)).unwrap();
        assert_eq!(runner.prefill_logits_reusing(&tokens(21)).unwrap(), expected);
    }
}

#[test]
fn an_empty_session_restores_an_empty_context() {
    let mut runner = runner(LLAMA);
    let empty = runner.export_session().unwrap();
    runner.prefill_logits(&tokens(9)).unwrap();
    runner.restore_session(&empty).unwrap();
    let error = runner.decode_logits(1).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::NotPrefilled));
}

#[test]
fn embeddings_are_the_last_hidden_state_at_length_one_and_leave_the_context() {
    let mut runner = runner(LLAMA);
    runner.prefill_logits(&tokens(9)).unwrap();
    let before = runner.export_session().unwrap();
    let embedding = runner.embed(&tokens(30)).unwrap();
    assert_eq!(runner.export_session().unwrap(), before);
    let length: f32 = embedding.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!((length - 1.0).abs() < 1e-6, "{length}");
    let model = runner.model().unwrap();
    let mut cache = model.new_cache();
    let sequence = Sequence { cache: &mut *cache, tokens: &tokens(30), want: Want::Hidden };
    let hidden = model.forward(&mut [sequence], &Cancel::new()).unwrap().remove(0);
    let last = hidden.rows().last().unwrap();
    let scale = last.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!(embedding.iter().zip(last).all(|(e, h)| (e * scale - h).abs() < 1e-5));
}
