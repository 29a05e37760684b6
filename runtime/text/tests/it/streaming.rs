//! Streamed text is the text of all tokens at once, for every kind of vocabulary.

use kinfolk_text::{EncodeOptions, Tokenizer, TokenizerConfig};
use proptest::prelude::*;
use serde_json::json;

use crate::toy;

/// What the bytes of the tokens are as text, written independently of the detokenizer.
fn batch(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool, strips_space: bool) -> String {
    let shown = ids.iter().filter(|&&id| !(skip_special && tokenizer.is_special(id)));
    let bytes: Vec<u8> =
        shown.filter_map(|&id| tokenizer.token_bytes(id)).flat_map(|bytes| bytes.into_owned()).collect();
    let bytes = if strips_space { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn check(name: &str, tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) {
    let mut detokenizer = tokenizer.detokenizer(skip_special);
    let mut streamed: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
    streamed.push_str(&detokenizer.finish());
    let strips_space = name.starts_with("spm (");
    assert_eq!(streamed, batch(tokenizer, ids, skip_special, strips_space), "{name}: {ids:?}");
    assert_eq!(streamed, tokenizer.decode(ids, skip_special), "{name}: {ids:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streamed_text_is_the_text_of_all_tokens_at_once(ids in prop::collection::vec(0u32..400, 0..60), skip in any::<bool>()) {
        for (name, tokenizer) in toy::all() {
            check(&name, &tokenizer, &ids, skip);
        }
    }

    #[test]
    fn texts_come_back(text in "\\PC{0,40}") {
        for (name, tokenizer) in toy::all() {
            let ids = tokenizer.encode(&text, EncodeOptions::default()).unwrap();
            let decoded = tokenizer.decode(&ids, true);
            // The word mark cannot be told from the space it stands for.
            let expected = if name.starts_with("spm") { text.replace('\u{2581}', " ") } else { text.clone() };
            prop_assert_eq!(decoded, expected, "{}", name);
        }
    }
}

/// A byte-level vocabulary with one token per byte, id = byte, and some more. `decoder` is the section as published.
fn byte_vocabulary(decoder: serde_json::Value) -> Tokenizer {
    let spell = |byte: u8| -> String {
        // The alphabet of GPT-2, by its definition: printable bytes as they are, the others from U+0100 up.
        let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let moved = (0..byte).filter(|&byte| !printable(byte)).count() as u32;
        char::from_u32(if printable(byte) { u32::from(byte) } else { 0x100 + moved }).unwrap().to_string()
    };
    let mut vocab: serde_json::Map<_, _> = (0..=255u8).map(|byte| (spell(byte), json!(byte))).collect();
    vocab.insert("Ġa".to_owned(), json!(256));
    vocab.insert("Ġin".to_owned(), json!(300));
    let text = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null, "truncation": null, "padding": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    Tokenizer::from_json(&text.to_string(), &TokenizerConfig::default()).unwrap()
}

fn byte_level() -> Tokenizer {
    byte_vocabulary(json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}))
}

#[track_caller]
fn stream(tokenizer: &Tokenizer, ids: &[u32], expected: &[&str]) {
    let mut detokenizer = tokenizer.detokenizer(true);
    let mut found: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    found.push(detokenizer.finish());
    assert_eq!(found, expected);
}

// C1: word-start spaces survive token-by-token decoding; the batch text is the concatenation.
#[test]
fn spaces_at_word_starts_survive_streaming() {
    let tokenizer = toy::from_json("spm");
    let ids = tokenizer.encode("I am ok", EncodeOptions::default()).unwrap();
    let mut detokenizer = tokenizer.detokenizer(true);
    let streamed: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
    assert_eq!(streamed, "I am ok");
}

// C2: only the one space that encoding put in front is dropped.
#[test]
fn the_first_token_loses_only_the_space_in_front() {
    let text = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null, "truncation": null, "padding": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false},
        "model": {"type": "BPE", "vocab": {"▁in▁the": 0, "▁▁x": 1}, "merges": []},
    });
    let tokenizer = Tokenizer::from_json(&text.to_string(), &TokenizerConfig::default()).unwrap();
    stream(&tokenizer, &[0, 0], &["in the", " in the", ""]);
    stream(&tokenizer, &[1], &[" x", ""]);
}

// C4, C6: a byte that can no longer become a character is U+FFFD at once, and the stream goes on.
#[test]
fn an_invalid_byte_is_replaced_and_the_stream_goes_on() {
    stream(&byte_level(), &[0xff, 256], &["\u{fffd}", " a", ""]);
    stream(&byte_level(), &[0xe9, u32::from(b'\'')], &["", "\u{fffd}'", ""]);
}

// C7: a truncated tail is held, also across tokens; a token that starts with a space proves it broken.
#[test]
fn only_a_truncated_tail_is_held() {
    stream(&byte_level(), &[0xe4, 0xbd, 0xa0], &["", "", "你", ""]);
    stream(&byte_level(), &[0xe4, 0xbd, 256, 0xa0], &["", "", "\u{fffd} a", "\u{fffd}", ""]);
    stream(&byte_level(), &[u32::from(b'x'), 0xf0, 0x9f], &["x", "", "", "\u{fffd}"]);
}

// C9: the byte-level pre-tokenizer says how tokens are spelled, whatever the decoder section claims.
#[test]
fn a_byte_level_vocabulary_with_a_sentencepiece_decoder_streams_spaces() {
    let tokenizer = byte_vocabulary(json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]}));
    stream(&tokenizer, &[u32::from(b'x'), 256, 256], &["x", " a", " a", ""]);
}

// C11: a combining mark comes out once, after its base.
#[test]
fn a_combining_mark_does_not_repeat_its_base() {
    stream(&byte_level(), &[u32::from(b'e'), 0xcc, 0x81, u32::from(b'x')], &["e", "", "\u{301}", "x", ""]);
}

// C12: ids without a token add nothing.
#[test]
fn holes_add_nothing() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.vocab_size(), 301);
    stream(&tokenizer, &[270, 300, 299, 5000, u32::MAX], &["", " in", "", "", "", ""]);
    assert_eq!((tokenizer.token_bytes(270), tokenizer.token_text(270)), (None, None));
}
