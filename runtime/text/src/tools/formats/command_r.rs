//! Command R. R7B: `<|START_ACTION|>` JSON array `<|END_ACTION|>`, or `<|START_RESPONSE|>` text `<|END_RESPONSE|>`. R+:
//! the word `Action:` and the array in a fence.

use super::Builtin;
use crate::tools::json::CallKeys;

const ACTION: &str = "<|START_ACTION|>";
const ACTION_END: &str = "<|END_ACTION|>";
const FENCE: &str = "```";
const RESPONSE: &str = "<|START_RESPONSE|>";
const RESPONSE_END: &str = "<|END_RESPONSE|>";
const MARKERS: [&str; 5] = [ACTION, "Action: ```json", "Action:```json", RESPONSE, RESPONSE_END];
const KEYS: CallKeys =
    CallKeys { name: &["tool_name", "name"], arguments: &["parameters", "arguments"], id: &["tool_call_id"] };

pub(super) const FORMAT: Builtin = Builtin {
    name: "command-r",
    aliases: &["command-r7b", "command-r-plus", "cohere"],
    recognises: |template| template.contains(ACTION) || template.contains("Action:") && template.contains("tool_name"),
    reasoning: Some(("<|START_THINKING|>", "<|END_THINKING|>")),
    read: |reply| {
        Box::pin(async move {
            while let Some(which) = reply.content_until(&MARKERS).await {
                // The markers around a response are nothing but that.
                let closer = match MARKERS[which] {
                    RESPONSE | RESPONSE_END => continue,
                    ACTION => ACTION_END,
                    _ => FENCE,
                };
                if let Err(broken) = reply.call_objects_until(&KEYS, closer).await {
                    reply.abandon(broken, &[closer]).await;
                }
            }
        })
    },
};
