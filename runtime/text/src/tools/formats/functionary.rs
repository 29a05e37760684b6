//! Functionary. 3.1: `<function=NAME>` JSON `</function>`, and code after `<|python_tag|>`. 3.2: blocks of `>>>NAME`, a
//! line break and a body, where `all` is for the reader and the prompt has written the first `>>>`.

use super::{Builtin, llama3};
use crate::tools::{
    markup::is_name,
    scanner::{Broken, Read, Scanner},
};

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const BLOCK: &str = ">>>";
/// The block for the reader.
const ALL: &str = "all";
const PYTHON: &str = "python";

pub(super) const FORMAT: Builtin = Builtin {
    name: "functionary",
    aliases: &["functionary-v3.1", "functionary-v3.2"],
    recognises: |template| {
        template.contains(">>>all") || template.contains(FUNCTION) && template.contains(llama3::PYTHON_TAG)
    },
    reasoning: None,
    read: |reply| {
        Box::pin(async move {
            let names: Vec<String> = reply.tools().names().chain([ALL, PYTHON]).map(str::to_owned).collect();
            let heads: Vec<String> = names.iter().map(|name| format!("{BLOCK}{name}\n")).collect();
            let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
            let first: Vec<&str> = heads.iter().map(|head| &head[BLOCK.len()..]).collect();
            match reply.looking_at(&first).await {
                Some(which) => {
                    reply.begin_block();
                    reply.eat(first[which]).await;
                    blocks(reply, &names, &heads, which).await;
                }
                None => functions(reply).await,
            }
        })
    },
};

/// Version 3.1.
async fn functions(reply: &mut Scanner) {
    while let Some(which) = reply.content_until(&[FUNCTION, llama3::PYTHON_TAG]).await {
        let (read, closers) = if which == 0 {
            (function(reply).await, &[FUNCTION_END][..])
        } else {
            (reply.interpreter_call().await, &[][..])
        };
        if let Err(broken) = read {
            reply.abandon(broken, closers).await;
        }
    }
}

async fn function(reply: &mut Scanner) -> Read<()> {
    let (name, _) = reply.text_until(&[">"]).await?;
    if !is_name(&name) {
        return Err(Broken::Malformed);
    }
    reply.begin_call(None, &name)?;
    reply.json_arguments().await?;
    reply.space().await;
    reply.expect(FUNCTION_END).await?;
    reply.end_call();
    Ok(())
}

/// Version 3.2, after the head of the first block. A head is a name that is known and a line break: other arrows are
/// text.
async fn blocks(reply: &mut Scanner, names: &[String], heads: &[&str], first: usize) {
    let mut head = Some(first);
    while let Some(which) = head {
        head = if names[which] == ALL {
            reply.content_until(heads).await
        } else {
            match call(reply, &names[which], heads).await {
                Ok(next) => next,
                Err(broken) => {
                    reply.abandon(broken, &[]).await;
                    reply.content_until(heads).await
                }
            }
        };
    }
}

/// Reads the body of a call; says which head follows.
async fn call(reply: &mut Scanner, name: &str, heads: &[&str]) -> Read<Option<usize>> {
    reply.begin_call(None, name)?;
    if name == PYTHON {
        reply.code(heads).await?;
    } else {
        reply.json_arguments().await?;
        reply.space().await;
    }
    if reply.peek().await.is_none() {
        reply.end_call();
        reply.end_block();
        return Ok(None);
    }
    let next = reply.looking_at(heads).await;
    if next.is_some() {
        reply.end_call();
    }
    reply.expect_any(heads).await.map(Some)
}
