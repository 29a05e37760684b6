//! GLM 4.5 to 4.7: `<tool_call>NAME`, pairs of `<arg_key>` and `<arg_value>`, `</tool_call>`.

use super::{Builtin, THINK};
use crate::tools::{
    markup::{Head, Tags, is_name},
    scanner::{Broken, Read, Scanner},
};

const OPEN: &str = "<tool_call>";
const TAGS: Tags = Tags {
    open: "<arg_key>",
    head_end: "</arg_key>",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
    close: "</tool_call>",
    own_lines: false,
};

pub(super) const FORMAT: Builtin = Builtin {
    name: "glm4.5",
    aliases: &["glm4", "glm4.6", "glm4.7", "glm"],
    recognises: |template| template.contains(TAGS.open),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while reply.content_until(&[OPEN]).await.is_some() {
                if let Err(broken) = call(reply).await {
                    reply.abandon(broken, &[TAGS.close]).await;
                }
            }
        })
    },
};

async fn call(reply: &mut Scanner) -> Read<()> {
    reply.space().await;
    let name = reply.run(|c| c != '<' && c != '\n').await;
    let name = name.trim();
    if reply.peek().await.is_none() {
        return Err(Broken::Ended);
    }
    if !is_name(name) {
        return Err(Broken::Malformed);
    }
    reply.begin_call(None, name)?;
    reply.markup_arguments(name, &TAGS, |head| Some(Head { name: head.trim().to_owned(), is_text: None })).await?;
    reply.end_call();
    Ok(())
}
