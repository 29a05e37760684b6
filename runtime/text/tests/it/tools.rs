//! Tool calls, against the reference cases and against the ways a reply can be cut.

use std::{collections::HashMap, iter, path::PathBuf, sync::LazyLock};

use kinfolk_text::{
    EncodeOptions, Ending, ParsedReply, ReasoningTags, ReplyDecoder, ReplyEvent, ReplyOptions, ReplyParser,
    StopStrings, Tokenizer, ToolFormats, ToolSchemas,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{shared, text::text};

/// The formats and their cases.
static CASES: LazyLock<Value> = LazyLock::new(|| shared::json(shared::data("toolcalls.json")));

fn tools() -> ToolSchemas {
    ToolSchemas::new(CASES["tools"].as_array().unwrap())
}

/// Reads with a format of the given name, the way a host sets it up.
fn options(format: &str) -> ReplyOptions {
    let mut options = ReplyOptions::default();
    let format = ToolFormats::linked().get(format).unwrap_or_else(|| panic!("no format `{format}`"));
    options.reasoning = format.reasoning();
    options.format = Some(format);
    options.tools = tools();
    options.id_seed = 1;
    options
}

/// The events of a text that comes in pieces, and what they make.
fn stream<'a>(
    options: ReplyOptions,
    pieces: impl IntoIterator<Item = &'a str>,
    ending: Ending,
) -> (Vec<ReplyEvent>, ParsedReply) {
    let mut parser = ReplyParser::new(options);
    let mut events: Vec<ReplyEvent> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish(ending));
    let reply = events.iter().cloned().collect();
    (events, reply)
}

fn characters(text: &str) -> Vec<&str> {
    text.split_inclusive(|_: char| true).collect()
}

/// White space as the reference compares it.
fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A reply in the form of the reference.
fn as_reference(reply: &ParsedReply) -> Value {
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| {
            let arguments: Value = serde_json::from_str(&call.arguments)
                .unwrap_or_else(|error| panic!("arguments {:?} are no JSON: {error}", call.arguments));
            json!({"name": call.name, "arguments": arguments, "id": call.id})
        })
        .collect();
    json!({
        "content": collapsed(&reply.content), "reasoning": collapsed(&reply.reasoning), "tool_calls": calls,
        "incomplete": reply.incomplete.as_deref().map(collapsed),
    })
}

/// Whether a reply is what a case wants. The text of an incomplete call is compared where the case gives it.
fn is(found: &Value, expected: &Value) -> bool {
    let text = |key: &str| collapsed(expected[key].as_str().unwrap_or_default());
    let calls = expected["tool_calls"].as_array().unwrap();
    found["content"] == text("content")
        && found["reasoning"] == text("reasoning")
        && (expected["incomplete"].is_null() || found["incomplete"] == text("incomplete"))
        && found["tool_calls"].as_array().is_some_and(|found| {
            found.len() == calls.len()
                && iter::zip(found, calls).all(|(found, expected)| {
                    found["name"] == expected["name"]
                        && found["arguments"] == expected["arguments"]
                        && (expected["id"].is_null() || found["id"] == expected["id"])
                })
        })
}

fn ending(case: &Value) -> Ending {
    if case["finish"] == "length" { Ending::Length } else { Ending::Stop }
}

fn case_options(format: &str, case: &Value) -> ReplyOptions {
    let mut options = options(format);
    options.starts_in_reasoning = case["starts_in_reasoning"] == true;
    options
}

#[track_caller]
fn check_case(format: &str, case: &Value) {
    let (id, text) = (case["id"].as_str().unwrap(), case["text"].as_str().unwrap());
    let whole = ReplyParser::parse(case_options(format, case), text, ending(case));
    let found = as_reference(&whole);
    assert!(is(&found, &case["expected"]), "{id}: {text:?}\nexpected {}\n   found {found}", case["expected"]);
    for stream_arguments in [false, true] {
        let mut options = case_options(format, case);
        options.stream_arguments = stream_arguments;
        let (_, reply) = stream(options, characters(text), ending(case));
        assert_eq!(reply, whole, "{id}: by characters");
    }
}

fn every_case() -> impl Iterator<Item = (&'static str, &'static Value)> {
    let formats = CASES["formats"].as_object().unwrap();
    formats.iter().flat_map(|(format, cases)| cases.as_array().unwrap().iter().map(move |case| (format.as_str(), case)))
}

// The reference accepts other readings of some cases (`also_accept`); here each is read in the one it prefers.
#[test]
fn every_case_is_read_as_in_the_reference_whole_and_by_characters() {
    assert_eq!(every_case().count(), 187);
    every_case().for_each(|(format, case)| check_case(format, case));
}

/// What a decoder makes of a reply that comes as tokens.
fn by_tokens(tokenizer: &Tokenizer, ids: &[u32], options: ReplyOptions, ending: Ending) -> ParsedReply {
    let mut decoder = ReplyDecoder::new(tokenizer, StopStrings::new(iter::empty::<&str>()), options);
    let mut events: Vec<ReplyEvent> = ids.iter().flat_map(|&id| decoder.push(id)).collect();
    events.extend(decoder.finish(ending));
    events.into_iter().collect()
}

#[test]
fn every_case_is_read_the_same_by_bytes_and_by_tokens() {
    let tokenizer = text("byte-level", &[], &[]).tokenizer;
    let byte_tokens: HashMap<u8, u32> = (0..tokenizer.vocab_size() as u32)
        .filter_map(|id| match tokenizer.token_bytes(id)?.as_ref() {
            [byte] => Some((*byte, id)),
            _ => None,
        })
        .collect();
    for (format, case) in every_case() {
        let text = case["text"].as_str().unwrap();
        let whole = ReplyParser::parse(case_options(format, case), text, ending(case));
        let bytes: Vec<u32> = text.bytes().map(|byte| byte_tokens[&byte]).collect();
        assert_eq!(
            by_tokens(&tokenizer, &bytes, case_options(format, case), ending(case)),
            whole,
            "{}: bytes",
            case["id"]
        );
        let plain = EncodeOptions { add_special: false, parse_special: true };
        let ids = tokenizer.encode(text, plain).unwrap();
        assert!(ids.len() <= bytes.len());
        assert_eq!(
            by_tokens(&tokenizer, &ids, case_options(format, case), ending(case)),
            whole,
            "{}: tokens",
            case["id"]
        );
    }
}

#[test]
fn the_copied_cases_are_those_of_the_reference() {
    let Some(folder) = shared::folder("textref/toolcalls/public") else { return };
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = file.unwrap().path();
        let reference = shared::json(&path);
        for case in reference["cases"].as_array().unwrap() {
            check_case(path.file_stem().unwrap().to_str().unwrap(), case);
            count += 1;
        }
    }
    assert_eq!(count, every_case().count());
}

#[test]
fn every_case_is_told_the_same_wherever_it_is_cut_in_two() {
    for (format, case) in every_case() {
        let text = case["text"].as_str().unwrap();
        let whole = ReplyParser::parse(case_options(format, case), text, ending(case));
        for (place, _) in text.char_indices() {
            let (before, after) = text.split_at(place);
            let (_, reply) = stream(case_options(format, case), [before, after], ending(case));
            assert_eq!(reply, whole, "{}: cut at {place}", case["id"]);
        }
    }
}

/// Cut off anywhere, a reply has only calls that the whole one has, and nothing of the text is lost or made up.
#[test]
fn a_reply_cut_off_anywhere_has_no_call_of_its_own() {
    for (format, case) in every_case().filter(|(_, case)| case["finish"] == "stop") {
        let text = case["text"].as_str().unwrap();
        let whole = ReplyParser::parse(case_options(format, case), text, Ending::Stop);
        for (place, _) in text.char_indices() {
            let cut = ReplyParser::parse(case_options(format, case), &text[..place], Ending::Length);
            // Which of a format's forms this is, code or text, only its end tells.
            let is_prefix = cut.tool_calls.len() <= whole.tool_calls.len()
                && iter::zip(&cut.tool_calls, &whole.tool_calls).all(|(cut, whole)| cut == whole);
            assert!(is_prefix, "{}: cut at {place}: {cut:?}", case["id"]);
        }
    }
}

#[test]
fn a_template_tells_its_format() {
    let Some(folder) = shared::folder("textref/chat/public") else { return };
    let formats = ToolFormats::linked();
    for (template, format) in [
        ("CohereForAI-c4ai-command-r-plus-tool_use", "command-r"),
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r"),
        ("deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1"),
        ("deepseek-ai-DeepSeek-V4", "deepseek-v3.2"),
        ("llama-cpp-deepseek-r1", "deepseek-v3"),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-v3"),
        ("meetkai-functionary-medium-v3.2", "functionary"),
        ("google-gemma-4-31B-it", "gemma4"),
        ("GLM-4.6", "glm4.5"),
        ("openai-gpt-oss-120b", "gpt-oss"),
        ("ibm-granite-granite-3.3-2B-Instruct", "granite"),
        ("ibm-granite-granite-4.0", "hermes"),
        ("Qwen-Qwen2.5-7B-Instruct", "hermes"),
        ("Qwen-Qwen3-0.6B", "hermes"),
        ("Kimi-K2-Instruct", "kimi-k2"),
        ("LFM2-8B-A1B", "pythonic"),
        ("meta-llama-Llama-3.1-8B-Instruct", "llama3"),
        ("meta-llama-Llama-3.2-3B-Instruct", "llama3"),
        ("MiniMax-M1", "minimax"),
        ("MiniMax-M2", "minimax"),
        ("Mistral-Small-3.2-24B-Instruct-2506", "mistral"),
        ("mistralai-Mistral-Nemo-Instruct-2407", "mistral"),
        ("Qwen3-Coder", "qwen3-coder"),
        ("Qwen3.5-4B", "qwen3-coder"),
        ("fireworks-ai-llama-3-firefunction-v2", "phi4-mini"),
        ("ByteDance-Seed-OSS", "seed-oss"),
        ("NVIDIA-Nemotron-Nano-v2", "nemotron"),
        ("unsloth-Apriel-1.5", "apriel"),
    ] {
        let file = shared::json(folder.join(format!("{template}.json")));
        let found = formats.detect(file["template"].as_str().unwrap());
        assert_eq!(found.as_ref().map(|found| found.name()), Some(format), "{template}");
    }
}

#[test]
fn a_template_goes_before_the_family() {
    let formats = ToolFormats::linked();
    let name = |template, convention| formats.choose(template, convention).map(|format| format.name().to_owned());
    assert_eq!(name(Some("<tool_call>"), Some("llama3")).as_deref(), Some("hermes"));
    assert_eq!(name(Some("no tools here"), Some("llama3")).as_deref(), Some("llama3"));
    assert_eq!(name(None, Some("mistral-args")).as_deref(), Some("mistral"));
    assert_eq!(name(None, Some("nobody's")), None);
}

/// Checks content, reasoning and calls (name, arguments), whole and by characters, with arguments streamed or not.
#[track_caller]
fn check(format: &str, text: &str, end: Ending, content: &str, calls: &[(&str, &str)]) -> ParsedReply {
    let whole = ReplyParser::parse(options(format), text, end);
    let found: Vec<(&str, &str)> =
        whole.tool_calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!((whole.content.as_str(), found.as_slice()), (content, calls), "{format}: {text:?}");
    for stream_arguments in [false, true] {
        let mut options = options(format);
        options.stream_arguments = stream_arguments;
        assert_eq!(stream(options, characters(text), end).1, whole, "{format}: {text:?}");
    }
    whole
}

// H1: one value per header; what follows is content, or another header.
#[test]
fn h1_one_value_is_read_per_header() {
    let two = r#"[TOOL_CALLS]ping[ARGS]{"a": 1}add[ARGS]{"b": {}} and then"#;
    check("mistral", two, Ending::Stop, "and then", &[("ping", r#"{"a": 1}"#), ("add", r#"{"b": {}}"#)]);
    let prose = r#"[TOOL_CALLS]ping[ARGS]{"a": 1} That is {all}."#;
    check("mistral", prose, Ending::Stop, "That is {all}.", &[("ping", r#"{"a": 1}"#)]);
    let word = r#"[TOOL_CALLS]ping[ARGS]{}done"#;
    check("mistral", word, Ending::Length, "done", &[("ping", "{}")]);
}

// H2: what looks like an end inside a string is none; a broken envelope stays as it is written.
#[test]
fn h2_an_end_marker_inside_a_string_ends_nothing() {
    let text = "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"})] </tool_call> \\\" }\"}}</tool_call>";
    check("hermes", text, Ending::Stop, "", &[("note", r#"{"text": "})] </tool_call> \" }"}"#)]);
    let broken = "Hm. <tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"x\"]}</tool_call> So.";
    check("hermes", broken, Ending::Stop, broken, &[]);
    let nested = "<tool_call>{'x': '<tool_call>{\"name\": \"ping\", \"arguments\": {}}'}</tool_call>";
    check("hermes", nested, Ending::Stop, nested, &[]);
}

// H4: several objects are several calls where the format can say so; elsewhere the rest is kept, and nothing becomes
// `{}`.
#[test]
fn h4_concatenated_objects_are_never_merged_or_emptied() {
    let calls =
        r#"<tool_call>{"name": "ping", "arguments": {"a": 1}}{"name": "ping", "arguments": {"a": 2}}</tool_call>"#;
    check("hermes", calls, Ending::Stop, "", &[("ping", r#"{"a": 1}"#), ("ping", r#"{"a": 2}"#)]);
    let arguments = r#"[TOOL_CALLS]ping[ARGS]{"a": 1}{"a": 2}"#;
    check("mistral", arguments, Ending::Stop, r#"{"a": 2}"#, &[("ping", r#"{"a": 1}"#)]);
    let text = r#"<tool_call>{"name": "ping", "arguments": "{\"a\":1}{\"a\":2}"}</tool_call>"#;
    check("hermes", text, Ending::Stop, text, &[]);
    let missing = r#"<tool_call>{"name": "add"}</tool_call>"#;
    check("hermes", missing, Ending::Stop, missing, &[]);
}

// H6: JSON without markers is a call only at the start, alone on its line, and of a declared tool.
#[test]
fn h6_json_quoted_in_prose_is_not_a_call() {
    for text in [
        r#"I will not run {"name": "ping", "arguments": {}}."#,
        "I refuse:\n{\"name\": \"ping\", \"arguments\": {}}\nis not safe.",
        r#"{"name": "ping", "arguments": {}} is what I will not run."#,
        r#"{"name": "rm", "arguments": {}}"#,
        r#"{"name": "ping"}"#,
        "[1, 2]",
    ] {
        for format in ["plain-json", "llama3"] {
            check(format, text, Ending::Stop, text, &[]);
        }
    }
    check("llama3", " {\"name\": \"ping\", \"arguments\": {}} ", Ending::Stop, "", &[("ping", "{}")]);
}

// H7: Python literals are parsed, not matched.
#[test]
fn h7_python_calls_with_quotes_and_lists_are_parsed() {
    let text = r#"[note(a=["x, y", {"k": 'v'}], b=True), ping(), add(x=(1, -2.5,), y=None, z='it\'s \u00e9 "q"')]"#;
    let calls = [
        ("note", r#"{"a":["x, y",{"k":"v"}],"b":true}"#),
        ("ping", "{}"),
        ("add", r#"{"x":[1,-2.5],"y":null,"z":"it's é \"q\""}"#),
    ];
    check("pythonic", text, Ending::Stop, "", &calls);
    check("pythonic", &format!("Hm.<|tool_call_start|>{text}<|tool_call_end|>"), Ending::Stop, "Hm.", &calls);
    check("pythonic", "[note(a=[1, 2), ping()]", Ending::Stop, "[note(a=[1, 2), ping()]", &[]);
    check("pythonic", "[x](y) is a link", Ending::Stop, "[x](y) is a link", &[]);
}

// H12: a call that the limit cuts off gets no closing brace, and is told apart.
#[test]
fn h12_a_call_that_is_cut_off_is_incomplete() {
    let text = r#"<tool_call>{"name": "ping", "arguments": {"a": "x"#;
    assert_eq!(check("hermes", text, Ending::Length, "", &[]).incomplete.as_deref(), Some(text));
    assert_eq!(check("hermes", text, Ending::Stop, text, &[]).incomplete, None);
    // While the arguments are streamed, they are what the model wrote, and the call is taken back.
    let mut options = options("hermes");
    options.stream_arguments = true;
    let (events, _) = stream(options, characters(text), Ending::Length);
    let deltas: String = events
        .iter()
        .filter_map(
            |event| if let ReplyEvent::ArgumentsDelta { text, .. } = event { Some(text.as_str()) } else { None },
        )
        .collect();
    assert_eq!(deltas, r#"{"a": "x"#);
    assert!(events.contains(&ReplyEvent::ToolCallAbandoned { index: 0 }));
}

// H14: arguments are streamed in whole characters, and as they come.
#[test]
fn h14_streamed_arguments_are_whole_characters() {
    let text = "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"🌍é\"}}</tool_call>";
    let mut options = options("hermes");
    options.stream_arguments = true;
    let (events, _) = stream(options, characters(text), Ending::Stop);
    let deltas: Vec<&str> = events
        .iter()
        .filter_map(
            |event| if let ReplyEvent::ArgumentsDelta { index: 0, text } = event { Some(text.as_str()) } else { None },
        )
        .collect();
    assert!(deltas.contains(&"🌍") && deltas.contains(&"é"), "{deltas:?}");
    assert_eq!(deltas.concat(), r#"{"text": "🌍é"}"#);
}

#[test]
fn ids_and_indexes_do_not_depend_on_how_the_text_is_cut() {
    let text = r#"<tool_call>{"name": "ping", "arguments": {}}</tool_call><tool_call>{"name": "ping", "arguments": {}}</tool_call>"#;
    let reply = check("hermes", text, Ending::Stop, "", &[("ping", "{}"), ("ping", "{}")]);
    assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id);
    let (events, _) = stream(options("hermes"), characters(text), Ending::Stop);
    let starts: Vec<usize> = events
        .iter()
        .filter_map(|event| if let ReplyEvent::ToolCallStart { index, .. } = event { Some(*index) } else { None })
        .collect();
    assert_eq!(starts, [0, 1]);
}

#[test]
fn without_declared_tools_a_call_is_text() {
    for (format, case) in
        every_case().filter(|(_, case)| !case["expected"]["tool_calls"].as_array().unwrap().is_empty())
    {
        let mut options = case_options(format, case);
        options.tools = ToolSchemas::default();
        let reply = ReplyParser::parse(options, case["text"].as_str().unwrap(), ending(case));
        assert_eq!(reply.tool_calls, [], "{}", case["id"]);
    }
}

#[test]
fn text_and_calls_keep_their_order() {
    let text = "One <tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call> two <think>hm</think> three.";
    let (events, reply) = stream(options("hermes"), [text], Ending::Stop);
    let kinds: Vec<String> = events
        .iter()
        .map(|event| match event {
            ReplyEvent::Text(text) => format!("text {}", text.trim()),
            ReplyEvent::Reasoning(text) => format!("reasoning {text}"),
            ReplyEvent::ToolCallStart { name, .. } => format!("call {name}"),
            ReplyEvent::ArgumentsDelta { text, .. } => text.clone(),
            other => format!("{other:?}"),
        })
        .collect();
    let expected =
        ["text One", "call ping", "{}", "ToolCallEnd { index: 0 }", "text two", "reasoning hm", "text three."];
    assert_eq!(kinds, expected);
    assert_eq!(reply.content, "One  two  three.");
}

#[test]
fn formats_of_which_the_reference_has_no_cases_are_read() {
    let seed = "Hm.<seed:tool_call>\n<function=note>\n<parameter=text>a\n</parameter>\n</function>\n</seed:tool_call>";
    check("seed-oss", seed, Ending::Stop, "Hm.", &[("note", r#"{"text":"a\n"}"#)]);
    let array = r#"[{"name": "ping", "arguments": {}}, {"name": "add", "arguments": {"a": 1}}]"#;
    let calls = [("ping", "{}"), ("add", r#"{"a": 1}"#)];
    check("nemotron", &format!("A<TOOLCALL>{array}</TOOLCALL>"), Ending::Stop, "A", &calls);
    check("apriel", &format!("A\n<tool_calls>{array}</tool_calls>\n"), Ending::Stop, "A", &calls);
    check(
        "command-r",
        "Action:```json\n[{\"tool_name\": \"ping\", \"parameters\": {}}]\n```",
        Ending::Stop,
        "",
        &calls[..1],
    );
}

/// Cut off before it has named a tool, text without markers is not taken for a call.
#[test]
fn text_that_only_begins_like_a_call_is_kept_when_it_is_cut_off() {
    for (format, text) in [
        ("plain-json", r#"{"name": "Bob", "a"#),
        ("llama3", r#"{"name": "pi"#),
        ("pythonic", "[see"),
        ("pythonic", "[1, "),
    ] {
        assert_eq!(check(format, text, Ending::Length, text, &[]).incomplete, None);
    }
    assert_eq!(check("pythonic", "[ping(a=", Ending::Length, "", &[]).incomplete.as_deref(), Some("[ping(a="));
}

#[test]
fn a_model_is_read_by_its_template_and_its_family() {
    let options = ReplyOptions::for_model(Some("<tool_call> [THINK] [/THINK]"), Some("llama3"));
    assert_eq!(options.format.unwrap().name(), "hermes");
    assert_eq!(options.reasoning, Some(ReasoningTags::new("[THINK]", "[/THINK]")));
    let options = ReplyOptions::for_model(None, Some("gemma4"));
    assert_eq!(options.reasoning, Some(ReasoningTags::new("<|channel>thought", "<channel|>")));
}

#[test]
fn harmony_goes_on_in_reasoning_that_the_prompt_opened() {
    let mut options = options("gpt-oss");
    options.starts_in_reasoning = true;
    let reply =
        ReplyParser::parse(options, "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", Ending::Stop);
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("Hm.", "Yes."));
}

#[test]
fn harmony_keeps_preambles_and_reads_code_for_python() {
    let text = "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>analysis to=python code<|message|>1 + \"a\"";
    check("gpt-oss", text, Ending::Stop, "Let me see.", &[("python", r#"{"code":"1 + \"a\""}"#)]);
    check("gpt-oss", "assistant means helper", Ending::Stop, "assistant means helper", &[]);
}

#[test]
fn values_of_elements_may_quote_their_own_tags() {
    let text = "<tool_call>\n<function=note>\n<parameter=text>\na </parameter> b </function> </tool_call>\n\n</parameter>\n\
                </function>\n</tool_call>";
    let json = r#"{"text":"a </parameter> b </function> </tool_call>\n"}"#;
    check("qwen3-coder", text, Ending::Stop, "", &[("note", json)]);
}

#[test]
fn a_value_of_the_wrong_type_is_no_call() {
    let text = "<tool_call>\n<function=get_weather>\n<parameter=days>\nthree\n</parameter>\n</function>\n</tool_call>";
    check("qwen3-coder", text, Ending::Stop, text, &[]);
}

/// Text made of what formats are made of.
fn shreds() -> impl Strategy<Value = String> {
    let shred = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ":",
        ",",
        "name",
        "\"name\"",
        "\"arguments\"",
        "\"ping\"",
        "ping",
        "{\"name\": \"ping\", \"arguments\": {",
        "}}",
        "<function=",
        "note",
        ">",
        "</function>",
        "<parameter=",
        "text",
        "</parameter>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "<|python_tag|>",
        "ping.call(",
        "a=1",
        ")",
        "<start_function_call>",
        "call:ping{",
        "<escape>",
        "<end_function_call>",
        "<|tool_call>",
        "<tool_call|>",
        "<|\"|>",
        "<|channel|>",
        "analysis",
        "commentary to=functions.ping",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "assistant",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "function",
        "<｜tool▁sep｜>",
        "```json",
        "```",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "functions.ping:0",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        "<|tool_call|>",
        "<|/tool_call|>",
        "functools[",
        "<response>",
        "</response>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "Action: ",
        ">>>",
        "all",
        "\n",
        " ",
        "<minimax:tool_call>",
        "<invoke name=\"ping\">",
        "<parameter name=\"a\">",
        "</invoke>",
        "<tool_calls>",
        "é🌍",
        "1",
        "true",
        "'",
        "(",
        "=",
        ";",
    ]);
    prop::collection::vec(prop_oneof![9 => shred.prop_map(str::to_owned), 1 => "\\PC{0,3}"], 0..40)
        .prop_map(|shreds| shreds.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text, cut anywhere, is told the same; every call told is well-formed; nothing panics.
    #[test]
    fn any_text_is_told_the_same_however_it_comes(
        text in shreds(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8), length in any::<bool>(), opened in any::<bool>(),
    ) {
        let end = if length { Ending::Length } else { Ending::Stop };
        let pieces = cut(&text, &cuts);
        for name in ToolFormats::linked().names() {
            let set = |stream_arguments| {
                let mut options = options(name);
                options.starts_in_reasoning = opened;
                options.stream_arguments = stream_arguments;
                options
            };
            let whole = ReplyParser::parse(set(false), &text, end);
            for call in &whole.tool_calls {
                prop_assert!(serde_json::from_str::<serde_json::Map<String, Value>>(&call.arguments).is_ok(), "{}: {:?}", name, call);
            }
            prop_assert_eq!(&stream(set(false), pieces.clone(), end).1, &whole, "{}", name);
            prop_assert_eq!(&stream(set(true), characters(&text), end).1, &whole, "{}", name);
        }
    }

    /// Text without any markup comes out as it went in.
    #[test]
    fn text_without_markup_is_unchanged(text in "[a-z .,é🌍\n]{0,60}") {
        for name in ToolFormats::linked().names() {
            let reply = ReplyParser::parse(options(name), &text, Ending::Stop);
            prop_assert_eq!(&reply.content, &text, "{}", name);
        }
    }
}

/// A text in pieces.
pub fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let places: Vec<usize> = text.char_indices().map(|(place, _)| place).chain([text.len()]).collect();
    let mut chosen: Vec<usize> = cuts.iter().map(|cut| *cut.get(&places)).chain([0, text.len()]).collect();
    chosen.sort_unstable();
    chosen.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

/// A marker that never comes, or a call that never ends, costs no more than its text: ten times the text takes about
/// ten times as long.
#[test]
fn reading_is_linear_in_the_text() {
    let time = |format: &str, head: &str, body: &str, times: usize| {
        let mut parser = ReplyParser::new(options(format));
        let start = std::time::Instant::now();
        parser.push(head);
        (0..times).for_each(|_| drop(parser.push(body)));
        parser.finish(Ending::Stop);
        start.elapsed().as_secs_f64()
    };
    for (format, head, body) in [
        ("hermes", "", "<tool_cal"),
        ("hermes", "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"", "x\\\""),
        ("hermes", "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": [", "[], "),
        ("hermes", "", " "),
        ("qwen3-coder", "<tool_call>\n<function=note>\n<parameter=text>\n", "\n</parameter>\n"),
        ("qwen3-coder", "<tool_call>\n<function=note>\n<parameter=text>\n</parameter>", " "),
        ("mistral", "[TOOL_CALLS]", "a"),
        ("mistral", "[TOOL_CALLS]ping[ARGS]{}", "a"),
        ("functionary", "all\n", ">>>"),
        ("plain-json", "{\"name\": \"", "ping"),
    ] {
        // The machine may be busy with other things; what is not linear is slow in every attempt.
        let attempts: Vec<(f64, f64)> =
            (0..5).map(|_| (time(format, head, body, 2_000), time(format, head, body, 20_000))).collect();
        let is_linear = attempts.iter().any(|(few, many)| *many < few * 30.0);
        assert!(is_linear, "{format} {head:?} {body:?}: seconds for 2000 and for 20000 pieces: {attempts:?}");
    }
}

#[test]
fn reasoning_tags_are_those_of_the_template() {
    let tags = |template: &str| ReasoningTags::detect(template).map(|tags| tags.open);
    assert_eq!(tags("{{ '<think>' }}{{ content.split('</think>') }}").as_deref(), Some("<think>"));
    assert_eq!(tags("[THINK][/THINK]").as_deref(), Some("[THINK]"));
    assert_eq!(tags("no reasoning"), None);
}
