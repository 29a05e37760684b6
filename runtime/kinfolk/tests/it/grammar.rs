//! Replies that have to satisfy a grammar.

use std::time::{Duration, Instant};

use kinfolk::{
    sampling::{
        Constraint, Grammar, GrammarCompiler, GrammarError, MAX_GRAMMAR_BYTES, MAX_GRAMMAR_DEPTH, SampleOpts,
        SamplerChain, TokenMask,
    },
    text::{Ends, GgufVocabulary, Tokenizer},
};
use serde_json::{Value, json};

const UNKNOWN: u32 = 0;
const BOS: u32 = 1;
const EOS: u32 = 2;
const TURN_END: u32 = 3;
/// Tokens of the vocabulary below; logits are wider.
const WIDTH: usize = 400;

/// A vocabulary with control tokens, a token for every byte, and pieces that cross the borders of JSON.
fn tokenizer() -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "<|end|>"].map(str::to_owned).to_vec();
    let mut types = vec![2, 3, 3, 3];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    types.extend([6; 256]);
    let pieces = [
        "{\"", "\":", "\",\"", "\"}", "true", "false", "null", "12", "345", "name", "age", "▁", "▁{", "é", "日本",
        "ab", "abc", "a", "b", "[[", "]]", "0", "1", "},{",
    ];
    tokens.extend(pieces.map(str::to_owned));
    types.extend([1; 24]);
    let scores = (0..tokens.len()).map(|i| -(i as f32)).collect();
    let vocabulary = GgufVocabulary {
        kind: "llama".to_owned(),
        tokens,
        scores: Some(scores),
        types: Some(types),
        bos: Some(BOS.into()),
        eos: Some(EOS.into()),
        unknown: Some(UNKNOWN.into()),
        add_space_prefix: Some(false),
        ..GgufVocabulary::default()
    };
    vocabulary.build().unwrap()
}

fn compiler(tokenizer: &Tokenizer) -> GrammarCompiler {
    let mut ends = Ends::default();
    [EOS, TURN_END, 9999].into_iter().for_each(|id| ends.insert(id));
    GrammarCompiler::new(tokenizer, &ends, WIDTH).unwrap()
}

/// Logits without rhyme or reason.
fn logits(seed: u64, step: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step as u64;
    (0..WIDTH)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 22) as f32
        })
        .collect()
}

/// What a model without a clue says under a constraint; `None` if it has not ended after so many tokens.
#[track_caller]
fn reply(tokenizer: &Tokenizer, constraint: Box<dyn Constraint>, options: &SampleOpts, seed: u64) -> Option<String> {
    let mut chain = SamplerChain::new(options).unwrap();
    chain.set_constraint(constraint);
    let mut tokens = Vec::new();
    for step in 0..400 {
        if chain.is_complete() {
            return Some(tokenizer.decode(&tokens, false));
        }
        let token = chain.sample(&logits(seed, step)).unwrap();
        assert!((token as usize) < tokenizer.vocab_size(), "{token} is padding");
        chain.accept(token).unwrap();
        if [EOS, TURN_END].contains(&token) {
            return Some(tokenizer.decode(&tokens, false));
        }
        assert!(!tokenizer.is_special(token), "{token} is a control token");
        tokens.push(token);
    }
    None
}

fn warm(seed: u64) -> SampleOpts {
    SampleOpts { seed: Some(seed), ..SampleOpts::nucleus(1.0, 0.9) }
}

#[test]
fn a_json_schema_makes_json_of_whatever_the_model_says() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "é", "日本"]}, "maxItems": 3},
            "ok": {"type": "boolean"},
        },
        "required": ["name", "age", "tags", "ok"],
        "additionalProperties": false,
        "x-guidance": {"whitespace_flexible": false},
    });
    let mut names = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let options = if seed % 3 == 0 { SampleOpts::greedy() } else { warm(seed) };
        let constraint = compiler.compile(&Grammar::json_schema(&schema)).unwrap();
        let text = reply(&tokenizer, constraint, &options, seed).expect("a bounded schema ends");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let name = value["name"].as_str().unwrap();
        assert!(name.chars().count() <= 8, "{text}");
        assert!(value["age"].as_u64().unwrap() <= 150, "{text}");
        let tags = value["tags"].as_array().unwrap();
        assert!(
            tags.len() <= 3 && tags.iter().all(|tag| ["a", "é", "日本"].contains(&tag.as_str().unwrap())),
            "{text}"
        );
        assert!(value["ok"].is_boolean(), "{text}");
        names.insert(name.to_owned());
    }
    assert!(names.len() > 10, "the model still chooses: {names:?}");
}

#[test]
fn a_regex_is_matched_as_a_whole() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    for seed in 0..20 {
        let constraint = compiler.compile(&Grammar::regex("(ab|日本)+-[0-9]{2,4}")).unwrap();
        let Some(text) = reply(&tokenizer, constraint, &warm(seed), seed) else { continue };
        let (words, digits) = text.split_once('-').unwrap();
        assert!(words.replace("ab", "").replace("日本", "").is_empty() && !words.is_empty(), "{text}");
        assert!((2..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()), "{text}");
    }
}

#[test]
fn a_lark_grammar_is_followed_into_nested_rules() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let grammar = Grammar::lark("start: list\nlist: \"[\" (list | \"1\") \"]\"");
    let mut ended = 0;
    for seed in 0..20 {
        let Some(text) = reply(&tokenizer, compiler.compile(&grammar).unwrap(), &warm(seed), seed) else { continue };
        ended += 1;
        let n = text.find('1').unwrap();
        assert_eq!(text, format!("{}1{}", "[".repeat(n), "]".repeat(n)));
    }
    assert!(ended > 10, "{ended} of 20 came to an end");
}

fn allowed(constraint: &mut Box<dyn Constraint>) -> Vec<u32> {
    let mut mask = TokenMask::new(WIDTH);
    constraint.allow(&mut mask).unwrap();
    (0..WIDTH as u32).filter(|token| mask.contains(*token)).collect()
}

#[test]
fn the_end_is_allowed_exactly_where_the_grammar_can_end() {
    let tokenizer = tokenizer();
    let [a, b] = ["a", "b"].map(|piece| tokenizer.id_of(piece).unwrap());
    let mut constraint = compiler(&tokenizer).compile(&Grammar::regex("ab(ab)?")).unwrap();
    let ends = |constraint: &mut Box<dyn Constraint>| {
        let allowed = allowed(constraint);
        let ends: Vec<u32> = allowed.iter().copied().filter(|token| [EOS, TURN_END].contains(token)).collect();
        (ends, allowed.len())
    };
    assert!(ends(&mut constraint).0.is_empty());
    assert!(constraint.accept(EOS).is_err(), "not yet");
    let mut constraint = compiler(&tokenizer).compile(&Grammar::regex("ab(ab)?")).unwrap();
    constraint.accept(a).unwrap();
    assert!(ends(&mut constraint).0.is_empty());
    constraint.accept(b).unwrap();
    assert_eq!(ends(&mut constraint).0, [EOS, TURN_END], "every end, not only the first");
    assert!(!constraint.is_complete(), "more may follow");
    constraint.accept(a).unwrap();
    constraint.accept(b).unwrap();
    assert!(constraint.is_complete());
    assert_eq!(ends(&mut constraint), (vec![EOS, TURN_END], 2), "nothing but an end");
    constraint.accept(TURN_END).unwrap();
}

#[test]
fn a_token_that_is_not_allowed_is_an_error_that_lasts() {
    let tokenizer = tokenizer();
    let [a, b] = ["a", "b"].map(|piece| tokenizer.id_of(piece).unwrap());
    let mut constraint = compiler(&tokenizer).compile(&Grammar::regex("aaa")).unwrap();
    constraint.accept(a).unwrap();
    assert!(constraint.accept(b).is_err());
    assert!(constraint.allow(&mut TokenMask::new(WIDTH)).is_err());
    assert!(!constraint.is_complete(), "failed, not done");
    for token in [UNKNOWN, BOS, 399, u32::MAX] {
        let mut constraint = compiler(&tokenizer).compile(&Grammar::regex("[^x]*")).unwrap();
        assert!(constraint.accept(token).is_err(), "{token}");
    }
}

#[test]
fn no_grammar_produces_a_control_token_or_padding() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let anything = [
        Grammar::regex("(?s).*"),
        Grammar::lark("start: /(?s).*/"),
        Grammar::lark("start: (<[0-400]> | \"a\")*"),
        Grammar::lark("start: (<[1]> | <[3]> | \"a\")*"),
        Grammar::lark("start: (<s> | <|end|> | \"a\")*"),
        Grammar::json_schema(&json!({"type": "string"})),
        Grammar::json_schema(&json!({"const": "</s><|end|><s>"})),
    ];
    let mut compiled = 0;
    for grammar in anything {
        let Ok(mut constraint) = compiler.compile(&grammar) else { continue };
        compiled += 1;
        let allowed = allowed(&mut constraint);
        assert!(!allowed.contains(&UNKNOWN) && !allowed.contains(&BOS), "{grammar:?}: {allowed:?}");
        assert!(allowed.iter().all(|token| (*token as usize) < tokenizer.vocab_size()), "{grammar:?}: {allowed:?}");
    }
    assert!(compiled >= 4, "{compiled} compiled");
}

#[test]
fn characters_may_be_cut_into_bytes() {
    let tokenizer = tokenizer();
    let byte = |byte: u8| tokenizer.id_of(&format!("<0x{byte:02X}>")).unwrap();
    let mut constraint = compiler(&tokenizer).compile(&Grammar::regex("[é]")).unwrap();
    assert_eq!(allowed(&mut constraint), [byte(0xC3), tokenizer.id_of("é").unwrap()]);
    constraint.accept(byte(0xC3)).unwrap();
    assert_eq!(allowed(&mut constraint), [byte(0xA9)]);
    constraint.accept(byte(0xA9)).unwrap();
    assert!(constraint.is_complete());
}

fn nested_schema(depth: usize) -> Value {
    (0..depth).fold(json!({"type": "null"}), |inner, _| json!({"type": "array", "items": inner}))
}

/// Rules of which each names the next, as many as fit; `first` is the first letter of the alphabet of their names.
fn chain_of_rules(n: usize, first: u8) -> String {
    let name = |i: usize| -> String {
        let digit = |place: u32| char::from(first + (i / 26usize.pow(place) % 26) as u8);
        (0..4).rev().map(digit).collect()
    };
    let rules: String = (0..n).map(|i| format!("{}:{}\n", name(i), name(i + 1))).collect();
    format!("start:{}\n{rules}{}:\"a\"", name(0), name(n))
}

/// Definitions of which each refers to the next.
fn chain_of_references(n: usize) -> Value {
    let definition = |i: usize| (format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", (i + 1) % (n + 1))}));
    let mut definitions: serde_json::Map<String, Value> = (0..n).map(definition).collect();
    definitions.insert(format!("d{n}"), json!({"type": "null"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

#[test]
fn hostile_grammars_are_refused_or_bounded() {
    let tokenizer = tokenizer();
    let compiler = compiler(&tokenizer);
    let deep = MAX_GRAMMAR_DEPTH + 1;
    for grammar in [
        Grammar::json_schema(&nested_schema(deep)),
        Grammar::regex(&format!("{}a{}", "(".repeat(deep), ")".repeat(deep))),
        Grammar::lark(&format!("start: {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000))),
        Grammar::lark(&"[".repeat(100_000)),
    ] {
        let error = compiler.compile(&grammar).unwrap_err();
        assert_eq!(error, GrammarError::TooDeep { max: MAX_GRAMMAR_DEPTH });
    }
    for grammar in [
        Grammar::regex(&"a".repeat(MAX_GRAMMAR_BYTES + 1)),
        Grammar::json_schema(&json!({"const": "a".repeat(MAX_GRAMMAR_BYTES + 1)})),
    ] {
        assert!(matches!(compiler.compile(&grammar), Err(GrammarError::TooLarge { .. })));
    }
    let invalid = [
        Grammar::regex("("),
        Grammar::regex("a{5,2}"),
        Grammar::regex("(?<=a)b"),
        Grammar::regex(r"(a)\1"),
        Grammar::lark(""),
        Grammar::lark("start: missing"),
        Grammar::lark("start: \"unterminated"),
        Grammar::lark("\u{0}\u{1}\u{ff}"),
        Grammar::lark("start: <[99999999999999999999]>"),
        Grammar::lark("start: %json {"),
        Grammar::json_schema(&json!({"type": "no such type"})),
        Grammar::json_schema(&json!({"type": 7})),
        Grammar::json_schema(&json!([])),
        Grammar::json_schema(&json!("text")),
        Grammar::json_schema(&json!(false)),
        Grammar::json_schema(&json!({"$ref": "https://example.com/schema.json"})),
        Grammar::json_schema(&json!({"$ref": "#/nowhere"})),
        Grammar::json_schema(&json!({"type": "integer", "minimum": 5, "maximum": 1})),
        Grammar::json_schema(&json!({"type": "string", "pattern": "("})),
        Grammar::json_schema(&json!({"enum": []})),
    ];
    let mut unexpected = Vec::new();
    for grammar in &invalid {
        match compiler.compile(grammar) {
            Err(GrammarError::Invalid { reason }) => assert!(!reason.is_empty() && !reason.contains("backtrace")),
            other => unexpected.push(format!("{grammar:?}: {other:?}")),
        }
    }
    assert!(unexpected.is_empty(), "expected to be refused:\n{}", unexpected.join("\n"));
    let costly = [
        Grammar::regex("(((a{1000}){1000}){1000}){1000}"),
        Grammar::regex("a{1000000000}"),
        Grammar::regex("(a|b|ab|aa)*a[ab]{30}"),
        Grammar::regex(&format!("({})", vec!["[^a]*b.*c"; 2000].join("|"))),
        Grammar::regex(&"(a?){50}".repeat(50)),
        Grammar::lark("start: start"),
        Grammar::lark("start: a\na: a a | \"a\" | "),
        Grammar::lark("start: x{1000000000}\nx: \"a\""),
        Grammar::lark("start: x{1,1000}\nx: y{1,1000}\ny: z{1,1000}\nz: \"a\""),
        Grammar::lark(&format!("start: {}", vec!["\"a\""; 40_000].join(" | "))),
        Grammar::lark(&format!("start: {}", vec!["x"; 100_000].join(" ")).replace("start: x", "x: \"a\"\nstart: x")),
        Grammar::lark(&chain_of_rules(25_000, b'a')),
        Grammar::lark(&chain_of_rules(25_000, b'A')),
        Grammar::lark(&format!("start: \"a\"{}", "?".repeat(200_000))),
        Grammar::lark(&format!("start: X\nX: {}\"a\"", "~".repeat(200_000))),
        Grammar::lark(&format!("start: X\nX: /a/{}", "&/a/".repeat(60_000))),
        Grammar::regex(&format!("a{}", "?".repeat(200_000))),
        Grammar::regex(&"a|".repeat(120_000)),
        Grammar::regex(&"a".repeat(MAX_GRAMMAR_BYTES)),
        Grammar::json_schema(&chain_of_references(6_000)),
        Grammar::json_schema(&json!({"type": "string", "minLength": 1_000_000_000u64})),
        Grammar::json_schema(&json!({"type": "array", "minItems": 1_000_000_000u64, "items": {"type": "null"}})),
        Grammar::json_schema(&json!({"type": "integer", "multipleOf": 999_999_937u64})),
        Grammar::json_schema(&json!({"$ref": "#"})),
        Grammar::json_schema(&json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]})),
        Grammar::json_schema(&json!({"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]})),
        Grammar::json_schema(&json!({"enum": (0..20_000).collect::<Vec<_>>()})),
        Grammar::json_schema(&nested_schema(90)),
        Grammar::json_schema(&json!({
            "type": "object",
            "properties": (0..2000).map(|i| (format!("key{i}"), json!({"type": "string"}))).collect::<serde_json::Map<_, _>>(),
        })),
    ];
    for grammar in &costly {
        let start = Instant::now();
        let name: String = format!("{grammar:?}").chars().take(100).collect();
        let compiled = compiler.compile(grammar);
        assert!(!matches!(compiled, Err(GrammarError::TooLarge { .. } | GrammarError::TooDeep { .. })), "{name}");
        if let Ok(mut constraint) = compiled {
            for step in 0..10 {
                let mut mask = TokenMask::new(WIDTH);
                let Ok(()) = constraint.allow(&mut mask) else { break };
                let Some(token) = (0..WIDTH as u32).filter(|token| mask.contains(*token)).nth(step % 3) else { break };
                if constraint.accept(token).is_err() {
                    break;
                }
            }
        }
        // An unoptimised build on a busy machine; without the limits some of these do not end at all.
        assert!(start.elapsed() < Duration::from_secs(60), "{name} took {:?}", start.elapsed());
    }
}

#[test]
fn a_compiler_serves_many_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<GrammarCompiler>();
    is_shared::<Grammar>();
}
