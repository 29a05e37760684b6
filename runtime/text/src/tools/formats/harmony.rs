//! Harmony, the format of gpt-oss: messages in channels. `analysis` is reasoning, `final` is content, a message with a
//! recipient is a call, and `commentary` without one is a preamble for the reader.
//!
//! `<|start|>ROLE to=RECIPIENT<|channel|>NAME to=RECIPIENT <|constrain|>json<|message|>` body `<|end|>`. The prompt
//! ends with `<|start|>assistant`, so that a reply begins inside a head.

use super::Builtin;
use crate::tools::scanner::{Read, Scanner};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// What ends a body.
const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", START];
/// The end that is the start of the next message.
const STARTS_NEXT: usize = 3;

pub(super) const FORMAT: Builtin = Builtin {
    name: "gpt-oss",
    aliases: &["harmony"],
    recognises: |template| template.contains(CHANNEL) && template.contains(MESSAGE),
    reasoning: None,
    read: |reply| {
        Box::pin(async move {
            if !reply.take_open_reasoning() || body(reply, Way::Reasoning).await.is_some() {
                messages(reply).await;
            }
        })
    },
};

enum Way {
    Reasoning,
    Content,
}

async fn messages(reply: &mut Scanner) {
    let mut end = None;
    loop {
        // A role that goes on (` to=…`) is part of the head, and is kept with it should the head be broken.
        if end == Some(STARTS_NEXT) || reply.eat(START).await {
            reply.eat("assistant").await;
        }
        end = if reply.looking_at(&[CHANNEL, " to=", MESSAGE]).await.is_some() {
            reply.begin_block();
            match message(reply).await {
                Ok(end) => end,
                Err(broken) => {
                    reply.abandon(broken, &[]).await;
                    body(reply, Way::Content).await
                }
            }
        } else {
            body(reply, Way::Content).await
        };
        if end.is_none() {
            return;
        }
    }
}

/// Passes a body on; says what ended it. `None` at the end of the reply.
async fn body(reply: &mut Scanner, way: Way) -> Option<usize> {
    match way {
        Way::Reasoning => reply.reasoning_until(&ENDS).await,
        Way::Content => {
            let end = reply.content_until(&ENDS).await;
            reply.end_block();
            end
        }
    }
}

/// Reads a message from its head on; says what ended it.
async fn message(reply: &mut Scanner) -> Read<Option<usize>> {
    let (head, _) = reply.text_until(&[MESSAGE]).await?;
    let Some(recipient) = recipient(&head) else {
        let is_reasoning = channel(&head) == Some("analysis");
        reply.end_block();
        if !is_reasoning {
            reply.separate_content();
        }
        return Ok(body(reply, if is_reasoning { Way::Reasoning } else { Way::Content }).await);
    };
    reply.begin_call(None, recipient.strip_prefix("functions.").unwrap_or(recipient))?;
    if recipient == "python" {
        reply.code(&ENDS).await?;
    } else {
        reply.json_arguments().await?;
        reply.space().await;
    }
    let end = if reply.peek().await.is_some() { Some(reply.expect_any(&ENDS).await?) } else { None };
    reply.end_call();
    reply.end_block();
    Ok(end)
}

/// The name after `to=`.
fn recipient(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once("to=")?;
    rest.split(|c: char| c.is_whitespace() || c == '<').next().filter(|name| !name.is_empty())
}

fn channel(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once(CHANNEL)?;
    rest.split(|c: char| c.is_whitespace() || c == '<').next()
}
