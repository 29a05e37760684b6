//! Whole checkpoints with damaged bytes: from the file to a forward pass, each step refuses or works, and none panics.

use std::sync::Arc;

use kinfolk_cpu::CPU;
use kinfolk_decoder::{Executor, LoadContext, Source, Want};

use crate::fixtures::{path, try_describe, try_forward};

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    File,
    Description,
    Model,
    Logits,
}

fn run(bytes: Vec<u8>) -> Reached {
    let Ok(source) = Source::from_bytes("damaged.gguf", bytes) else { return Reached::File };
    let Ok(decoder) = try_describe(source.config()) else { return Reached::Description };
    let mut context = LoadContext::default();
    context.threads = Some(1);
    let Ok(model) = CPU.load(Arc::new(decoder), &source, &context) else { return Reached::Model };
    let mut cache = model.new_cache();
    for tokens in [&[1, 2, 3][..], &[4], &[5, 6]] {
        match try_forward(&*model, &mut *cache, tokens, Want::LastLogits) {
            Ok(logits) => assert_eq!(logits.len(), model.decoder().embedding.vocab_size),
            // A damaged size may leave no such token or no room for it.
            Err(_) => return Reached::Logits,
        }
        cache.truncate(2);
    }
    Reached::Logits
}

#[test]
fn damaged_checkpoints_are_refused_or_run_and_never_panic() {
    for file in ["llama/model.gguf", "qwen3_moe/model.gguf", "quant-llama/model-Q4_K_M.gguf"] {
        let good = std::fs::read(path(file)).unwrap();
        assert_eq!(run(good.clone()), Reached::Logits, "{file}");
        // Keys and tensor table; the vocabulary in the middle is the tokenizer's.
        let head = good.len().min(24 << 10);
        let mut seen = std::collections::BTreeSet::new();
        for place in (24..head).step_by(149) {
            for bits in [0x01, 0x40, 0xff] {
                let mut bytes = good.clone();
                bytes[place] ^= bits;
                seen.insert(run(bytes));
            }
        }
        assert!(seen.len() > 1, "{file}: nothing was damaged: {seen:?}");
    }
}

#[test]
fn numbers_of_the_metadata_may_be_anything() {
    for file in ["llama/model.gguf", "qwen3_moe/model.gguf"] {
        let good = std::fs::read(path(file)).unwrap();
        // Where a key of the architecture ends, its type (4 bytes) and its number follow.
        let keys = [
            "block_count",
            "context_length",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "attention.head_count_kv",
            "attention.key_length",
            "attention.value_length",
            "rope.dimension_count",
            "rope.freq_base",
            "attention.layer_norm_rms_epsilon",
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
            "vocab_size",
        ];
        let mut n = 0;
        for key in keys {
            let end = good.windows(key.len() + 1).position(|w| w[0] == b'.' && &w[1..] == key.as_bytes());
            let Some(value) = end.map(|at| at + 1 + key.len() + 4) else { continue };
            for number in [0u32, 1, 2, 3, 0x7fff_ffff, u32::MAX, f32::NAN.to_bits(), f32::INFINITY.to_bits(), 1 << 24] {
                let mut bytes = good.clone();
                bytes[value..value + 4].copy_from_slice(&number.to_le_bytes());
                run(bytes);
                n += 1;
            }
        }
        assert!(n > 80, "{file}: {n}");
    }
}
