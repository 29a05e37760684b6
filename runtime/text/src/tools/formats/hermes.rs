//! Hermes, also Qwen 2.5 and 3: `<tool_call>` JSON object `</tool_call>`, one block a call.

use super::{Builtin, NAME_ARGUMENTS, THINK};
use crate::tools::scanner::{Read, Scanner};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

pub(super) const FORMAT: Builtin = Builtin {
    name: "hermes",
    aliases: &["qwen2", "qwen3"],
    recognises: |template| template.contains(OPEN),
    reasoning: THINK,
    read: |reply| {
        Box::pin(async move {
            while reply.content_until(&[OPEN]).await.is_some() {
                block(reply).await;
            }
        })
    },
};

/// Reads a block after its opening tag.
pub(super) async fn block(reply: &mut Scanner) {
    if let Err(broken) = calls(reply).await {
        reply.abandon(broken, &[CLOSE]).await;
    }
}

/// Reads call objects, one as a rule. The last one counts too if the model ended its turn instead of the block.
async fn calls(reply: &mut Scanner) -> Read<()> {
    loop {
        reply.call_object(&NAME_ARGUMENTS).await?;
        reply.space().await;
        match reply.peek().await {
            Some('{') => reply.end_call(),
            Some(_) => {
                reply.expect(CLOSE).await?;
                reply.end_call();
                return Ok(());
            }
            None => {
                reply.end_call();
                return Ok(());
            }
        }
    }
}
