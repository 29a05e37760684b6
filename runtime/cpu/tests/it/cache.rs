//! One sequence's state: going back, saving, and forgetting what a window no longer sees.

use kinfolk_decoder::{LoadContext, Mask, Mixer, Model, Want};
use serde_json::json;

use crate::fixtures::{
    ALL, CONTEXT, EXPERTS, LLAMA, VOCAB, WINDOWED, cold, config_with, forward, load, source, tokens, try_forward,
    try_load,
};

/// Tokens that a layer of [`WINDOWED`] sees.
const WINDOW: usize = 12;
/// Positions that are kept together.
const BLOCK: usize = 64;
/// Bytes of keys and values per token of [`WINDOWED`]: 2 layers, 2 heads, 24 elements that take the room of 32, of 4 bytes.
const WINDOWED_TOKEN_BYTES: usize = 2 * 2 * (32 + 32) * 4;

#[test]
fn whatever_truncation_answers_the_rest_computed_anew_is_right() {
    for fixture in ALL {
        let model = load(fixture);
        let all = tokens(50);
        let expected = cold(&*model, &all);
        for held in [20, 50] {
            for n in [0, 1, 13, 19, 20, 49, 50, 60] {
                let mut cache = model.new_cache();
                forward(&*model, &mut *cache, &all[..held]);
                let kept = cache.truncate(n);
                assert!(kept <= n.min(held), "{fixture}: {kept} of {held} kept for {n}");
                assert_eq!(cache.len(), kept);
                if kept < all.len() {
                    assert_eq!(forward(&*model, &mut *cache, &all[kept..]), expected, "{fixture}: {held} back to {n}");
                }
            }
        }
    }
}

#[test]
fn full_attention_goes_back_to_any_length() {
    for fixture in [LLAMA, EXPERTS] {
        let model = load(fixture);
        let mut cache = model.new_cache();
        forward(&*model, &mut *cache, &tokens(50));
        for n in [50, 49, 20, 1, 0] {
            assert_eq!(cache.truncate(n), n, "{fixture}");
        }
    }
}

#[test]
fn a_window_goes_back_as_far_as_its_keys_and_else_to_nothing() {
    // G7: filled to 200 in one piece and then step by step, the keys before the last windows are gone.
    let model = load(WINDOWED);
    let all = tokens(200);
    let mut cache = model.new_cache();
    for chunk in all.chunks(25) {
        forward(&*model, &mut *cache, chunk);
    }
    assert_eq!(cache.truncate(199), 199, "one token back is always possible");
    assert_eq!(cache.truncate(15), 0, "what is forgotten cannot be gone back to");
    assert!(cache.is_empty());
    assert_eq!(forward(&*model, &mut *cache, &all[..30]), cold(&*model, &all[..30]));
}

#[test]
fn a_window_holds_what_it_sees_in_whole_blocks_and_one_to_use_again() {
    for (chunk, fill) in [(1, CONTEXT), (3, 240), (25, 250)] {
        let model = load(WINDOWED);
        let mut cache = model.new_cache();
        for tokens in tokens(fill).chunks(chunk) {
            forward(&*model, &mut *cache, tokens);
            let ids = 2 * 4 * cache.len() + 64;
            // What it sees may begin at the end of a block.
            let limit = ((WINDOW + BLOCK - 1).div_ceil(BLOCK) + 1) * BLOCK * WINDOWED_TOKEN_BYTES + ids;
            assert!(cache.bytes() <= limit, "{} tokens, {chunk} at a time: {} bytes", cache.len(), cache.bytes());
        }
    }
}

#[test]
fn a_window_wider_than_any_sequence_is_full_attention() {
    let plain = cold(&*load(LLAMA), &tokens(40));
    for window in [CONTEXT as u64, 1 << 63, u64::MAX] {
        let changes = json!({ "model_type": "mistral", "sliding_window": window });
        let mut source = source(LLAMA);
        source.set_config(config_with(LLAMA, changes));
        let model = try_load(&source, &LoadContext::default()).unwrap();
        let mixer = &model.decoder().layers[0].mixer;
        assert!(matches!(mixer, Mixer::Attention(a) if a.mask == Mask::Window(window as usize)), "{mixer:?}");
        let mut cache = model.new_cache();
        forward(&*model, &mut *cache, &tokens(40)[..39]);
        assert_eq!(forward(&*model, &mut *cache, &tokens(40)[39..]), plain, "window {window}");
        assert_eq!(cache.truncate(3), 3);
    }
}

#[test]
fn a_restored_snapshot_goes_on_to_the_last_bit() {
    for fixture in ALL {
        let model = load(fixture);
        let all = tokens(60);
        for n in [0, 5, 20, 50] {
            let mut cache = model.new_cache();
            if n > 0 {
                forward(&*model, &mut *cache, &all[..n]);
            }
            let snapshot = cache.snapshot();
            let mut restored = model.new_cache();
            forward(&*model, &mut *restored, &[7, 8, 9]);
            restored.restore(&snapshot).unwrap();
            assert_eq!(restored.len(), n);
            assert_eq!(restored.snapshot(), snapshot, "{fixture}: {n} tokens");
            let expected = forward(&*model, &mut *cache, &all[n..]);
            assert_eq!(forward(&*model, &mut *restored, &all[n..]), expected, "{fixture}: {n} tokens");
            let kept = restored.truncate(n.saturating_sub(1));
            assert_eq!(forward(&*model, &mut *restored, &all[kept..]), expected, "{fixture}: back to {kept}");
        }
    }
}

/// Restores damaged bytes, and goes on with whatever they are taken for: it may be wrong, but it must be complete.
fn survive(model: &dyn Model, bytes: &[u8]) {
    let mut cache = model.new_cache();
    if cache.restore(bytes).is_ok() && cache.len() < CONTEXT {
        forward(model, &mut *cache, &[VOCAB - 1]);
        cache.truncate(3);
        forward(model, &mut *cache, &[1]);
    }
}

#[test]
fn damaged_snapshots_never_panic_and_what_is_refused_changes_nothing() {
    for fixture in ALL {
        let model = load(fixture);
        let mut cache = model.new_cache();
        forward(&*model, &mut *cache, &tokens(30));
        let good = cache.snapshot();
        let mut shared = model.new_cache();
        forward(&*model, &mut *shared, &tokens(5));
        let before = shared.snapshot();
        let mut cuts: Vec<usize> = (0..200.min(good.len())).collect();
        cuts.extend((200..good.len()).step_by(997));
        for cut in cuts {
            assert!(shared.restore(&good[..cut]).is_err(), "{fixture}: {cut} of {} bytes", good.len());
        }
        assert!(shared.restore(&[&good[..], &[0]].concat()).is_err(), "{fixture}: a byte too many");
        assert_eq!(shared.snapshot(), before, "{fixture}: nothing has changed");
        // Counts and places stand in the head and in front of every layer.
        let n_tokens = 30;
        let head = 20 + 3 * 8;
        let layer = |i: usize| head + 4 * n_tokens + i * (good.len() - head - 4 * n_tokens) / 2;
        let places = (0..head).chain(layer(0)..layer(0) + 16).chain(layer(1)..layer(1) + 16);
        for place in places {
            for bits in [0x01, 0x10, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[place] ^= bits;
                survive(&*model, &bytes);
            }
        }
    }
}

#[test]
fn a_snapshot_without_the_first_keys_of_full_attention_is_refused() {
    let model = load(LLAMA);
    let mut cache = model.new_cache();
    forward(&*model, &mut *cache, &tokens(30));
    let good = cache.snapshot();
    // The first layer says that it starts at position 5, and does.
    let (width, gone) = (48, 5);
    let layer = 20 + 3 * 8 + 30 * 4;
    let rows = layer + 16;
    let mut bytes = good[..layer + 8].to_vec();
    bytes.extend((gone as u64).to_le_bytes());
    bytes.extend(&good[rows + gone * 2 * width * 4..]);
    let reason = cache.restore(&bytes).unwrap_err();
    assert!(reason.contains("every position that can still be seen"), "{reason}");
    assert_eq!(cache.snapshot(), good, "nothing has changed");
}

#[test]
fn a_snapshot_that_promises_more_than_it_holds_is_refused_without_allocating() {
    let model = load(LLAMA);
    let mut cache = model.new_cache();
    forward(&*model, &mut *cache, &tokens(3));
    let good = cache.snapshot();
    for (place, value) in [(20, u64::MAX), (20, 1 << 40), (28, u64::MAX), (28, 3)] {
        let mut bytes = good.clone();
        bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
        assert!(cache.restore(&bytes).is_err(), "{value} at {place}");
    }
}

#[test]
fn a_snapshot_of_another_shape_is_refused() {
    let (model, other) = (load(LLAMA), load(EXPERTS));
    let mut of_other = other.new_cache();
    forward(&*other, &mut *of_other, &tokens(5));
    let mut cache = model.new_cache();
    forward(&*model, &mut *cache, &tokens(5));
    let before = cache.snapshot();
    assert_eq!(cache.restore(&of_other.snapshot()), Err("expected keys of 48 elements, found 24".to_owned()));
    assert_eq!(cache.snapshot(), before);
}

#[test]
fn nothing_of_a_sequence_that_is_gone_reaches_the_next() {
    let n = 60;
    for fixture in ALL {
        let model = load(fixture);
        let mut cache = model.new_cache();
        forward(&*model, &mut *cache, &tokens(n));
        let mut snapshot = cache.snapshot();
        // The same with no number for every key and value.
        let head = 20 + 3 * 8 + 4 * n;
        let layer_len = (snapshot.len() - head) / 2;
        for layer in snapshot[head..].chunks_exact_mut(layer_len) {
            layer[16..].chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&f32::NAN.to_le_bytes()));
        }
        let gone = [(); 8].map(|()| {
            let mut cache = model.new_cache();
            cache.restore(&snapshot).unwrap();
            cache
        });
        drop(gone);
        // In pieces of a few tokens and of many, that end within groups and blocks and at their ends.
        let unused = load(fixture);
        let mut next = [model.new_cache(), unused.new_cache()];
        let all = tokens(CONTEXT - 6);
        let mut rest = &all[..];
        for n in [1, 14, 1, 1, 40, 7, 36, 100, 31, 19] {
            let piece = rest.split_off(..n).unwrap();
            let [found, expected] = [(&model, 0), (&unused, 1)]
                .map(|(model, i)| try_forward(&**model, &mut *next[i], piece, Want::AllLogits).unwrap());
            assert!(expected.iter().all(|x| x.is_finite()) && found == expected, "{fixture}: the last of {n}");
            assert!(next[0].snapshot() == next[1].snapshot(), "{fixture}: the last of {n}");
        }
    }
}
