//! Random templates render random conversations, or refuse to.

#![no_main]

use kinfolk_text::{ChatTemplate, RenderOptions, TokenizerConfig};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use serde_json::{Value, json};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    template: &'a str,
    content: &'a str,
    arguments: &'a str,
    has_tools: bool,
    goes_on: bool,
}

fuzz_target!(|input: Input| {
    let Ok(template) = ChatTemplate::new(input.template, &TokenizerConfig::default()) else { return };
    let arguments: Value = serde_json::from_str(input.arguments).unwrap_or_else(|_| json!(input.arguments));
    let messages = [
        json!({"role": "user", "content": [{"type": "text", "text": input.content}]}),
        json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}),
        json!({"role": "tool", "tool_call_id": "1", "content": input.content}),
    ];
    let mut options = RenderOptions::default();
    options.continue_final_message = input.goes_on;
    options.add_generation_prompt = !input.goes_on;
    options.tools = input.has_tools.then(|| vec![json!({"type": "function", "function": {"name": "f"}})]);
    let _ = template.render(&messages, &options);
});
