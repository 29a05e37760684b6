//! A reply reads the same whole and in pieces, in every format.

#![no_main]

use kinfolk_text::{Ending, ParsedReply, ReplyEvent, ReplyOptions, ReplyParser, ToolFormats, ToolSchemas};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use serde_json::json;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    format: u8,
    text: &'a str,
    cuts: Vec<u8>,
    complete: bool,
}

fuzz_target!(|input: Input| {
    let formats = ToolFormats::linked();
    let names: Vec<&str> = formats.names().collect();
    let Some(name) = names.get(usize::from(input.format) % names.len().max(1)) else { return };
    let options = || {
        let mut options = ReplyOptions::default();
        options.format = formats.get(name);
        options.reasoning = options.format.as_ref().and_then(|format| format.reasoning());
        options.tools = ToolSchemas::new(&[json!({"name": "f", "parameters": {"type": "object", "properties":
            {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "object"}}}})]);
        options.id_seed = 1;
        options
    };
    let ending = || if input.complete { Ending::Stop } else { Ending::Length };
    let whole = ReplyParser::parse(options(), input.text, ending());

    let mut parser = ReplyParser::new(options());
    let mut events: Vec<ReplyEvent> = Vec::new();
    let mut rest = input.text;
    for cut in input.cuts {
        let at = rest.char_indices().nth(usize::from(cut)).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(at);
        events.extend(parser.push(piece));
        rest = after;
    }
    events.extend(parser.push(rest));
    events.extend(parser.finish(ending()));
    assert_eq!(events.into_iter().collect::<ParsedReply>(), whole);
});
