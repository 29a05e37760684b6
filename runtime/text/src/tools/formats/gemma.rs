//! Gemma: `call:NAME{key:value,…}` between markers. Strings stand verbatim between two marks, keys are bare. Gemma 4
//! thinks in a channel named `thought`.

use super::Builtin;
use crate::tools::{
    literal::Dialect,
    scanner::{Broken, Read, Scanner},
};

/// What a version of the format writes around things.
struct Marks {
    open: &'static str,
    close: &'static str,
    string: &'static str,
    /// Follows a call: the model waits for its result.
    awaits: &'static str,
}

const FUNCTION_MARKS: Marks = Marks {
    open: "<start_function_call>",
    close: "<end_function_call>",
    string: "<escape>",
    awaits: "<start_function_response>",
};
const GEMMA4_MARKS: Marks =
    Marks { open: "<|tool_call>", close: "<tool_call|>", string: "<|\"|>", awaits: "<|tool_response>" };

pub(super) const FUNCTIONGEMMA: Builtin = Builtin {
    name: "functiongemma",
    aliases: &[],
    recognises: |template| template.contains(FUNCTION_MARKS.open),
    reasoning: None,
    read: |reply| Box::pin(read(reply, &FUNCTION_MARKS)),
};

pub(super) const GEMMA4: Builtin = Builtin {
    name: "gemma4",
    aliases: &["gemma"],
    recognises: |template| template.contains(GEMMA4_MARKS.open),
    reasoning: Some(("<|channel>thought", "<channel|>")),
    read: |reply| Box::pin(read(reply, &GEMMA4_MARKS)),
};

async fn read(reply: &mut Scanner, marks: &'static Marks) {
    while let Some(which) = reply.content_until(&[marks.open, marks.awaits]).await {
        if which == 0
            && let Err(broken) = call(reply, marks).await
        {
            reply.abandon(broken, &[marks.close]).await;
        }
    }
}

async fn call(reply: &mut Scanner, marks: &'static Marks) -> Read<()> {
    reply.expect("call:").await?;
    let name = reply.run(|c| !matches!(c, '{' | '<') && !c.is_whitespace()).await;
    match reply.peek().await {
        Some('{') => {}
        Some(_) => return Err(Broken::Malformed),
        None => return Err(Broken::Ended),
    }
    reply.begin_call(None, &name)?;
    reply.literal(Dialect::Marked(marks.string)).await?;
    reply.space().await;
    reply.expect(marks.close).await?;
    reply.end_call();
    Ok(())
}
