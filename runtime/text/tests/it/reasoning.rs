//! Reasoning: what is split from content, and by what.

use std::sync::Arc;

use kinfolk_text::{
    Ending, ParsedReply, Piece, ReasoningTags, ReplyDecoder, ReplyEvent, ReplyOptions, ReplyParser, StopStrings,
    Tokenizer, TokenizerConfig, ToolFormats, ToolSchemas,
};
use serde_json::json;

use crate::text::text;

fn options() -> ReplyOptions {
    let mut options = ReplyOptions::default();
    options.reasoning = Some(ReasoningTags::new("<think>", "</think>"));
    options
}

#[track_caller]
fn check(options: &ReplyOptions, text: &str, reasoning: &str, content: &str) {
    let whole = ReplyParser::parse(options.clone(), text, Ending::Stop);
    assert_eq!((whole.reasoning.as_str(), whole.content.as_str()), (reasoning, content), "{text:?}");
    let mut parser = ReplyParser::new(options.clone());
    let mut streamed = ParsedReply::default();
    for character in text.split_inclusive(|_: char| true) {
        parser.push(character).into_iter().for_each(|event| streamed.add(event));
    }
    parser.finish(Ending::Stop).into_iter().for_each(|event| streamed.add(event));
    assert_eq!(streamed, whole, "{text:?}");
}

// O1: as text, the first closing tag ends the block, in streams and whole texts alike.
#[test]
fn o1_the_first_closing_tag_ends_the_block() {
    check(&options(), "<think>a </think> b </think> c", "a", "b </think> c");
    check(&options(), "<think>a <think> b</think>c", "a <think> b", "c");
}

// O1: where the tags are tokens, their text is text.
#[test]
fn o1_where_a_tag_is_a_token_only_the_token_counts() {
    let mut options = options();
    options.is_token = Some(Arc::new(|text| ["<think>", "</think>"].contains(&text)));
    let token = |text: &str| Piece::Token { text: text.to_owned(), hidden: false };
    let mut parser = ReplyParser::new(options.clone());
    let pieces =
        [token("<think>"), "it ends with </think>, ".into(), "so".into(), token("</think>"), "<think> is a tag".into()];
    let mut reply: ParsedReply = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    parser.finish(Ending::Stop).into_iter().for_each(|event| reply.add(event));
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("it ends with </think>, so", "<think> is a tag"));
    check(&options, "<think>a</think>", "", "<think>a</think>");
}

// O2: the prompt opened the block, so the reply starts inside.
#[test]
fn o2_a_block_that_the_prompt_opened_is_open() {
    let tags = ReasoningTags::new("<think>", "</think>");
    assert!(tags.opened_by("<|im_start|>assistant\n<think>\n"));
    assert!(!tags.opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(!tags.opened_by("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n"));
    let mut options = options();
    options.starts_in_reasoning = true;
    check(&options, "Hm.\n</think>\n\nYes.", "Hm.", "Yes.");
    check(&options, "Hm.", "Hm.", "");
}

// O4: a whole block inside one piece makes three parts in order.
#[test]
fn o4_a_whole_block_in_one_piece_is_three_parts() {
    let mut parser = ReplyParser::new(options());
    let mut events = parser.push("before<think>within</think>after");
    events.extend(parser.finish(Ending::Stop));
    let expected =
        [ReplyEvent::Text("before".into()), ReplyEvent::Reasoning("within".into()), ReplyEvent::Text("after".into())];
    assert_eq!(events, expected);
}

#[test]
fn tags_nobody_knows_are_text() {
    check(&options(), "<reason>a</reason> </think> b <thin", "", "<reason>a</reason> </think> b <thin");
    check(&ReplyOptions::default(), "<think>a</think>b", "", "<think>a</think>b");
}

#[test]
fn white_space_next_to_tags_is_layout_and_other_white_space_is_text() {
    check(&options(), "<think>\n\n a\n b \n</think>\n\n c \n", "a\n b", "c \n");
    check(&options(), "  a\n", "", "  a\n");
    check(&options(), "<think>\n</think>\n", "", "");
    check(&options(), "<think>a</think>b<think>c</think>d", "a\nc", "bd");
}

/// Bytes as tokens 0 to 255, then the tags and a special token.
fn tokenizer() -> Tokenizer {
    let spell = |byte: u8| {
        let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let moved = (0..byte).filter(|&byte| !printable(byte)).count() as u32;
        char::from_u32(if printable(byte) { u32::from(byte) } else { 0x100 + moved }).unwrap().to_string()
    };
    let vocab: serde_json::Map<_, _> = (0..=255u8).map(|byte| (spell(byte), json!(byte))).collect();
    let added = |id: u32, content: &str, special: bool| json!({"id": id, "content": content, "special": special, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    let text = json!({
        "version": "1.0", "normalizer": null, "post_processor": null, "truncation": null, "padding": null,
        "added_tokens": [added(256, "<think>", false), added(257, "</think>", false), added(258, "[TOOL_CALLS]", true), added(259, "<|x|>", true)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    Tokenizer::from_json(&text.to_string(), &TokenizerConfig::default()).unwrap()
}

/// The reply of tokens, text given as bytes.
fn decode(
    tokenizer: &Tokenizer,
    stops: StopStrings,
    options: ReplyOptions,
    ids: &[u32],
) -> (ParsedReply, Option<usize>) {
    let mut decoder = ReplyDecoder::new(tokenizer, stops, options);
    let mut reply: ParsedReply = ids.iter().flat_map(|&id| decoder.push(id)).collect();
    let stopped = decoder.stopped();
    decoder.finish(Ending::Stop).into_iter().for_each(|event| reply.add(event));
    (reply, stopped)
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[test]
fn tokens_are_split_by_their_ids() {
    let tokenizer = tokenizer();
    let ids = [&[256][..], &bytes("a </think> 🌍"), &[257], &bytes("<think>b"), &[259], &bytes("c")].concat();
    let (reply, _) = decode(&tokenizer, StopStrings::new([""; 0]), options(), &ids);
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("a </think> 🌍", "<think>bc"));
}

#[test]
fn a_tag_after_half_a_character_is_still_a_tag() {
    let tokenizer = tokenizer();
    let (reply, _) = decode(&tokenizer, StopStrings::new([""; 0]), options(), &[256, 0xf0, 0x9f, 257, 0x61]);
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("\u{fffd}", "a"));
}

#[test]
fn a_special_token_begins_a_call_although_it_is_hidden() {
    let tokenizer = tokenizer();
    let mut options = options();
    options.format = ToolFormats::linked().get("mistral");
    options.tools = ToolSchemas::new(&[json!({"name": "ping"})]);
    let ids = [&bytes("[TOOL_CALLS] is text. ")[..], &[258], &bytes("ping[ARGS]{\"a\": \"[TOOL_CALLS]\"}")].concat();
    let (reply, _) = decode(&tokenizer, StopStrings::new([""; 0]), options, &ids);
    assert_eq!(reply.content, "[TOOL_CALLS] is text.");
    assert_eq!(reply.tool_calls[0].arguments, r#"{"a": "[TOOL_CALLS]"}"#);
}

#[test]
fn stop_strings_end_text_and_may_name_tokens() {
    let tokenizer = tokenizer();
    let ids = [&[256][..], &bytes("a"), &[257], &bytes("b STOP c")].concat();
    let (reply, stopped) = decode(&tokenizer, StopStrings::new(["STOP"]), options(), &ids);
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str(), stopped), ("a", "b ", Some(0)));
    let (reply, stopped) = decode(&tokenizer, StopStrings::new(["x", "</think>\n"]), options(), &ids);
    assert_eq!((reply.content.as_str(), stopped), ("b STOP c", None));
    let (reply, stopped) = decode(&tokenizer, StopStrings::new(["</think>"]), options(), &ids);
    assert_eq!((reply.reasoning.as_str(), reply.content.as_str(), stopped), ("a", "", Some(0)));
}

#[test]
fn a_model_says_how_its_replies_are_read() {
    let template = "{{ messages[0].content.split('</think>') }} <tool_call>{\"name\": …}</tool_call>";
    let options = text("byte-level", &[("chat_template.jinja", template)], &[]).reply_options(Some("llama3"));
    assert_eq!(options.format.unwrap().name(), "hermes");
    assert_eq!(options.reasoning, Some(ReasoningTags::new("<think>", "</think>")));
    let options = text("byte-level", &[], &[]).reply_options(Some("mistral"));
    assert_eq!(options.format.unwrap().name(), "mistral");
    assert_eq!(options.reasoning, Some(ReasoningTags::new("[THINK]", "[/THINK]")));
}
