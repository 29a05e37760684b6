//! Granite. 3.x: `<|tool_call|>` and a JSON array; 4.x: `<tool_call>` blocks as in Hermes. 3.3 answers inside
//! `<response>` after it has thought.

use super::{Builtin, NAME_ARGUMENTS, THINK, hermes};

const OPEN_3: &str = "<|tool_call|>";
const OPEN_4: &str = "<tool_call>";
const RESPONSE: &str = "<response>";
const RESPONSE_END: &str = "</response>";

pub(super) const FORMAT: Builtin = Builtin {
    name: "granite",
    aliases: &["granite3", "granite4"],
    recognises: |template| template.contains(OPEN_3) && !template.contains("<|/tool_call|>"),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            let mut in_response = false;
            loop {
                let response = if in_response { RESPONSE_END } else { RESPONSE };
                match reply.content_until(&[OPEN_3, OPEN_4, response]).await {
                    None => return,
                    Some(0) => {
                        if let Err(broken) = reply.call_objects(&NAME_ARGUMENTS).await {
                            reply.abandon(broken, &[]).await;
                        }
                    }
                    Some(1) => hermes::block(reply).await,
                    // In the middle of an answer the tag is text.
                    Some(_) if !in_response && !reply.is_at_start() => reply.release_block(),
                    Some(_) => in_response = !in_response,
                }
            }
        })
    },
};
