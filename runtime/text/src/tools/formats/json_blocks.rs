//! A JSON array of calls between two markers. Nemotron: `<TOOLCALL>[…]</TOOLCALL>`; Apriel:
//! `<tool_calls>[…]</tool_calls>`.

use super::{Builtin, NAME_ARGUMENTS, THINK};
use crate::tools::scanner::Scanner;

const TOOLCALL: &str = "<TOOLCALL>";
const TOOL_CALLS: &str = "<tool_calls>";

pub(super) const NEMOTRON: Builtin = Builtin {
    name: "nemotron",
    aliases: &["nemotron-nano"],
    recognises: |template| template.contains(TOOLCALL),
    reasoning: THINK,
    read: |reply| Box::pin(read(reply, TOOLCALL, "</TOOLCALL>")),
};

pub(super) const APRIEL: Builtin = Builtin {
    name: "apriel",
    aliases: &[],
    recognises: |template| template.contains("<tool_calls>["),
    reasoning: None,
    read: |reply| Box::pin(read(reply, TOOL_CALLS, "</tool_calls>")),
};

async fn read(reply: &mut Scanner, open: &str, close: &str) {
    while reply.content_until(&[open]).await.is_some() {
        if let Err(broken) = reply.call_objects_until(&NAME_ARGUMENTS, close).await {
            reply.abandon(broken, &[close]).await;
        }
    }
}
