//! Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>` value `</parameter></function></tool_call>`. Seed-OSS: the
//! same inside `<seed:tool_call>`.
//!
//! Values are bare text, typed by the tool's schema. In Qwen3-Coder the line breaks around a value belong to the
//! markup. Models leave the outer tags out now and then.

use super::{Builtin, THINK};
use crate::tools::{
    markup::{Head, Tags, is_name},
    scanner::{Broken, Read, Scanner},
};

const FUNCTION: &str = "<function=";

/// The tags of a version.
struct Shape {
    open: &'static str,
    close: &'static str,
    parameters: Tags,
}

const QWEN: Shape = Shape {
    open: "<tool_call>",
    close: "</tool_call>",
    parameters: Tags {
        open: "<parameter=",
        head_end: ">",
        value_open: "",
        value_close: "</parameter>",
        close: "</function>",
        own_lines: true,
    },
};
const SEED: Shape = Shape {
    open: "<seed:tool_call>",
    close: "</seed:tool_call>",
    parameters: Tags { own_lines: false, ..QWEN.parameters },
};

pub(super) const FORMAT: Builtin = Builtin {
    name: "qwen3-coder",
    aliases: &["qwen3_coder"],
    recognises: |template| template.contains(FUNCTION) && template.contains(QWEN.parameters.open),
    reasoning: THINK,
    read: |reply| Box::pin(read(reply, &QWEN)),
};

pub(super) const SEED_OSS: Builtin = Builtin {
    name: "seed-oss",
    aliases: &[],
    recognises: |template| template.contains(SEED.open),
    reasoning: Some(("<seed:think>", "</seed:think>")),
    read: |reply| Box::pin(read(reply, &SEED)),
};

async fn read(reply: &mut Scanner, shape: &'static Shape) {
    while let Some(which) = reply.content_until(&[shape.open, FUNCTION]).await {
        let (read, closer) = if which == 0 {
            (block(reply, shape).await, shape.close)
        } else {
            (function(reply, shape).await.map(|()| reply.end_call()), shape.parameters.close)
        };
        if let Err(broken) = read {
            reply.abandon(broken, &[closer]).await;
        }
    }
}

async fn block(reply: &mut Scanner, shape: &Shape) -> Read<()> {
    reply.space().await;
    reply.expect(FUNCTION).await?;
    loop {
        function(reply, shape).await?;
        reply.space().await;
        if reply.eat(FUNCTION).await {
            reply.end_call();
            continue;
        }
        if reply.peek().await.is_some() {
            reply.expect(shape.close).await?;
        }
        reply.end_call();
        return Ok(());
    }
}

/// Reads a function after `<function=`, and leaves the call open.
async fn function(reply: &mut Scanner, shape: &Shape) -> Read<()> {
    let (name, _) = reply.text_until(&[">"]).await?;
    if !is_name(&name) {
        return Err(Broken::Malformed);
    }
    reply.begin_call(None, &name)?;
    let head = |head: &str| Some(Head { name: head.to_owned(), is_text: None });
    reply.markup_arguments(&name, &shape.parameters, head).await
}
