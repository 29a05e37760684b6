//! Calls written in Python: `[name(key=value), …]`, in LFM2 between markers, in Llama 4 as the whole reply.

use super::{Builtin, THINK, bare};
use crate::tools::scanner::{Broken, Read, Scanner};

const OPEN: &str = "<|tool_call_start|>";
const CLOSE: &str = "<|tool_call_end|>";

pub(super) const FORMAT: Builtin = Builtin {
    name: "pythonic",
    aliases: &["lfm2", "llama4"],
    recognises: |template| template.contains(OPEN) || template.contains("<|tool_list_start|>"),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            unmarked(reply).await;
            while reply.content_until(&[OPEN]).await.is_some() {
                if let Err(broken) = block(reply).await {
                    reply.abandon(broken, &[CLOSE]).await;
                }
            }
        })
    },
};

async fn block(reply: &mut Scanner) -> Read<()> {
    reply.space().await;
    calls(reply, false).await?;
    reply.space().await;
    if reply.peek().await.is_some() {
        reply.expect(CLOSE).await?;
    }
    reply.end_call();
    Ok(())
}

/// Reads a list at the start of the reply. Nothing marks it, so all of it has to be calls of declared tools.
async fn unmarked(reply: &mut Scanner) {
    reply.pass_opening().await;
    if reply.looking_at(&["["]).await.is_none() {
        return;
    }
    reply.begin_block();
    if let Err(broken) = calls(reply, true).await {
        return bare::give_up(reply, broken, |name| format!("{name}(")).await;
    }
    reply.end_call();
    reply.end_block();
}

/// Reads calls in brackets, or one alone, and leaves the last one open.
async fn calls(reply: &mut Scanner, declared_only: bool) -> Read<()> {
    let in_list = reply.eat("[").await;
    loop {
        reply.space().await;
        let name = name(reply).await?;
        if declared_only && !reply.tools().declares(&name) {
            return Err(Broken::Malformed);
        }
        reply.space().await;
        reply.expect("(").await?;
        reply.begin_call(None, &name)?;
        reply.python_arguments().await?;
        reply.space().await;
        if !in_list || reply.eat("]").await {
            return Ok(());
        }
        reply.expect(",").await?;
        reply.end_call();
    }
}

/// Reads a name, dots included.
async fn name(reply: &mut Scanner) -> Read<String> {
    let mut name = reply.identifier().await?;
    while reply.eat(".").await {
        name = format!("{name}.{}", reply.identifier().await?);
    }
    Ok(name)
}
