//! Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>` value `</parameter></function></tool_call>`.
//!
//! Values are bare text, typed by the tool's schema. The line breaks around a value belong to the markup. Models leave the outer tags out
//! now and then.

use super::{Builtin, THINK};
use crate::tools::{
    markup::{Head, Tags, is_name},
    scanner::{Broken, Read, Scanner},
};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const TAGS: Tags = Tags {
    open: "<parameter=",
    head_end: ">",
    value_open: "",
    value_close: "</parameter>",
    close: "</function>",
    own_lines: true,
};

pub(super) const FORMAT: Builtin = Builtin {
    name: "qwen3-coder",
    aliases: &["qwen3_coder"],
    recognises: |template| template.contains(FUNCTION) && template.contains(TAGS.open),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while let Some(which) = reply.content_until(&[OPEN, FUNCTION]).await {
                let (read, closer) = if which == 0 {
                    (block(reply).await, CLOSE)
                } else {
                    (function(reply).await.map(|()| reply.end_call()), TAGS.close)
                };
                if let Err(broken) = read {
                    reply.abandon(broken, &[closer]).await;
                }
            }
        })
    },
};

async fn block(reply: &mut Scanner) -> Read<()> {
    reply.space().await;
    reply.expect(FUNCTION).await?;
    loop {
        function(reply).await?;
        reply.space().await;
        if reply.eat(FUNCTION).await {
            reply.end_call();
            continue;
        }
        if reply.peek().await.is_some() {
            reply.expect(CLOSE).await?;
        }
        reply.end_call();
        return Ok(());
    }
}

/// Reads a function after `<function=`, and leaves the call open.
async fn function(reply: &mut Scanner) -> Read<()> {
    let (name, _) = reply.text_until(&[">"]).await?;
    if !is_name(&name) {
        return Err(Broken::Malformed);
    }
    reply.begin_call(None, &name)?;
    reply.markup_arguments(&name, &TAGS, |head| Some(Head { name: head.to_owned(), is_text: None })).await
}
