//! MiniMax. M2: `<minimax:tool_call>` with `<invoke name="…">` and `<parameter name="…">` elements. M1: `<tool_calls>`
//! with a JSON object a line.

use super::{Builtin, NAME_ARGUMENTS, THINK};
use crate::tools::{
    markup::{Head, Tags, attribute},
    scanner::{Broken, Read, Scanner},
};

const M2_OPEN: &str = "<minimax:tool_call>";
const M2_CLOSE: &str = "</minimax:tool_call>";
const M1_OPEN: &str = "<tool_calls>";
const M1_CLOSE: &str = "</tool_calls>";

/// The elements inside, and their prefix.
#[derive(Clone, Copy)]
pub(super) struct Invoke {
    pub(super) open: &'static str,
    pub(super) tags: Tags,
}

const INVOKE: Invoke = Invoke {
    open: "<invoke ",
    tags: Tags {
        open: "<parameter ",
        head_end: ">",
        value_open: "",
        value_close: "</parameter>",
        close: "</invoke>",
        own_lines: false,
    },
};

pub(super) const FORMAT: Builtin = Builtin {
    name: "minimax",
    aliases: &["minimax-m1", "minimax-m2"],
    recognises: |template| template.contains(M2_OPEN) || template.contains(M1_OPEN),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while let Some(which) = reply.content_until(&[M2_OPEN, M1_OPEN]).await {
                let (read, closer) = if which == 0 {
                    (invocations(reply, &INVOKE, M2_CLOSE).await, M2_CLOSE)
                } else {
                    (objects(reply).await, M1_CLOSE)
                };
                if let Err(broken) = read {
                    reply.abandon(broken, &[closer]).await;
                }
            }
        })
    },
};

/// Reads `<invoke name="…">` elements up to the tag that ends the block.
pub(super) async fn invocations(reply: &mut Scanner, invoke: &Invoke, close: &str) -> Read<()> {
    loop {
        reply.space().await;
        if reply.eat(close).await {
            return Ok(());
        }
        reply.expect(invoke.open).await?;
        let (head, _) = reply.text_until(&[">"]).await?;
        let name = attribute(&head, "name").ok_or(Broken::Malformed)?;
        reply.begin_call(None, name)?;
        reply.markup_arguments(name, &invoke.tags, parameter).await?;
        reply.end_call();
    }
}

/// Reads `name="…"`, and `string="true"` or `"false"` where it is there.
fn parameter(head: &str) -> Option<Head> {
    let is_text = match attribute(head, "string") {
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return None,
        None => None,
    };
    Some(Head { name: attribute(head, "name")?.to_owned(), is_text })
}

async fn objects(reply: &mut Scanner) -> Read<()> {
    loop {
        reply.space().await;
        if reply.eat(M1_CLOSE).await {
            return Ok(());
        }
        reply.call_object(&NAME_ARGUMENTS).await?;
        reply.end_call();
    }
}
