//! The formats of this crate, a file each.

mod bare;
mod command_r;
mod deepseek;
mod functionary;
mod gemma;
mod glm;
mod granite;
mod harmony;
mod hermes;
mod json_blocks;
mod kimi;
mod llama3;
mod minimax;
mod mistral;
mod phi4;
mod plain_json;
mod pythonic;
mod qwen3_coder;

use super::{Reading, Scanner, ToolFormat, json::CallKeys};
use crate::ReasoningTags;

/// All of them, in the order in which a template is tried: those with markers of their own come before those whose
/// markers others share.
pub(super) static ALL: [Builtin; 22] = [
    harmony::FORMAT,
    gemma::FUNCTIONGEMMA,
    gemma::GEMMA4,
    deepseek::V3_2,
    deepseek::V3,
    deepseek::V3_1,
    kimi::FORMAT,
    json_blocks::NEMOTRON,
    json_blocks::APRIEL,
    minimax::FORMAT,
    command_r::FORMAT,
    functionary::FORMAT,
    glm::FORMAT,
    qwen3_coder::SEED_OSS,
    qwen3_coder::FORMAT,
    mistral::FORMAT,
    granite::FORMAT,
    phi4::FORMAT,
    pythonic::FORMAT,
    hermes::FORMAT,
    llama3::FORMAT,
    plain_json::FORMAT,
];

/// A format as data.
#[derive(Clone, Copy)]
pub(super) struct Builtin {
    name: &'static str,
    aliases: &'static [&'static str],
    recognises: fn(&str) -> bool,
    /// The tags of reasoning, opening and closing.
    reasoning: Option<(&'static str, &'static str)>,
    read: for<'a> fn(&'a mut Scanner) -> Reading<'a>,
}

impl ToolFormat for Builtin {
    fn name(&self) -> &str {
        self.name
    }
    fn aliases(&self) -> &[&str] {
        self.aliases
    }
    fn recognises(&self, template: &str) -> bool {
        (self.recognises)(template)
    }
    fn reasoning(&self) -> Option<ReasoningTags> {
        self.reasoning.map(|(open, close)| ReasoningTags::new(open, close))
    }
    fn read<'a>(&'a self, reply: &'a mut Scanner) -> Reading<'a> {
        (self.read)(reply)
    }
}

/// The tags that most models think in.
const THINK: Option<(&str, &str)> = Some(("<think>", "</think>"));

/// The keys that most models write a call object with.
const NAME_ARGUMENTS: CallKeys = CallKeys { name: &["name"], arguments: &["arguments", "parameters"], id: &[] };
