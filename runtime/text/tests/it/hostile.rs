//! Files from strangers: whatever is in them, the answer is a value or an error.

use kinfolk_text::{ChatTemplate, Clock, EncodeOptions, GgufVocabulary, Tokenizer, TokenizerConfig};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::toy;

fn use_it(tokenizer: &Tokenizer, text: &str) {
    for parse_special in [false, true] {
        if let Ok(ids) = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special }) {
            tokenizer.decode(&ids, parse_special);
        }
        let _ = tokenizer.encode_with_offsets(text, EncodeOptions { add_special: false, parse_special });
    }
}

/// Values to put where something else was.
fn damage() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(4_294_967_295u32),
        json!(1e300),
        json!(""),
        json!("▁"),
        json!("\u{10ffff}"),
        json!([]),
        json!({}),
        json!([["a", "b"]]),
        json!({"type": "ByteLevel"}),
        json!({"type": "Split", "pattern": {"Regex": "(?!)*+("}, "behavior": "Isolated", "invert": false}),
        json!({"type": "Split", "pattern": {"Regex": ""}, "behavior": "Removed", "invert": true}),
    ])
}

/// Replaces one value somewhere inside another; `path` says where.
fn replace_at(value: &mut Value, path: &[prop::sample::Index], by: &Value) {
    let Some((here, rest)) = path.split_first() else {
        *value = by.clone();
        return;
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            let nth = here.index(items.len());
            replace_at(&mut items[nth], rest, by);
        }
        Value::Object(members) if !members.is_empty() => {
            let nth = here.index(members.len());
            if let Some(member) = members.values_mut().nth(nth) {
                replace_at(member, rest, by);
            }
        }
        other => *other = by.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_tokenizer_json_is_an_error_or_a_tokenizer(
        kind in prop::sample::select(&toy::KINDS[..]),
        path in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        by in damage(),
        text in "[ -~é▁<s>]{0,30}",
    ) {
        let mut root: Value = serde_json::from_str(&toy::json_text(kind)).unwrap();
        replace_at(&mut root, &path, &by);
        if let Ok(tokenizer) = Tokenizer::from_json(&root.to_string(), &TokenizerConfig::default()) {
            use_it(&tokenizer, &text);
        }
    }

    #[test]
    fn a_truncated_tokenizer_json_is_an_error(kind in prop::sample::select(&toy::KINDS[..]), cut in any::<prop::sample::Index>()) {
        let text = toy::json_text(kind);
        let cut = text.char_indices().map(|(at, _)| at).nth(cut.index(text.chars().count() - 1)).unwrap();
        prop_assert!(Tokenizer::from_json(&text[..cut], &TokenizerConfig::default()).is_err());
    }

    #[test]
    fn a_random_vocabulary_is_an_error_or_a_tokenizer(
        kind in prop::sample::select(vec!["gpt2", "llama", "gemma4", "bert", "t5", "rwkv", "no_vocab"]),
        pre in prop::option::of(prop::sample::select(vec!["gpt-2", "llama-bpe", "jais-2", "superbpe", "tiny_aya", "whitespace", "sarvam-moe"])),
        tokens in prop::collection::vec("[ab ▁Ġé<>\n]{0,3}", 0..12),
        types in prop::collection::vec(-1i64..8, 12),
        scores in prop::collection::vec(prop::num::f32::ANY, 12),
        pairs in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
        ids in prop::array::uniform3(prop::option::of(0u64..14)),
        add in prop::array::uniform3(prop::option::of(any::<bool>())),
        text in "[ab ▁é<>\n\t1-9]{0,40}",
    ) {
        let n_tokens = tokens.len();
        let spelled = |at: &prop::sample::Index| if n_tokens == 0 { "" } else { tokens[at.index(n_tokens)].as_str() };
        let merges = pairs.iter().map(|(left, right)| format!("{} {}", spelled(left), spelled(right))).collect();
        let vocabulary = GgufVocabulary {
            kind: kind.to_owned(),
            pre: pre.map(str::to_owned),
            merges: Some(merges),
            types: Some(types[..n_tokens].to_vec()),
            scores: Some(scores[..n_tokens].to_vec()),
            tokens,
            bos: ids[0],
            eos: ids[1],
            unknown: ids[2],
            add_bos: add[0],
            add_eos: add[1],
            add_space_prefix: add[2],
            model_name: Some("phi-3".to_owned()),
            ..GgufVocabulary::default()
        };
        if let Ok(tokenizer) = vocabulary.build() {
            use_it(&tokenizer, &text);
        }
    }

    #[test]
    fn a_random_template_is_an_error_or_text(parts in prop::collection::vec(prop::sample::select(vec![
        "{%", "%}", "{{", "}}", "{#", "#}", "{%-", "-%}", " generation ", " endgeneration ", " if x ", " endif ", " for m in messages ",
        " endfor ", " m.content ", " m ", "'", "\"", "\\", " raw ", " endraw ", " | tojson(indent=-1) ", " | indent(m) ", " | int ", "x",
        " messages[0].content.split('', -5) ", " strftime_now('%Q %') ", " raise_exception(m) ", " 'é'[1:] ", " x.zfill(9999999999) ",
        " break ", " set x = x + 'é' ", " 1 // 0 ", " 'a'.index('b') ", " 2 ** 999 ", " -x ", " m | float ", "日", "\n",
    ]), 0..14)) {
        if let Ok(template) = ChatTemplate::new(&parts.concat(), &TokenizerConfig::default()) {
            let mut variables = Map::new();
            variables.insert("messages".to_owned(), json!([{"role": "user", "content": "é x"}, {"content": null}]));
            variables.insert("x".to_owned(), json!("é-1"));
            let _ = template.render_variables("default", &variables, Clock::Local);
        }
    }
}
