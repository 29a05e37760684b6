//! Llama 3: the whole reply is a JSON object `{name, parameters}`, also several with `;` between them. After
//! `<|python_tag|>` comes such an object, a call of a built-in tool `NAME.call(key="value")`, or code for the
//! interpreter.

use super::{Builtin, NAME_ARGUMENTS, bare};
use crate::tools::scanner::{Read, Scanner};

pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

pub(super) const FORMAT: Builtin = Builtin {
    name: "llama3",
    aliases: &["llama3.1", "llama3.2", "llama3.3"],
    recognises: |template| {
        template.contains(PYTHON_TAG) || template.contains("<|start_header_id|>") && template.contains("\"parameters\"")
    },
    reasoning: None,
    read: |reply| {
        Box::pin(async move {
            bare::calls(reply, &["{"]).await;
            while reply.content_until(&[PYTHON_TAG]).await.is_some() {
                if let Err(broken) = tagged(reply).await {
                    reply.abandon(broken, &[]).await;
                }
            }
        })
    },
};

/// Reads what follows `<|python_tag|>`.
pub(super) async fn tagged(reply: &mut Scanner) -> Read<()> {
    if reply.looking_at(&["{"]).await.is_some() {
        loop {
            reply.call_object(&NAME_ARGUMENTS).await?;
            reply.end_call();
            reply.space().await;
            if !reply.eat(";").await {
                return Ok(());
            }
            reply.space().await;
        }
    }
    match reply.built_in_name().await {
        Some(name) => {
            reply.begin_call(None, &name)?;
            reply.python_arguments().await?;
            reply.end_call();
            Ok(())
        }
        None => reply.interpreter_call().await,
    }
}

impl Scanner {
    /// Reads `NAME.call(`, if that comes next.
    async fn built_in_name(&mut self) -> Option<String> {
        const LONGEST_NAME: usize = 64;
        if !self.looking_past(|c| c.is_alphanumeric() || c == '_', LONGEST_NAME, &[".call("]).await {
            return None;
        }
        let name = self.identifier().await.ok()?;
        self.eat(".call(").await.then_some(name)
    }

    /// Reads the rest of the reply as code for the interpreter.
    pub(super) async fn interpreter_call(&mut self) -> Read<()> {
        let declared = ["python", "code_interpreter", "ipython"].into_iter().find(|name| self.tools().declares(name));
        self.begin_call(None, declared.unwrap_or("python"))?;
        self.code(&[]).await?;
        self.expect_own_end()?;
        self.end_call();
        Ok(())
    }

    /// Reads code up to one of the literals, without reading that, or to the end of the reply, as the argument `code`
    /// of the open call.
    pub(in crate::tools) async fn code(&mut self, ends: &[&str]) -> Read<()> {
        self.arguments("{\"code\":\"");
        let found = self.pass_before(ends, |scanner, piece| scanner.arguments_text(piece)).await;
        self.arguments("\"}");
        if found.is_none() { self.expect_own_end() } else { Ok(()) }
    }
}
