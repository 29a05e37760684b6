//! The ways a vocabulary can be damaged, and what the switches of encoding mean.

use kinfolk_text::{EncodeOptions, GgufVocabulary, TextError, Tokenizer, TokenizerConfig};
use serde_json::{Value, json};

use crate::toy;

/// A SentencePiece vocabulary with one token of each type and no byte tokens.
fn typed() -> GgufVocabulary {
    let tokens = ["<unk>", "<s>", "</s>", "<x>", "<c>", "\u{2581}", "a", "b", "ab", "<", "x", "c", ">"];
    let types = [2, 3, 3, 4, 3, 1, 1, 1, 1, 1, 1, 1, 1];
    GgufVocabulary {
        kind: "llama".to_owned(),
        tokens: tokens.map(str::to_owned).to_vec(),
        types: Some(types.to_vec()),
        scores: Some(vec![0.0; tokens.len()]),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        add_space_prefix: Some(false),
        ..GgufVocabulary::default()
    }
}

fn error(vocabulary: GgufVocabulary) -> TextError {
    vocabulary.build().expect_err("the vocabulary is damaged")
}

#[track_caller]
fn check_key(vocabulary: GgufVocabulary, expected: &str) {
    match error(vocabulary) {
        TextError::Vocabulary { key, .. } => assert_eq!(key, expected),
        other => panic!("{other}"),
    }
}

// A6: lengths that disagree are errors, never a shorter vocabulary.
#[test]
fn arrays_of_different_lengths_are_errors_that_name_the_key() {
    check_key(GgufVocabulary { scores: Some(vec![0.0; 5]), ..typed() }, "tokenizer.ggml.scores");
    check_key(GgufVocabulary { scores: Some(vec![0.0; 50]), ..typed() }, "tokenizer.ggml.scores");
    check_key(GgufVocabulary { types: Some(vec![1; 5]), ..typed() }, "tokenizer.ggml.token_type");
    check_key(GgufVocabulary { scores: None, ..typed() }, "tokenizer.ggml.scores");
}

// A6: special ids are inside the vocabulary.
#[test]
fn a_special_id_outside_the_vocabulary_is_an_error() {
    check_key(GgufVocabulary { bos: Some(13), ..typed() }, "tokenizer.ggml.bos_token_id");
    check_key(GgufVocabulary { eos: Some(u64::MAX), ..typed() }, "tokenizer.ggml.eos_token_id");
    check_key(GgufVocabulary { unknown: Some(1 << 40), ..typed() }, "tokenizer.ggml.unknown_token_id");
    check_key(GgufVocabulary { bos: None, add_bos: Some(true), ..typed() }, "tokenizer.ggml.bos_token_id");
}

#[test]
fn merges_of_unknown_tokens_and_missing_merges_are_errors() {
    let merges = |merges: Option<Vec<&str>>| GgufVocabulary {
        kind: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        merges: merges.map(|all| all.into_iter().map(str::to_owned).collect()),
        ..typed()
    };
    check_key(merges(None), "tokenizer.ggml.merges");
    check_key(merges(Some(vec!["a b", "a zz"])), "tokenizer.ggml.merges");
    check_key(merges(Some(vec!["ab"])), "tokenizer.ggml.merges");
    assert!(merges(Some(vec!["a b"])).build().is_ok());
}

#[test]
fn kinds_and_rules_without_an_implementation_are_errors_that_list_what_there_is() {
    let message = error(GgufVocabulary { kind: "plamo".to_owned(), ..typed() }).to_string();
    assert!(message.contains("`plamo`") && message.contains("`gpt2`"), "{message}");
    let pre =
        GgufVocabulary { kind: "gpt2".to_owned(), pre: Some("klingon".to_owned()), merges: Some(vec![]), ..typed() };
    let message = error(pre).to_string();
    assert!(message.contains("`klingon`") && message.contains("`llama-bpe`"), "{message}");
}

#[test]
fn a_byte_token_that_spells_no_byte_is_an_error() {
    let mut vocabulary = typed();
    vocabulary.types.as_mut().unwrap()[6] = 6;
    check_key(vocabulary, "tokenizer.ggml.tokens");
}

// C16: with parsing off, control tokens are text and user-defined tokens are tokens still. A22: types map to what they mean.
#[test]
fn parsing_off_spares_user_defined_tokens_only() {
    let tokenizer = typed().build().unwrap();
    let encode =
        |parse_special| tokenizer.encode("a<x><c>", EncodeOptions { add_special: false, parse_special }).unwrap();
    assert_eq!(encode(true), [6, 3, 4]);
    assert_eq!(encode(false), [6, 3, 9, 11, 12]);
    assert!(tokenizer.is_special(4) && tokenizer.is_special(0) && !tokenizer.is_special(3));
    assert_eq!(tokenizer.decode(&[6, 3, 4], true), "a<x>");
    assert_eq!(tokenizer.decode(&[6, 3, 4], false), "a<x><c>");
}

// A21: scores without merges are enough; the highest score goes first, the leftmost of equals.
#[test]
fn the_highest_score_merges_first_and_the_leftmost_of_equals() {
    let tokens = ["<unk>", "a", "b", "c", "ab", "bc", "aa", "abc"];
    let encode = |scores: [f32; 8], text: &str| {
        let vocabulary = GgufVocabulary {
            kind: "llama".to_owned(),
            tokens: tokens.map(str::to_owned).to_vec(),
            types: Some(vec![2, 1, 1, 1, 1, 1, 1, 1]),
            scores: Some(scores.to_vec()),
            unknown: Some(0),
            add_bos: Some(false),
            add_space_prefix: Some(false),
            ..GgufVocabulary::default()
        };
        vocabulary.build().unwrap().encode(text, EncodeOptions::default()).unwrap()
    };
    let abc_last = [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -1.0, f32::NEG_INFINITY];
    assert_eq!(encode(abc_last, "bc"), [5]);
    assert_eq!(encode([0.0, 0.0, 0.0, 0.0, -2.0, -1.0, -1.0, -9.0], "abc"), [7]);
    assert_eq!(encode([0.0, 0.0, 0.0, 0.0, -2.0, -1.0, -1.0, -9.0], "abcc"), [7, 3]);
    assert_eq!(encode([0.0; 8], "aaa"), [6, 1]);
    assert_eq!(encode([f32::NAN; 8], "aaa"), [6, 1]);
    // No byte tokens: what has no token is unknown.
    assert_eq!(encode(abc_last, "a\u{e9}b"), [1, 0, 2]);
}

#[test]
fn a_merge_list_serves_where_there_are_no_scores() {
    let scored = toy::from_vocabulary("spm");
    let root: Value = serde_json::from_str(&toy::json_text("spm")).unwrap();
    let merge = |merge: &Value| match merge {
        Value::String(merge) => merge.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    };
    let merges = root["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    let merged = GgufVocabulary { scores: None, merges: Some(merges), ..toy::vocabulary("spm") }.build().unwrap();
    for text in ["Hello world, this is the thing", "  a  b", "日本"] {
        let options = EncodeOptions::default();
        assert_eq!(merged.encode(text, options).unwrap(), scored.encode(text, options).unwrap(), "{text:?}");
    }
}

// A19: the rule that cuts words changes the ids; a file that names none gets the generic rule.
#[test]
fn another_rule_for_words_gives_other_ids() {
    let encode = |pre: Option<&str>| {
        let tokens = ["1", "2", "12", "'", "t", "'t"];
        let vocabulary = GgufVocabulary {
            kind: "gpt2".to_owned(),
            pre: pre.map(str::to_owned),
            tokens: tokens.map(str::to_owned).to_vec(),
            merges: Some(vec!["1 2".to_owned(), "' t".to_owned()]),
            ..GgufVocabulary::default()
        };
        vocabulary.build().unwrap().encode("12't", EncodeOptions::default()).unwrap()
    };
    assert_eq!(encode(Some("llama-bpe")), [2, 5]);
    assert_eq!(encode(Some("qwen2")), [0, 1, 5]);
    assert_eq!(encode(Some("default")), [2, 3, 4]);
    assert_eq!(encode(None), [2, 3, 4]);
}

#[test]
fn spaces_are_word_marks_for_gemma4_whatever_is_in_the_text() {
    let tokens = ["<bos>", "▁", "a", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>"];
    let vocabulary = GgufVocabulary {
        kind: "gemma4".to_owned(),
        tokens: tokens.map(str::to_owned).to_vec(),
        types: Some(vec![3, 1, 1, 1, 1, 1, 6, 6]),
        merges: Some(vec!["▁ a".to_owned()]),
        bos: Some(0),
        ..GgufVocabulary::default()
    };
    let tokenizer = vocabulary.build().unwrap();
    let ids = tokenizer.encode("a a\n\né", EncodeOptions { add_special: true, parse_special: false }).unwrap();
    assert_eq!(ids, [0, 2, 3, 5, 6, 7]);
    assert_eq!(tokenizer.decode(&ids, true), "a a\n\né");
}

// C19: merges as text and as pairs, and keys nobody knows.
#[test]
fn both_shapes_of_merges_load_and_unknown_keys_are_no_harm() {
    let mut root: Value = serde_json::from_str(&toy::json_text("byte-level")).unwrap();
    let expected = toy::from_json("byte-level").encode("the thing in there", EncodeOptions::default()).unwrap();
    let pairs: Vec<Value> = root["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
    let lines: Vec<Value> = pairs
        .iter()
        .map(|pair| json!(format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())))
        .collect();
    root["from_the_future"] = json!({"a": 1});
    root["model"]["from_the_future"] = json!(true);
    for merges in [pairs, lines] {
        root["model"]["merges"] = Value::Array(merges);
        let tokenizer = Tokenizer::from_json(&root.to_string(), &TokenizerConfig::default()).unwrap();
        assert_eq!(tokenizer.encode("the thing in there", EncodeOptions::default()).unwrap(), expected);
    }
}

fn pair(merge: &Value) -> Value {
    match merge {
        Value::String(merge) => merge.split_once(' ').map(|(left, right)| json!([left, right])).unwrap(),
        pair => pair.clone(),
    }
}

// C19: the error names the section at fault.
#[test]
fn a_damaged_section_is_named() {
    let root: Value = serde_json::from_str(&toy::json_text("byte-level")).unwrap();
    for (section, damage) in [
        ("decoder", json!({"type": "Telepathy"})),
        ("pre_tokenizer", json!({"type": "Split", "pattern": 7})),
        ("normalizer", json!({"type": "Nothing"})),
        ("post_processor", json!({"type": "TemplateProcessing", "single": 1})),
        ("model", json!({"type": "BPE", "vocab": {"a": 0}, "merges": ["a zz"]})),
        ("model", json!({"type": "BPE", "vocab": 1, "merges": []})),
    ] {
        let mut damaged = root.clone();
        damaged[section] = damage;
        match Tokenizer::from_json(&damaged.to_string(), &TokenizerConfig::default()) {
            Err(TextError::TokenizerJson { section: found, .. }) => assert_eq!(found, section),
            other => panic!("{section}: {other:?}"),
        }
    }
    for text in ["", "{", "[]", "{}", "{\"model\": null}"] {
        assert!(Tokenizer::from_json(text, &TokenizerConfig::default()).is_err(), "{text}");
    }
}

#[test]
fn switches_beside_the_tokenizer_have_the_last_word_on_bos() {
    let with = |config: &str| {
        let config = TokenizerConfig::from_json(Some(config), None);
        let tokenizer = Tokenizer::from_json(&toy::json_text("spm"), &config).unwrap();
        let ids = tokenizer.encode("a", EncodeOptions { add_special: true, parse_special: false }).unwrap();
        (ids.first() == tokenizer.bos().as_ref(), ids.last() == tokenizer.eos().as_ref())
    };
    assert_eq!(with(r#"{"eos_token": "</s>"}"#), (true, false));
    assert_eq!(with(r#"{"eos_token": "</s>", "bos_token": "<s>", "add_bos_token": false}"#), (false, false));
    assert_eq!(with(r#"{"eos_token": "</s>", "add_eos_token": true}"#), (true, true));
}

/// Texts that are hard on cutting, matching and merging.
fn hard_texts(n: usize) -> Vec<String> {
    let runs = ["a", " ", "ab", "\n ", "1", "日", "<s", "\u{301}"];
    runs.iter().map(|run| run.repeat(n / run.len()) + "x").collect()
}

// No clock: a step that is quadratic in the length of a word would not end within the harness's limit.
#[test]
fn long_words_and_long_runs_of_anything_come_back() {
    for (name, tokenizer) in toy::all() {
        for text in hard_texts(100_000) {
            let ids = tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: true }).unwrap();
            assert_eq!(tokenizer.decode(&ids, true), text, "{name}");
        }
    }
}

#[test]
fn a_word_of_two_million_characters_comes_back() {
    let text = "ab".repeat(1_000_000);
    for kind in ["byte-level", "spm"] {
        let tokenizer = toy::from_vocabulary(kind);
        let ids = tokenizer.encode(&text, EncodeOptions::default()).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), text, "{kind}");
    }
}
