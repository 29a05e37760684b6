//! Kinds of vocabularies that no fixture has, against `tokenizers` and `sentencepiece`.

use kinfolk_text::{EncodeOptions, GgufVocabulary, TextError, Tokenizer, TokenizerConfig, VocabularyOptions};
use serde_json::Value;

use crate::{shared, warnings};

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[track_caller]
fn stream(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> String {
    let mut detokenizer = tokenizer.detokenizer(skip_special);
    let mut text: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
    text.push_str(&detokenizer.finish());
    text
}

/// Every decoder section, as `tokenizers` decodes the whole.
#[test]
fn streamed_text_is_what_tokenizers_decodes() {
    let data = shared::json(shared::data("decoders.json"));
    let mut wrong = Vec::new();
    for (name, entry) in data.as_object().unwrap() {
        let tokenizer = Tokenizer::from_json(&entry["tokenizer"].to_string(), &TokenizerConfig::default()).unwrap();
        for case in entry["encode"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let options = EncodeOptions { add_special: false, parse_special: true };
            let found = tokenizer.encode(text, options).unwrap();
            if found != ids(&case["ids"]) {
                wrong.push(format!("{name} {text:?}: ids {found:?}"));
            }
            let decoded = stream(&tokenizer, &ids(&case["ids"]), true);
            if decoded != case["decoded"].as_str().unwrap() {
                wrong.push(format!("{name} {text:?}: expected {}, found {decoded:?}", case["decoded"]));
            }
            assert_eq!(decoded, tokenizer.decode(&ids(&case["ids"]), true));
        }
        for case in entry["decode"].as_array().unwrap() {
            let decoded = stream(&tokenizer, &ids(&case["ids"]), false);
            if decoded != case["decoded"].as_str().unwrap() {
                wrong.push(format!("{name} {}: expected {}, found {decoded:?}", case["ids"], case["decoded"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn unigram(entry: &Value) -> GgufVocabulary {
    let list = |key: &str| entry[key].as_array().unwrap();
    GgufVocabulary {
        kind: "t5".to_owned(),
        tokens: list("tokens").iter().map(|text| text.as_str().unwrap().to_owned()).collect(),
        scores: Some(list("scores").iter().map(|score| score.as_f64().unwrap() as f32).collect()),
        types: Some(list("types").iter().map(|kind| kind.as_i64().unwrap()).collect()),
        charsmap: Some(list("charsmap").iter().map(|byte| byte.as_u64().unwrap() as u8).collect()),
        remove_extra_whitespaces: entry["remove_extra_whitespaces"].as_bool(),
        add_space_prefix: entry["add_space_prefix"].as_bool(),
        ..GgufVocabulary::default()
    }
}

#[test]
fn unigram_vocabularies_give_the_ids_of_sentencepiece() {
    let data = shared::json(shared::data("unigram.json"));
    let mut wrong = Vec::new();
    for (name, entry) in data.as_object().unwrap() {
        let tokenizer = unigram(entry).build().unwrap();
        for case in entry["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let found = tokenizer.encode(text, EncodeOptions::default()).unwrap();
            if found != ids(&case["ids"]) {
                wrong.push(format!("{name} {text:?}\n  expected {}\n  found    {found:?}", case["ids"]));
            }
        }
        let with_ends = tokenizer.encode("a", EncodeOptions { add_special: true, parse_special: false }).unwrap();
        assert_eq!(with_ends.last(), Some(&1), "{name}: T5 ends its texts");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn unigram_tokens_cover_the_text_they_come_from() {
    let data = shared::json(shared::data("unigram.json"));
    let tokenizer = unigram(&data["rules"]).build().unwrap();
    let text = "ﬁve\u{200b} ｔｈｅ  🚀🚀<x>";
    let tokens = tokenizer.encode_with_offsets(text, EncodeOptions::default()).unwrap();
    let mut covered = 0;
    for token in &tokens {
        assert!(token.range.start >= covered && text.is_char_boundary(token.range.end), "{tokens:?}");
        covered = token.range.end;
    }
    assert_eq!(covered, text.len());
}

fn rwkv() -> GgufVocabulary {
    let tokens = ["<s>", "a", "ab", r"\x20b", "abcd", r"\n", r"\xe6\x97", r"\xa5", "'", r"\\", " "];
    GgufVocabulary {
        kind: "rwkv".to_owned(),
        tokens: tokens.map(str::to_owned).to_vec(),
        types: Some(vec![3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ..GgufVocabulary::default()
    }
}

#[test]
fn rwkv_takes_the_longest_token_and_spells_bytes() {
    let tokenizer = rwkv().build().unwrap();
    let text = "abab\n b日'\\";
    let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap();
    assert_eq!(ids, [2, 2, 5, 3, 6, 7, 8, 9]);
    assert_eq!(stream(&tokenizer, &ids, true), text);
    let error = tokenizer.encode("c", EncodeOptions::default()).unwrap_err();
    assert!(matches!(error, TextError::Encode { .. }), "{error}");
    let unknown = GgufVocabulary { unknown: Some(0), ..rwkv() }.build().unwrap();
    assert_eq!(unknown.encode("ca", EncodeOptions::default()).unwrap(), [0, 1]);
}

#[test]
fn a_model_without_vocabulary_has_ids_and_no_text() {
    for kind in ["no_vocab", "none"] {
        let vocabulary = GgufVocabulary { kind: kind.to_owned(), n_tokens: Some(7), ..GgufVocabulary::default() };
        let tokenizer = vocabulary.build().unwrap();
        assert_eq!((tokenizer.vocab_size(), tokenizer.decode(&[0, 6, 7], false)), (7, String::new()));
        assert!(tokenizer.encode("", EncodeOptions::default()).unwrap().is_empty());
        let error = tokenizer.encode("a", EncodeOptions::default()).unwrap_err();
        assert!(matches!(error, TextError::Encode { .. }), "{error}");
    }
    let endless = GgufVocabulary { kind: "none".to_owned(), n_tokens: Some(u64::MAX), ..GgufVocabulary::default() };
    assert!(endless.build().is_err());
}

/// A vocabulary whose ids show the rule that cuts words.
fn rule(pre: Option<&str>) -> GgufVocabulary {
    let tokens = ["1", "2", "12"];
    GgufVocabulary {
        kind: "gpt2".to_owned(),
        pre: pre.map(str::to_owned),
        tokens: tokens.map(str::to_owned).to_vec(),
        merges: Some(vec!["1 2".to_owned()]),
        ..GgufVocabulary::default()
    }
}

#[test]
fn an_unknown_rule_for_words_is_an_error_unless_the_host_accepts_the_generic_one() {
    let mut options = VocabularyOptions::default();
    assert!(matches!(rule(Some("klingon")).build_with(&options), Err(TextError::UnknownPreTokenizer { .. })));
    options.generic_for_unknown_pre = true;
    let (tokenizer, n_warnings) = warnings::during(|| rule(Some("klingon")).build_with(&options).unwrap());
    assert_eq!(tokenizer.encode("12", EncodeOptions::default()).unwrap(), [2]);
    assert_eq!(n_warnings, 1);
}

// A19: a family may know the rule that its files leave out.
#[test]
fn a_rule_for_words_that_the_file_leaves_out_is_the_familys() {
    let mut options = VocabularyOptions::default();
    let (_, n_warnings) = warnings::during(|| rule(None).build_with(&options).unwrap());
    assert_eq!(n_warnings, 1);
    options.default_pre = Some("qwen2".to_owned());
    for (pre, expected) in [(None, vec![0, 1]), (Some("default"), vec![0, 1]), (Some("gpt-2"), vec![2])] {
        let (tokenizer, n_warnings) = warnings::during(|| rule(pre).build_with(&options).unwrap());
        assert_eq!(tokenizer.encode("12", EncodeOptions::default()).unwrap(), expected, "{pre:?}");
        assert_eq!(n_warnings, 0, "{pre:?}");
    }
}

/// WordPiece by the rules of the file: letters and accents as they are, where it says so.
#[test]
fn word_piece_keeps_letters_and_accents_where_the_file_says_so() {
    let tokens = ["[UNK]", "\u{2581}caf", "e", "\u{2581}Caf", "é", "\u{2581}!", "[CLS]", "[SEP]"];
    let vocabulary = |lowercase: Option<bool>| GgufVocabulary {
        kind: "bert".to_owned(),
        tokens: tokens.map(str::to_owned).to_vec(),
        types: Some(vec![3, 1, 1, 1, 1, 1, 3, 3]),
        unknown: Some(0),
        cls: Some(6),
        sep: Some(7),
        lowercase,
        ..GgufVocabulary::default()
    };
    let encode = |lowercase: Option<bool>, text: &str| {
        let options = EncodeOptions { add_special: true, parse_special: false };
        vocabulary(lowercase).build().unwrap().encode_with_offsets(text, options).unwrap()
    };
    let pairs = |lowercase: Option<bool>, text: &str| -> Vec<(u32, std::ops::Range<usize>)> {
        encode(lowercase, text).into_iter().map(|token| (token.id, token.range)).collect()
    };
    assert_eq!(pairs(None, "Café!"), [(6, 0..0), (1, 0..3), (2, 3..5), (5, 5..6), (7, 6..6)]);
    assert_eq!(pairs(Some(false), "Café!"), [(6, 0..0), (3, 0..3), (4, 3..5), (5, 5..6), (7, 6..6)]);
    assert_eq!(pairs(None, " x "), [(6, 0..0), (0, 1..2), (7, 3..3)]);
}
