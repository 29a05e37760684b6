//! Mistral, both forms after `[TOOL_CALLS]`: a JSON array of calls with ids of nine letters and digits, or `NAME[ARGS]`
//! JSON, since the 2506 tokenizer with `[CALL_ID]` between them. Reasoning models think inside `[THINK]`.

use super::Builtin;
use crate::tools::{
    json::CallKeys,
    markup::is_name,
    scanner::{Broken, Read, Scanner},
};

const OPEN: &str = "[TOOL_CALLS]";
const ARGUMENTS: &str = "[ARGS]";
const CALL_ID: &str = "[CALL_ID]";
const KEYS: CallKeys = CallKeys { name: &["name"], arguments: &["arguments", "parameters"], id: &["id"] };

pub(super) const FORMAT: Builtin = Builtin {
    name: "mistral",
    aliases: &["mistral-array", "mistral-args"],
    recognises: |template| template.contains(OPEN),
    reasoning: Some(("[THINK]", "[/THINK]")),
    read: |reply| {
        Box::pin(async move {
            while reply.content_until(&[OPEN]).await.is_some() {
                if let Err(broken) = calls(reply).await {
                    reply.abandon(broken, &[]).await;
                }
            }
        })
    },
};

async fn calls(reply: &mut Scanner) -> Read<()> {
    reply.space().await;
    if reply.peek().await == Some('[') {
        return reply.call_objects(&KEYS).await;
    }
    call(reply).await?;
    // Some write the marker once, and further calls without it.
    while next_head(reply).await {
        call(reply).await?;
    }
    Ok(())
}

/// Reads `NAME[ARGS]{…}` or `NAME[CALL_ID]ID[ARGS]{…}`.
async fn call(reply: &mut Scanner) -> Read<()> {
    let name = reply.run(|c| c != '[' && !c.is_whitespace()).await;
    if reply.peek().await.is_none() {
        return Err(Broken::Ended);
    }
    if !is_name(&name) {
        return Err(Broken::Malformed);
    }
    let id = if reply.eat(CALL_ID).await { Some(reply.run(|c| c != '[').await) } else { None };
    reply.expect(ARGUMENTS).await?;
    reply.begin_call(id, &name)?;
    reply.json_arguments().await?;
    reply.end_call();
    Ok(())
}

/// Whether another head follows.
async fn next_head(reply: &mut Scanner) -> bool {
    const LONGEST_NAME: usize = 64;
    let heads = [ARGUMENTS, CALL_ID];
    reply.looking_past(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'), LONGEST_NAME, &heads).await
}
