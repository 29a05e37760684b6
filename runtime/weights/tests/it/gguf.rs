//! GGUF files that are right, wrong, and lying.

use std::time::{Duration, Instant};

use kinfolk_weights::{Dtype, Source, WeightsError};

use crate::{
    allocation::peak_during,
    gguf_bytes::{GgufBytes, string, tensor_type, value_type},
};

fn open(bytes: Vec<u8>) -> Result<Source, WeightsError> {
    Source::from_bytes("case.gguf", bytes)
}

/// The file is refused with one line that names it and holds every part.
#[track_caller]
fn check_refused(bytes: Vec<u8>, parts: &[&str]) {
    let message = open(bytes).unwrap_err().to_string();
    assert!(message.contains("case.gguf") && !message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "expected {part:?} in {message:?}");
    }
}

#[test]
fn versions_2_and_3_open_alike() {
    for version in [2, 3] {
        let source = open(GgufBytes::llama().version(version).build()).unwrap();
        assert_eq!(source.config().usize("num_hidden_layers").unwrap(), 2);
        let tensor = source.tensor("token_embd.weight").unwrap();
        assert_eq!((tensor.info.dtype, tensor.info.shape.as_slice()), (Dtype::F32, &[1, 4][..]));
        assert_eq!(tensor.to_f32().unwrap(), [0.0; 4]);
    }
}

#[test]
fn other_versions_and_byte_orders_are_refused_by_name() {
    check_refused(GgufBytes::llama().version(1).build(), &["version 1", "version 2 or 3"]);
    check_refused(GgufBytes::llama().version(4).build(), &["version 4"]);
    check_refused(GgufBytes::llama().version(3u32.swap_bytes()).build(), &["big-endian"]);
}

#[test]
fn dimensions_are_turned_outermost_first() {
    let source = open(GgufBytes::new().tensor("w", &[2, 3], tensor_type::F32, &[0; 24]).build()).unwrap();
    assert_eq!(source.info("w").unwrap().shape, [2, 3]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = GgufBytes::llama().build();
    assert!(open(whole.clone()).is_ok());
    // The padding behind the last tensor may be missing.
    for length in 0..whole.len() - 16 {
        let error = open(whole[..length].to_vec()).unwrap_err().to_string();
        assert!(error.contains("case.gguf") && !error.contains('\n'), "{length}: {error}");
    }
    assert!(open(whole[..whole.len() - 16].to_vec()).is_ok());
}

#[test]
fn a1_an_empty_key_is_refused_with_its_offset() {
    check_refused(GgufBytes::new().raw("", value_type::U8, &[0]).build(), &["byte offset 24", "metadata key"]);
}

#[test]
fn a2_a_huge_key_length_is_refused_without_allocating() {
    let mut bytes = GgufBytes::new().raw("k", value_type::U8, &[0; 16]).build();
    bytes[24..32].copy_from_slice(&0xFFFF_FFFF_FFFFu64.to_le_bytes());
    let (result, peak) = peak_during(|| open(bytes));
    assert!(result.unwrap_err().to_string().contains("byte offset 24"));
    assert!(peak < 4096, "{peak}");
}

#[test]
fn a2_declared_lengths_and_counts_are_held_against_the_file() {
    let huge = u64::MAX.to_le_bytes();
    let long_text = GgufBytes::new().raw("k", value_type::STRING, &huge);
    check_refused(long_text.build(), &["`k`", "before the end of the file"]);
    for element in [value_type::U8, value_type::U64, value_type::STRING, value_type::ARRAY] {
        check_refused(GgufBytes::new().array("k", element, u64::MAX / 2, &[0; 64]).build(), &["`k`"]);
    }
    check_refused(GgufBytes::llama().build_with_counts(1, u64::MAX), &["metadata keys"]);
    check_refused(GgufBytes::llama().build_with_counts(u64::MAX, 4), &["tensors"]);
}

#[test]
fn a4_an_array_of_another_element_type_is_refused_by_key() {
    let source =
        open(GgufBytes::llama().array("tokenizer.ggml.scores", value_type::U8, 3, &[1, 2, 3]).build()).unwrap();
    let error = source.gguf().unwrap().f32s("tokenizer.ggml.scores").unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.scores") && error.contains("floats") && error.contains("3 u8"), "{error}");
}

#[test]
fn a6_integers_of_any_width_are_read() {
    let widths: [(u32, &[u8]); 4] = [
        (value_type::U8, &[7]),
        (value_type::U32, &[7, 0, 0, 0]),
        (value_type::I32, &[7, 0, 0, 0]),
        (10, &[7, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (kind, bytes) in widths {
        let source = open(GgufBytes::llama().raw("llama.expert_count", kind, bytes).build()).unwrap();
        assert_eq!(source.config().usize("num_local_experts").unwrap(), 7);
        let source = open(GgufBytes::new().array("tokenizer.ggml.token_type", kind, 1, bytes).build()).unwrap();
        assert_eq!(source.gguf().unwrap().i64s("tokenizer.ggml.token_type").unwrap(), Some(vec![7]));
    }
}

#[test]
fn a6_split_count_that_is_no_integer_is_refused_by_key() {
    check_refused(GgufBytes::llama().text("split.count", "two").build(), &["`split.count`", "`two`"]);
    check_refused(GgufBytes::llama().raw("split.count", value_type::I32, &[255; 4]).build(), &["`split.count`", "-1"]);
}

#[test]
fn a_lone_shard_in_memory_is_refused() {
    check_refused(GgufBytes::llama().u32("split.count", 3).build(), &["one of 3 shards"]);
}

#[test]
fn a6_a_missing_or_mistyped_context_length_is_named_as_the_file_spells_it() {
    let without = open(GgufBytes::new().text("general.architecture", "llama").build()).unwrap();
    let error = without.config().usize("max_position_embeddings").unwrap_err().to_string();
    assert!(error.contains("`llama.context_length` is missing"), "{error}");
    let mistyped = GgufBytes::new().text("general.architecture", "llama").text("llama.context_length", "long");
    let mistyped = open(mistyped.build()).unwrap();
    let error = mistyped.config().usize("max_position_embeddings").unwrap_err().to_string();
    assert!(error.contains("`llama.context_length`") && error.contains("`long`"), "{error}");
}

#[test]
fn a7_a_vocabulary_of_200_000_entries_is_parsed_within_its_budget() {
    let tokens: Vec<String> = (0..200_000).map(|i| format!("token{i}")).collect();
    let bytes = GgufBytes::llama().texts("tokenizer.ggml.tokens", &tokens).build();
    let file_len = bytes.len();
    let start = Instant::now();
    let (source, peak) = peak_during(|| open(bytes).unwrap());
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_millis(200), "{elapsed:?}");
    assert!(peak < 2 * file_len, "{peak} bytes for a file of {file_len}");
    let found = source.gguf().unwrap().strs("tokenizer.ggml.tokens").unwrap().unwrap();
    assert!(found.len() == tokens.len() && found.iter().zip(&tokens).all(|(a, b)| a == b));
    assert_eq!(source.config().usize("vocab_size").unwrap(), tokens.len());
}

#[test]
fn arrays_of_bytes_cost_what_they_take_in_the_file() {
    let n = 4 << 20;
    let bytes = GgufBytes::llama().array("llama.k", value_type::U8, n as u64, &vec![1; n]).build();
    let file_len = bytes.len();
    let (source, peak) = peak_during(|| open(bytes).unwrap());
    assert!(peak < 2 * file_len, "{peak} bytes for a file of {file_len}");
    // As a list of a config it is refused rather than expanded.
    let (error, peak) = peak_during(|| source.config().opt_usizes("k").unwrap_err().to_string());
    assert!(error.contains("llama.k") && peak < 4096, "{peak} bytes: {error}");
}

#[test]
fn a11_an_empty_architecture_is_a_missing_one() {
    for bytes in [GgufBytes::new().text("general.architecture", ""), GgufBytes::new()] {
        let source = open(bytes.build()).unwrap();
        assert!(source.config().architectures().is_empty());
        let error = source.config().usize("num_hidden_layers").unwrap_err().to_string();
        assert!(error.contains("`general.architecture` is missing"), "{error}");
    }
}

#[test]
fn a24_retired_and_unknown_tensor_types_are_named_with_their_tensor() {
    let with_type = |id| GgufBytes::new().tensor("blk.0.w", &[1, 32], id, &[0; 128]).build();
    check_refused(with_type(36), &["`blk.0.w`", "36", "IQ4_NL_4_4", "retired"]);
    check_refused(with_type(4), &["`blk.0.w`", "Q4_2", "retired"]);
    check_refused(with_type(99), &["`blk.0.w`", "type 99"]);
    check_refused(with_type(u32::MAX), &["`blk.0.w`"]);
}

#[test]
fn a24_rows_that_do_not_fill_blocks_are_refused() {
    let bytes = GgufBytes::new().tensor("w", &[2, 33], tensor_type::Q4_0, &[0; 64]).build();
    check_refused(bytes, &["`w`", "32", "Q4_0", "33"]);
}

#[test]
fn every_type_of_the_format_is_parsed() {
    for &dtype in Dtype::ALL {
        let Some(id) = dtype.gguf_id() else { continue };
        let row = dtype.block_len() as u64;
        let bytes = GgufBytes::new().tensor("w", &[2, row], id, &vec![0; 2 * dtype.block_bytes()]).build();
        let source = open(bytes).unwrap();
        let tensor = source.tensor("w").unwrap();
        assert_eq!((tensor.info.dtype, tensor.bytes.len()), (dtype, 2 * dtype.block_bytes()));
        assert!(tensor.to_f32().unwrap().iter().all(|x| x.abs() < 1e-30), "{dtype}");
    }
}

#[test]
fn shapes_that_overflow_are_refused() {
    let shapes: [&[u64]; 3] = [&[u64::MAX, u64::MAX], &[1 << 62, 2], &[1 << 32, 1 << 32]];
    for shape in shapes {
        check_refused(GgufBytes::new().descriptor("w", shape, tensor_type::F32, 0).build(), &["`w`"]);
    }
    let five = GgufBytes::new().descriptor("w", &[1; 5], tensor_type::F32, 0);
    check_refused(five.build(), &["`w`", "4 dimensions", "found 5"]);
}

#[test]
fn tensors_outside_the_file_off_their_alignment_or_overlapping_are_refused() {
    let one = GgufBytes::new().tensor("a", &[16], tensor_type::F32, &[0; 64]);
    check_refused(one.clone().descriptor("b", &[16], tensor_type::F32, 64).build(), &["`b`", "incomplete download"]);
    check_refused(one.clone().descriptor("b", &[1], tensor_type::F32, u64::MAX - 31).build(), &["`b`"]);
    check_refused(one.clone().descriptor("b", &[1], tensor_type::F32, 4).build(), &["`b`", "multiple of 32"]);
    check_refused(one.clone().descriptor("b", &[8], tensor_type::F32, 32).build(), &["`a`", "`b`", "overlap"]);
    check_refused(one.clone().descriptor("a", &[0], tensor_type::F32, 0).build(), &["`a`", "twice"]);
}

#[test]
fn alignment_is_honoured_and_checked() {
    let bytes = GgufBytes::new().alignment(128).tensor("a", &[1], 0, &[1; 4]).tensor("b", &[1], 0, &[2; 4]).build();
    let source = open(bytes).unwrap();
    assert_eq!(source.tensor("b").unwrap().bytes, [2; 4]);
    for wrong in [0, 24, 1 << 30] {
        let bytes = GgufBytes::new().u32("general.alignment", wrong).tensor("a", &[1], 0, &[1; 4]).build();
        check_refused(bytes, &["general.alignment", &wrong.to_string()]);
    }
    check_refused(GgufBytes::new().text("general.alignment", "32").build(), &["general.alignment"]);
}

#[test]
fn duplicate_keys_are_refused() {
    check_refused(GgufBytes::new().u32("k", 1).u32("k", 2).build(), &["`k`", "twice"]);
}

#[test]
fn unknown_value_types_are_refused_by_key() {
    check_refused(GgufBytes::new().raw("k", 13, &[0; 8]).build(), &["`k`", "found 13"]);
    check_refused(GgufBytes::new().array("k", 200, 1, &[0; 8]).build(), &["`k`", "found 200"]);
}

#[test]
fn arrays_nested_too_deep_are_refused_and_shallow_ones_skipped() {
    let nested = |depth: usize| {
        let mut value = Vec::new();
        for _ in 0..depth {
            value.extend(value_type::ARRAY.to_le_bytes());
            value.extend(1u64.to_le_bytes());
        }
        value.extend(value_type::U8.to_le_bytes());
        value.extend([1, 0, 0, 0, 0, 0, 0, 0, 9]);
        GgufBytes::llama().raw("k", value_type::ARRAY, &value).u32("after", 5).build()
    };
    let source = open(nested(3)).unwrap();
    assert_eq!(source.gguf().unwrap().u64("after").unwrap(), Some(5));
    assert!(source.gguf().unwrap().i64s("k").is_err());
    check_refused(nested(1000), &["`k`", "nested"]);
}

#[test]
fn text_that_is_not_utf8_opens_and_is_refused_when_asked_for() {
    let mut broken = string("ab");
    broken[8] = 0xff;
    let source = open(
        GgufBytes::llama()
            .raw("general.name", value_type::STRING, &broken)
            .array("tokenizer.ggml.tokens", value_type::STRING, 1, &broken)
            .build(),
    )
    .unwrap();
    let metadata = source.gguf().unwrap();
    assert!(metadata.str("general.name").unwrap_err().to_string().contains("UTF-8"));
    assert!(metadata.strs("tokenizer.ggml.tokens").unwrap_err().to_string().contains("tokenizer.ggml.tokens"));
}

#[test]
fn metadata_is_typed() {
    let source = open(
        GgufBytes::llama()
            .f32("real", 0.5)
            .raw("switch", value_type::BOOL, &[1])
            .raw("damaged", value_type::BOOL, &[2])
            .raw("wide", value_type::U64, &u64::MAX.to_le_bytes())
            .raw("negative", value_type::I32, &(-1i32).to_le_bytes())
            .array("switches", value_type::BOOL, 2, &[0, 1])
            .array("wides", value_type::U64, 1, &u64::MAX.to_le_bytes())
            .build(),
    )
    .unwrap();
    let metadata = source.gguf().unwrap();
    assert_eq!(metadata.f64("real").unwrap(), Some(0.5));
    assert_eq!(metadata.f64("llama.block_count").unwrap(), Some(2.0));
    assert_eq!(metadata.bool("switch").unwrap(), Some(true));
    assert_eq!(metadata.u64("wide").unwrap(), Some(u64::MAX));
    assert_eq!(metadata.bools("switches").unwrap(), Some(vec![false, true]));
    assert_eq!(metadata.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(metadata.str("absent").unwrap(), None);
    assert!(metadata.contains("real") && !metadata.contains("absent"));
    assert!(metadata.u64("negative").is_err());
    assert!(metadata.u64("real").is_err());
    assert!(metadata.u64("switch").is_err());
    assert!(metadata.bool("wide").is_err());
    assert!(metadata.str("real").is_err());
    assert!(metadata.strs("real").is_err());
    assert!(
        metadata.u64("switches").is_err() && metadata.f64("switches").is_err() && metadata.bool("switches").is_err()
    );
    assert!(metadata.bool("damaged").unwrap_err().to_string().contains("damaged bool"));
    assert!(metadata.i64s("wides").is_err());
    assert!(metadata.keys().is_sorted());
}

#[test]
fn an_embedded_file_opens_without_a_directory() {
    let bytes: &'static [u8] = GgufBytes::llama().build().leak();
    let source = Source::from_gguf_bytes("built-in", bytes).unwrap();
    assert_eq!(source.path().to_str(), Some("built-in"));
    assert_eq!(source.sidecar("tokenizer.json").unwrap(), None);
    assert_eq!(source.tensor_bytes(), 16);
    assert!(Source::from_gguf_bytes("built-in", b"not one").is_err());
}

#[test]
fn messages_stay_on_one_line_whatever_names_hold() {
    let bytes = GgufBytes::new().tensor("evil\n\u{1b}[31mname", &[1], 99, &[0; 4]).build();
    check_refused(bytes, &["\\n", "type 99"]);
}
