//! Command R. R7B: `<|START_ACTION|>` JSON array `<|END_ACTION|>`, or `<|START_RESPONSE|>` text `<|END_RESPONSE|>`. R+: the word `Action:` and the array
//! in a fence.

use super::Builtin;
use crate::tools::{
    json::CallKeys,
    scanner::{Read, Scanner},
};

const ACTION: &str = "<|START_ACTION|>";
const ACTION_END: &str = "<|END_ACTION|>";
const FENCED_ACTION: &str = "Action: ```json";
const FENCE: &str = "```";
const RESPONSE: &str = "<|START_RESPONSE|>";
const RESPONSE_END: &str = "<|END_RESPONSE|>";
const KEYS: CallKeys =
    CallKeys { name: &["tool_name", "name"], arguments: &["parameters", "arguments"], id: &["tool_call_id"] };

pub(super) const FORMAT: Builtin = Builtin {
    name: "command-r",
    aliases: &["command-r7b", "command-r-plus", "cohere"],
    recognises: |template| template.contains(ACTION) || template.contains("Action:") && template.contains("tool_name"),
    reasoning: Some(("<|START_THINKING|>", "<|END_THINKING|>")),
    read: |reply| {
        Box::pin(async move {
            while let Some(which) = reply.content_until(&[ACTION, FENCED_ACTION, RESPONSE, RESPONSE_END]).await {
                let closer = match which {
                    0 => ACTION_END,
                    1 => FENCE,
                    _ => continue,
                };
                if let Err(broken) = calls(reply, closer).await {
                    reply.abandon(broken, &[closer]).await;
                }
            }
        })
    },
};

async fn calls(reply: &mut Scanner, closer: &str) -> Read<()> {
    reply.call_objects(&KEYS).await?;
    reply.space().await;
    if reply.peek().await.is_some() {
        reply.expect(closer).await?;
    }
    Ok(())
}
