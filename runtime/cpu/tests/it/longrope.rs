//! A rope with one set of frequencies within the original context and another beyond: keys of the one are stale in the other.

use std::sync::Arc;

use kinfolk_decoder::{Cancel, ForwardError, LoadContext, Model, Sequence, Want};

use crate::fixtures::{LLAMA, WINDOWED, cold, config_with, forward, source, tokens, try_forward, try_load};

/// Tokens of the original context.
const ORIGINAL: usize = 16;

/// A fixture with a rope that switches beyond [`ORIGINAL`] tokens.
pub fn load(fixture: &str) -> Arc<dyn Model> {
    let mut source = source(fixture);
    let n = source.config().usize("head_dim").unwrap() / 2;
    let factors = |first: f32| (0..n).map(|i| first + i as f32 * 0.25).collect::<Vec<_>>();
    let rope = serde_json::json!({
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": ORIGINAL,
        "short_factor": factors(1.0),
        "long_factor": factors(3.0),
    });
    source.set_config(config_with(fixture, serde_json::json!({ "rope_parameters": rope })));
    let mut context = LoadContext::default();
    context.threads = Some(2);
    try_load(&source, &context).unwrap()
}

#[test]
fn the_two_sets_of_frequencies_differ() {
    let model = load(LLAMA);
    let plain = crate::fixtures::load(LLAMA);
    for n in [ORIGINAL, ORIGINAL + 1] {
        assert_ne!(cold(&*model, &tokens(n)), cold(&*plain, &tokens(n)));
    }
}

#[test]
fn decoding_across_the_original_context_equals_a_cold_prefill() {
    for fixture in [LLAMA, WINDOWED] {
        let model = load(fixture);
        let all = tokens(40);
        for chunk in [1, 3, 15, 25] {
            let mut cache = model.new_cache();
            let mut n = 0;
            for tokens in all.chunks(chunk) {
                n += tokens.len();
                let logits = forward(&*model, &mut *cache, tokens);
                assert_eq!(logits, cold(&*model, &all[..n]), "{fixture}: {chunk} at a time, {n} tokens");
                assert_eq!(cache.len(), n);
            }
        }
    }
}

#[test]
fn going_back_from_beyond_the_original_context_equals_a_cold_prefill() {
    for fixture in [LLAMA, WINDOWED] {
        let model = load(fixture);
        let all = tokens(40);
        for (held, back, len) in [(20, 10, 12), (20, 10, 30), (20, 18, 19), (17, 15, 16), (17, 16, 17), (30, 12, 17)] {
            let mut cache = model.new_cache();
            forward(&*model, &mut *cache, &all[..held]);
            let kept = cache.truncate(back);
            let restored = cache.snapshot();
            let expected = cold(&*model, &all[..len]);
            assert_eq!(forward(&*model, &mut *cache, &all[kept..len]), expected, "{fixture}: {held}, {back}, {len}");
            // A snapshot knows which frequencies its keys have.
            let mut other = model.new_cache();
            other.restore(&restored).unwrap();
            assert_eq!(forward(&*model, &mut *other, &all[kept..len]), expected, "{fixture}: {held}, {back}, {len}");
        }
    }
}

#[test]
fn only_new_tokens_are_answered_when_old_ones_are_computed_anew() {
    let model = load(LLAMA);
    let all = tokens(20);
    let whole = try_forward(&*model, &mut *model.new_cache(), &all, Want::AllLogits).unwrap();
    let mut cache = model.new_cache();
    forward(&*model, &mut *cache, &all[..15]);
    let new = try_forward(&*model, &mut *cache, &all[15..], Want::AllLogits).unwrap();
    assert_eq!(new, whole[15 * 320..]);
}

#[test]
fn a_pass_across_the_original_context_that_is_cancelled_changes_nothing() {
    let model = load(LLAMA);
    let all = tokens(20);
    let mut cache = model.new_cache();
    forward(&*model, &mut *cache, &all[..15]);
    let before = cache.snapshot();
    let cancel = Cancel::new();
    cancel.cancel();
    let sequence = Sequence { cache: &mut *cache, tokens: &all[15..], want: Want::LastLogits };
    assert_eq!(model.forward(&mut [sequence], &cancel), Err(ForwardError::Cancelled));
    assert_eq!(cache.snapshot(), before);
    assert_eq!(forward(&*model, &mut *cache, &all[15..]), cold(&*model, &all));
}
