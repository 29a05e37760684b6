//! What a model is said to take against what it takes.

use std::thread;

use kinfolk_cpu::CPU;
use kinfolk_decoder::{Cancel, Executor, LoadRole, MemoryNeed, Sequence, Want, Workload};
use kinfolk_weights::{Dtype, Source};

use crate::{
    allocation::peak_during,
    fixtures::{ALL, CONTEXT, EXPERTS, LLAMA, WINDOWED, describe, load_with, source, tokens},
};

const QUANTISED: &str = "quant-llama/model-Q4_K_M.gguf";

fn need(source: &Source, workload: &Workload) -> MemoryNeed {
    let decoder = describe(source.config());
    let weights = decoder.bind_for(source, workload.role).unwrap();
    CPU.memory(&decoder, &weights, workload)
}

/// One sequence of `context_length` on one thread, in chunks of `chunk_tokens`.
fn workload(context_length: usize, chunk_tokens: usize) -> Workload {
    let mut workload = Workload::of_context(context_length);
    (workload.chunk_tokens, workload.threads) = (chunk_tokens, Some(1));
    workload
}

#[test]
fn weights_take_what_the_model_says_and_the_norms() {
    for file in [LLAMA, EXPERTS, QUANTISED, "qwen3_moe/model.gguf"] {
        for (packed, role) in [(None, LoadRole::Text), (Some(false), LoadRole::Text), (None, LoadRole::Embedding)] {
            let source = source(file);
            let (mut workload, decoder) = (workload(1, 1), describe(source.config()));
            (workload.packed_weights, workload.role) = (packed, role);
            let model = load_with(file, |context| (context.packed_weights, context.role) = (packed, role));
            let stored = decoder.bind_for(&source, role).unwrap();
            let norms: usize = stored.stored().filter(|s| s.is_vector && !s.slot.bias).map(|s| s.n_elements * 4).sum();
            assert_eq!(need(&source, &workload).weight_bytes, model.weight_bytes() + norms as u64, "{file} {packed:?}");
        }
    }
}

#[test]
fn a_cache_holds_what_is_said_and_a_window_no_more() {
    for file in [LLAMA, WINDOWED] {
        for chunk in [1, 20, CONTEXT] {
            let model = load_with(file, |context| context.threads = Some(1));
            let mut cache = model.new_cache();
            let mut peak = 0;
            for tokens in tokens(CONTEXT).chunks(chunk) {
                let mut batch = [Sequence { cache: &mut *cache, tokens, want: Want::Nothing }];
                model.forward(&mut batch, &Cancel::new()).unwrap();
                peak = peak.max(cache.bytes() as u64);
            }
            let said = need(&source(file), &workload(CONTEXT, chunk)).cache_bytes;
            let tokens = 2 * 4 * CONTEXT as u64;
            assert!(peak <= said + tokens, "{file} by {chunk}: {peak} of {said}");
            if file == LLAMA {
                assert!(peak >= said, "{file} by {chunk}: {peak} of {said}");
            }
        }
    }
}

#[test]
fn a_forward_pass_works_in_what_is_said_and_not_much_less() {
    for file in ALL {
        for n in [64, 250] {
            let model = load_with(file, |context| context.threads = Some(1));
            let mut cache = model.new_cache();
            let tokens = tokens(n);
            let mut batch = [Sequence { cache: &mut *cache, tokens: &tokens, want: Want::LastLogits }];
            // On a thread of its own: a thread keeps what it works in.
            let pass = || peak_during(|| model.forward(&mut batch, &Cancel::new()).unwrap());
            let (_, peak) = thread::scope(|scope| scope.spawn(pass).join().unwrap());
            // What the pass leaves in the cache is not scratch, nor what it held there until a window had passed over it.
            let MemoryNeed { cache_bytes, scratch_bytes: said, .. } = need(&source(file), &workload(n, n));
            let worked_in = (peak as u64).saturating_sub(cache_bytes);
            assert!(worked_in <= said + said / 20, "{file} {n}: {worked_in} of {said}");
            assert!(worked_in * 2 > said, "{file} {n}: {worked_in} of {said}");
        }
    }
}

#[test]
fn several_sequences_take_several_caches() {
    let (source, mut workload) = (source(LLAMA), workload(100, 64));
    let one = need(&source, &workload);
    workload.n_sequences = 7;
    let seven = need(&source, &workload);
    assert_eq!((seven.weight_bytes, seven.cache_bytes), (one.weight_bytes, 7 * one.cache_bytes));
    assert!(seven.scratch_bytes >= one.scratch_bytes);
}

#[test]
fn numbers_too_large_to_count_are_the_largest_there_is() {
    let mut workload = workload(usize::MAX, usize::MAX);
    workload.n_sequences = usize::MAX;
    workload.threads = Some(usize::MAX);
    for file in ALL {
        let need = need(&source(file), &workload);
        assert_eq!((need.cache_bytes, need.total_bytes()), (u64::MAX, u64::MAX), "{file}");
    }
}

#[test]
fn an_outline_needs_what_the_checkpoint_does() {
    for file in ALL {
        let there = source(file);
        let decoder = describe(there.config());
        let config = there.config().clone();
        let nothing = Source::outline(file, there.format(), config.clone(), Vec::new()).unwrap();
        let table = decoder.outline(&nothing, Dtype::F32, true);
        let outline = Source::outline(file, there.format(), config, table).unwrap();
        assert_eq!(need(&outline, &workload(CONTEXT, 64)), need(&there, &workload(CONTEXT, 64)), "{file}");
        assert!(outline.tensor("model.embed_tokens.weight").is_none(), "there are no bytes");
    }
}
