//! DeepSeek. V3 and R1: a name and arguments in a fence, between markers; V3.1: without the fence; V3.2: elements with
//! the prefix `｜DSML｜`.

use super::{
    Builtin, THINK,
    minimax::{Invoke, invocations},
};
use crate::tools::{
    markup::Tags,
    scanner::{Broken, Read, Scanner},
};

const CALLS: &str = "<｜tool▁calls▁begin｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const FENCE: &str = "```";

/// The blocks of V3.2 and of V4, which differ in name only.
const DSML: [(&str, &str); 2] =
    [("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"), ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")];
const DSML_INVOKE: Invoke = Invoke {
    open: "<｜DSML｜invoke ",
    tags: Tags {
        open: "<｜DSML｜parameter ",
        head_end: ">",
        value_open: "",
        value_close: "</｜DSML｜parameter>",
        close: "</｜DSML｜invoke>",
        own_lines: false,
    },
};

pub(super) const V3: Builtin = Builtin {
    name: "deepseek-v3",
    aliases: &["deepseek", "deepseek-r1"],
    recognises: |template| template.contains(CALLS) && template.contains("```json"),
    reasoning: THINK,
    read: |reply| Box::pin(read(reply, true)),
};

pub(super) const V3_1: Builtin = Builtin {
    name: "deepseek-v3.1",
    aliases: &[],
    recognises: |template| template.contains(CALLS),
    reasoning: THINK,
    read: |reply| Box::pin(read(reply, false)),
};

pub(super) const V3_2: Builtin = Builtin {
    name: "deepseek-v3.2",
    aliases: &["deepseek-v4"],
    recognises: |template| template.contains("｜DSML｜"),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while let Some(which) = reply.content_until(&DSML.map(|(open, _)| open)).await {
                let (_, close) = DSML[which];
                if let Err(broken) = invocations(reply, &DSML_INVOKE, close).await {
                    reply.abandon(broken, &[close]).await;
                }
            }
        })
    },
};

async fn read(reply: &mut Scanner, fenced: bool) {
    while reply.content_until(&[CALLS]).await.is_some() {
        if let Err(broken) = calls(reply, fenced).await {
            reply.abandon(broken, &[CALLS_END]).await;
        }
    }
}

async fn calls(reply: &mut Scanner, fenced: bool) -> Read<()> {
    loop {
        reply.space().await;
        // A turn that ends after a complete call has only left the outer marker out.
        if reply.eat(CALLS_END).await || reply.peek().await.is_none() {
            return Ok(());
        }
        reply.expect(CALL).await?;
        let (head, _) = reply.text_until(&[SEPARATOR]).await?;
        if fenced {
            fenced_call(reply).await?;
        } else {
            reply.begin_call(None, head.trim())?;
            reply.json_arguments().await?;
        }
        reply.space().await;
        reply.expect(CALL_END).await?;
        reply.end_call();
    }
}

/// Reads `NAME`, a line break, and the arguments in a fence. The word before the name, the type, is always `function`.
async fn fenced_call(reply: &mut Scanner) -> Read<()> {
    let name = reply.run(|c| c != '\n' && c != '`' && c != '<').await;
    reply.space().await;
    reply.expect(FENCE).await?;
    reply.eat("json").await;
    reply.begin_call(None, name.trim())?;
    reply.json_arguments().await?;
    reply.space().await;
    if reply.peek().await == Some('`') {
        return reply.expect(FENCE).await;
    }
    Err(if reply.peek().await.is_none() { Broken::Ended } else { Broken::Malformed })
}
