//! Phi-4-mini: `<|tool_call|>` JSON array `<|/tool_call|>`, or `functools` and the array.

use super::{Builtin, NAME_ARGUMENTS, THINK};

const OPEN: &str = "<|tool_call|>";
const CLOSE: &str = "<|/tool_call|>";
const FUNCTOOLS: &str = "functools[";

pub(super) const FORMAT: Builtin = Builtin {
    name: "phi4-mini",
    aliases: &["phi4", "functools"],
    recognises: |template| template.contains(CLOSE) || template.contains("functools"),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while let Some(which) = reply.content_until(&[OPEN, FUNCTOOLS]).await {
                let (read, closers) = if which == 0 {
                    (reply.call_objects_until(&NAME_ARGUMENTS, CLOSE).await, &[CLOSE][..])
                } else {
                    (reply.call_array(&NAME_ARGUMENTS).await, &[][..])
                };
                if let Err(broken) = read {
                    reply.abandon(broken, closers).await;
                }
            }
        })
    },
};
