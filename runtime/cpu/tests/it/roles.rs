//! What a model is loaded for decides what it has.

use std::sync::Mutex;

use kinfolk_decoder::{Cancel, ForwardError, LoadContext, LoadProgress, LoadRole, Sequence, Source, Want};

use crate::fixtures::{ALL, LLAMA, VOCAB, load, load_with, path, source, tokens, try_forward, try_load};

/// The fixture [`LLAMA`], whose head is not tied, less that head.
fn without_head() -> Source {
    let bytes = std::fs::read(path(LLAMA).join("model.safetensors")).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    // As long as before, so that everything else stays where it is.
    let header = String::from_utf8(header.to_vec()).unwrap().replace("lm_head.weight", "another.tensor");
    let bytes = [length.as_slice(), header.as_bytes(), data].concat();
    let mut source = Source::from_bytes("headless.safetensors", bytes).unwrap();
    source.set_config(crate::fixtures::config_with(LLAMA, serde_json::json!({})));
    source
}

fn for_embedding<'a>() -> LoadContext<'a> {
    let mut context = LoadContext::default();
    context.role = LoadRole::Embedding;
    context
}

#[test]
fn hidden_states_are_the_same_in_either_role_with_a_head_in_the_file_or_none() {
    for fixture in ALL {
        let hidden = |role| {
            let model = load_with(fixture, |context| context.role = role);
            assert_eq!(model.role(), role);
            try_forward(&*model, &mut *model.new_cache(), &tokens(20), Want::Hidden).unwrap()
        };
        assert_eq!(hidden(LoadRole::Text), hidden(LoadRole::Embedding), "{fixture}");
    }
    let model = try_load(&without_head(), &for_embedding()).unwrap();
    let expected = load(LLAMA);
    let expected = try_forward(&*expected, &mut *expected.new_cache(), &tokens(20), Want::Hidden);
    assert_eq!(try_forward(&*model, &mut *model.new_cache(), &tokens(20), Want::Hidden), expected);
}

#[test]
fn a_model_for_embeddings_refuses_logits_and_changes_nothing() {
    // A tied head would cost nothing, and is refused all the same: what a model answers depends on its role, not on its file.
    for fixture in [LLAMA, "qwen3"] {
        let model = load_with(fixture, |context| context.role = LoadRole::Embedding);
        let mut caches = [model.new_cache(), model.new_cache()];
        for want in [Want::LastLogits, Want::AllLogits] {
            let [a, b] = &mut caches;
            let mut batch = [
                Sequence { cache: &mut **a, tokens: &[1, 2], want: Want::Hidden },
                Sequence { cache: &mut **b, tokens: &[1, 2], want },
            ];
            assert_eq!(model.forward(&mut batch, &Cancel::new()), Err(ForwardError::NoHead), "{fixture}");
            assert!(caches.iter().all(|cache| cache.is_empty()), "{fixture}");
        }
        assert_eq!(try_forward(&*model, &mut *caches[0], &[1], Want::Nothing), Ok(Vec::new()));
    }
}

#[test]
fn the_head_is_neither_read_nor_counted_where_it_is_not_taken() {
    let head_bytes = u64::from(VOCAB) * 48 * 4;
    let bytes = |role| load_with(LLAMA, |context| context.role = role).weight_bytes();
    assert_eq!(bytes(LoadRole::Text) - bytes(LoadRole::Embedding), head_bytes);
    let seen = Mutex::new(Vec::new());
    let report = |progress: LoadProgress| seen.lock().unwrap().push(progress);
    let mut context = for_embedding();
    context.progress = Some(&report);
    try_load(&source(LLAMA), &context).unwrap();
    let last = *seen.lock().unwrap().last().unwrap();
    let total_bytes = source(LLAMA).tensor_bytes() - head_bytes;
    assert_eq!(last, LoadProgress { done_bytes: total_bytes, total_bytes });
}
