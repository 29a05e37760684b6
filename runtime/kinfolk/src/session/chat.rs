//! A conversation, turn by turn.

use anyhow::Result;
use kinfolk_text::{ParsedReply, RenderOptions, Tokenizer};
use serde_json::{Value, json};

use super::{Completion, Event, Request, Session};

/// The turns of a conversation, and what they were in tokens.
///
/// Each turn is rendered with the model's chat template and goes on in the context of the one before, what the model generated included:
/// its tokens are kept as they were chosen wherever their text is what the template puts there, since a model does not always choose the
/// tokens that its tokenizer would. A turn that was changed, or that the template renders otherwise (some leave out reasoning of earlier
/// turns), is computed from there on.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    messages: Vec<Value>,
    options: RenderOptions,
    /// Prompt and reply of the last turn.
    tokens: Vec<u32>,
}

impl Chat {
    /// An empty conversation, rendered with `options`; whatever they say, the assistant's turn is opened.
    pub fn new(mut options: RenderOptions) -> Chat {
        options.add_generation_prompt = true;
        Chat { messages: Vec::new(), options, tokens: Vec::new() }
    }

    /// The messages so far, as templates see them.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// The messages, to change: an edited turn is computed anew from where it differs.
    pub fn messages_mut(&mut self) -> &mut Vec<Value> {
        &mut self.messages
    }

    /// Adds a message: a role and a text, or whatever else the template understands.
    pub fn push(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// The prompt that lets the model answer the messages so far.
    ///
    /// # Errors
    /// What the template or the tokenizer object to; a model without a template.
    pub fn prompt(&self, session: &Session) -> Result<Vec<u32>> {
        let rendered = session.text().chat_tokens(&self.messages, &self.options)?;
        Ok(keep_chosen(&session.text().tokenizer, &self.tokens, &rendered))
    }

    /// Lets the model answer. `on_event` sees every event as it comes. The answer joins the conversation, also one that was cut short.
    /// Where the request tells reasoning from text, a template that opens the reasoning itself is seen to.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt) and [`Session::complete`]; the conversation is then as before.
    pub fn answer(
        &mut self,
        session: &mut Session,
        mut request: Request,
        on_event: impl FnMut(&Event),
    ) -> Result<Completion> {
        let prompt = self.prompt(session)?;
        if let Some(tags) = &request.reply.reasoning {
            request.reply.starts_in_reasoning = tags.opened_by(&session.text().tokenizer.decode(&prompt, false));
        }
        let completion = session.start(&prompt, request)?.complete(on_event)?;
        self.tokens = completion.tokens.clone();
        self.messages.push(message(&completion.parts));
        Ok(completion)
    }
}

/// A reply as templates see it.
fn message(parts: &ParsedReply) -> Value {
    let mut message = json!({"role": "assistant", "content": parts.content});
    if !parts.reasoning.is_empty() {
        message["reasoning_content"] = parts.reasoning.clone().into();
    }
    if !parts.tool_calls.is_empty() {
        let call = |call: &kinfolk_text::ToolCall| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}});
        message["tool_calls"] = parts.tool_calls.iter().map(call).collect();
    }
    message
}

/// `rendered`, with the tokens of `chosen` as far as both say the same.
fn keep_chosen(tokenizer: &Tokenizer, chosen: &[u32], rendered: &[u32]) -> Vec<u32> {
    let (mut kept, mut replaced) = (chosen, rendered);
    while let Some((n_kept, n_replaced)) = same_text(tokenizer, kept, replaced) {
        (kept, replaced) = (&kept[n_kept..], &replaced[n_replaced..]);
    }
    [&chosen[..chosen.len() - kept.len()], replaced].concat()
}

/// How many tokens of `a` and of `b` begin with the same text, as few as there can be: one and the same, or some that spell alike. Control
/// tokens are themselves, not their spelling.
fn same_text(tokenizer: &Tokenizer, a: &[u32], b: &[u32]) -> Option<(usize, usize)> {
    if a.first()? == b.first()? {
        return Some((1, 1));
    }
    let spell = |id: &u32| tokenizer.token_bytes(*id).filter(|_| !tokenizer.is_special(*id));
    // What each has spelled beyond the other.
    let (mut ahead_a, mut ahead_b) = (Vec::new(), Vec::new());
    let (mut ids_a, mut ids_b) = (a.iter(), b.iter());
    loop {
        match ahead_a.len() <= ahead_b.len() {
            true => ahead_a.extend_from_slice(&spell(ids_a.next()?)?),
            false => ahead_b.extend_from_slice(&spell(ids_b.next()?)?),
        }
        let n = ahead_a.len().min(ahead_b.len());
        if ahead_a.drain(..n).ne(ahead_b.drain(..n)) {
            return None;
        }
        if n > 0 && ahead_a.is_empty() && ahead_b.is_empty() {
            return Some((a.len() - ids_a.len(), b.len() - ids_b.len()));
        }
    }
}
