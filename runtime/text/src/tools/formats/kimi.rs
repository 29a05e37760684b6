//! Kimi K2: `<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>` JSON `<|tool_call_end|>` inside a
//! section. The id is the whole `functions.NAME:INDEX`.

use super::{Builtin, THINK};
use crate::tools::scanner::{Broken, Read, Scanner};

const SECTION: &str = "<|tool_calls_section_begin|>";
const SECTION_END: &str = "<|tool_calls_section_end|>";
const CALL: &str = "<|tool_call_begin|>";
const CALL_END: &str = "<|tool_call_end|>";
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";

pub(super) const FORMAT: Builtin = Builtin {
    name: "kimi-k2",
    aliases: &["kimi"],
    recognises: |template| template.contains(SECTION),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while reply.content_until(&[SECTION]).await.is_some() {
                if let Err(broken) = calls(reply).await {
                    reply.abandon(broken, &[SECTION_END]).await;
                }
            }
        })
    },
};

async fn calls(reply: &mut Scanner) -> Read<()> {
    loop {
        reply.space().await;
        if reply.eat(SECTION_END).await || reply.peek().await.is_none() {
            return Ok(());
        }
        reply.expect(CALL).await?;
        let (id, _) = reply.text_until(&[ARGUMENTS]).await?;
        let id = id.trim();
        reply.begin_call(Some(id.to_owned()), name_of(id).ok_or(Broken::Malformed)?)?;
        reply.json_arguments().await?;
        reply.space().await;
        reply.expect(CALL_END).await?;
        reply.end_call();
    }
}

/// `get_weather` of `functions.get_weather:0`.
fn name_of(id: &str) -> Option<&str> {
    let (name, index) = id.strip_prefix("functions.").unwrap_or(id).rsplit_once(':')?;
    (!index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}
