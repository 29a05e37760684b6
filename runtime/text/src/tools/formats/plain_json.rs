//! Models without a format of their own that were asked for JSON: an object `{name, arguments}`, an array of them, or
//! `{"tool_calls": […]}`, also inside a fence.

use super::{Builtin, THINK, bare};

pub(super) const FORMAT: Builtin = Builtin {
    name: "plain-json",
    aliases: &["json"],
    // Nothing in a template tells it.
    recognises: |_| false,
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            bare::calls(reply, &["{", "[", "```"]).await;
            while reply.content_until(&[]).await.is_some() {}
        })
    },
};
