//! Loading: progress, cancellation, choices.

use std::{collections::BTreeMap, sync::Mutex};

use kinfolk_cpu::{CPU, LevelError, levels, use_level};
use kinfolk_decoder::{Cancel, Executor, LoadContext, LoadError, LoadProgress, Source};

use crate::fixtures::{
    ALL, CONTEXT, LLAMA, cold, config_with, describe, difference, load, load_with, path, source, tokens, try_load,
};

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

/// The tensors of the plain fixture with feed-forwards of `width`, whose gates, and other projections with `both`, have biases: those of the
/// gates some numbers, the others zeros.
fn with_biases(width: usize, both: bool) -> Source {
    let file = std::fs::read(path(LLAMA).join("model.safetensors")).unwrap();
    let (len, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let header: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header).unwrap();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, tensor) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        let numbers = |key: &str| serde_json::from_value::<Vec<usize>>(tensor[key].clone()).unwrap();
        let (mut shape, at) = (numbers("shape"), numbers("data_offsets"));
        let mut bytes = data[at[0]..at[1]].to_vec();
        if name.contains("mlp.down_proj") {
            let of_row = 4 * shape[1];
            bytes = bytes.chunks(of_row).flat_map(|row| &row[..4 * width]).copied().collect();
            shape[1] = width;
        } else if name.contains("mlp.") {
            bytes.truncate(4 * shape[1] * width);
            shape[0] = width;
            let of_gate = name.contains("gate_proj");
            let bias: Vec<u8> =
                (0..width).flat_map(|i| (if of_gate { i as f32 * 0.01 } else { 0.0 }).to_le_bytes()).collect();
            if of_gate || both {
                tensors.insert(name.replace(".weight", ".bias"), (vec![width], bias));
            }
        }
        tensors.insert(name, (shape, bytes));
    }
    let mut at = 0;
    let place = |(name, (shape, bytes)): (&String, &(Vec<usize>, Vec<u8>))| {
        let start = at;
        at += bytes.len();
        (name.clone(), serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, at]}))
    };
    let header = serde_json::to_string(&tensors.iter().map(place).collect::<BTreeMap<_, _>>()).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    tensors.into_values().for_each(|(_, tensor)| bytes.extend(tensor));
    Source::from_bytes("with biases.safetensors", bytes).unwrap()
}

/// A gate and what it opens for are one matrix where they are alike and have rows enough, and two where not.
#[test]
fn a_bias_counts_alike_whether_or_not_the_other_projection_has_one() {
    for width in [48, 56, 5] {
        let of = |both| {
            let source = with_biases(width, both);
            let config = config_with(LLAMA, serde_json::json!({"intermediate_size": width}));
            let model = CPU.load(describe(&config), &source, &LoadContext::default()).unwrap();
            cold(&*model, &tokens(40))
        };
        let (one, both) = (of(false), of(true));
        assert!(one == both && one.iter().all(|y| y.is_finite()), "{width}: {}", difference(&one, &both));
    }
}
