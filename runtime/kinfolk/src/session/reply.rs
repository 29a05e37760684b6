//! One reply, step by step.

use std::collections::VecDeque;

use anyhow::Result;
use kinfolk_text::{Detokenizer, Text};
use serde::Serialize;

use super::Request;
use crate::{
    host_driven::HostDriven,
    runner::{LmRunner, RunnerError},
    sampling::SamplerChain,
};

/// What happens in the course of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// More of the prompt is computed. The last one says that all of it is.
    Progress {
        /// Prompt tokens in place, those reused from the last prompt included.
        done_tokens: usize,
        /// Prompt tokens in all.
        total_tokens: usize,
    },
    /// A piece of the reply, whole characters only. All pieces together are the reply.
    Text(String),
    /// The end, always the last event of a reply that does not fail.
    Done {
        /// Why.
        finish_reason: FinishReason,
        /// Tokens that went in and came out.
        usage: Usage,
    },
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended its turn.
    Stop,
    /// The longest reply or the end of the context was reached.
    Length,
    /// The host cancelled.
    Cancelled,
}

/// Tokens of one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens that were still computed from before.
    pub cached_tokens: usize,
    /// Tokens generated, without the one that ended the reply.
    pub completion_tokens: usize,
}

/// A reply in the making: pull [`Event`]s until there are no more. Dropping it ends it.
///
/// After an error there are no more events.
pub struct Reply<'a> {
    runner: &'a mut HostDriven<Box<dyn LmRunner>>,
    text: &'a Text,
    detokenizer: Option<Detokenizer>,
    prompt: Vec<u32>,
    chain: SamplerChain,
    request: Request,
    usage: Usage,
    state: State,
    /// Events of an end, which come one by one.
    ending: VecDeque<Event>,
}

enum State {
    Begin,
    Prefill {
        done_tokens: usize,
    },
    /// The logits for the next token are there.
    Choose {
        logits: Vec<f32>,
    },
    /// A token has been given out and is not in the context yet.
    Decode {
        token: u32,
    },
    Ended,
}

impl<'a> Reply<'a> {
    pub(super) fn new(
        runner: &'a mut HostDriven<Box<dyn LmRunner>>,
        text: &'a Text,
        prompt: &[u32],
        mut chain: SamplerChain,
        request: Request,
    ) -> Result<Reply<'a>> {
        runner.check_prompt(prompt)?;
        chain.accept_prompt(prompt);
        Ok(Reply {
            detokenizer: Some(text.tokenizer.detokenizer(true)),
            runner,
            text,
            prompt: prompt.to_vec(),
            chain,
            request,
            usage: Usage { prompt_tokens: prompt.len(), ..Usage::default() },
            state: State::Begin,
            ending: VecDeque::new(),
        })
    }

    /// Tokens generated so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// One step. `None` if it has nothing to tell.
    fn step(&mut self) -> Result<Option<Event>> {
        if self.request.cancel.is_cancelled() {
            return Ok(self.end(FinishReason::Cancelled));
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Begin => {
                let cached = self.runner.begin_prompt(&self.prompt)?;
                self.usage.cached_tokens = cached;
                self.state = State::Prefill { done_tokens: cached };
                Ok(Some(Event::Progress { done_tokens: cached, total_tokens: self.prompt.len() }))
            }
            State::Prefill { done_tokens } => self.prefill(done_tokens).map(Some),
            State::Choose { logits } => self.choose(&logits),
            State::Decode { token } => {
                let logits = self.runner.decode_logits(token)?;
                self.state = State::Choose { logits };
                Ok(None)
            }
            State::Ended => Ok(None),
        }
    }

    fn prefill(&mut self, done_tokens: usize) -> Result<Event> {
        let total_tokens = self.prompt.len();
        // Growing the prompt chunk by chunk costs a runner without reuse the whole of it each time.
        let chunk =
            if self.runner.capabilities().prefix_reuse { self.request.chunk_tokens.max(1) } else { total_tokens };
        let done_tokens = (done_tokens.saturating_add(chunk)).min(total_tokens);
        let logits = self.runner.prefill_logits_reusing(&self.prompt[..done_tokens])?;
        self.state =
            if done_tokens == total_tokens { State::Choose { logits } } else { State::Prefill { done_tokens } };
        Ok(Event::Progress { done_tokens, total_tokens })
    }

    fn choose(&mut self, logits: &[f32]) -> Result<Option<Event>> {
        if self.request.max_tokens == Some(0) {
            return Ok(self.end(FinishReason::Length));
        }
        let token = self.chain.sample(logits)?;
        if self.text.ends.contains(token) {
            return Ok(self.end(FinishReason::Stop));
        }
        self.chain.accept(token)?;
        self.usage.completion_tokens += 1;
        let piece = self.detokenizer.as_mut().map(|d| d.push(token)).unwrap_or_default();
        let event = (!piece.is_empty()).then_some(Event::Text(piece));
        let generated = self.usage.completion_tokens;
        // Whether the context has no room to go on from this token.
        let full = self.prompt.len() + generated > self.runner.context_length();
        if full || self.request.max_tokens.is_some_and(|max| generated >= max) {
            self.ending.extend(event);
            return Ok(self.end(FinishReason::Length));
        }
        self.state = State::Decode { token };
        Ok(event)
    }

    /// Flushes what the detokenizer holds and says why it is over.
    fn end(&mut self, finish_reason: FinishReason) -> Option<Event> {
        self.state = State::Ended;
        let held = self.detokenizer.take().map(Detokenizer::finish).unwrap_or_default();
        self.ending.extend((!held.is_empty()).then_some(Event::Text(held)));
        self.ending.push_back(Event::Done { finish_reason, usage: self.usage });
        self.ending.pop_front()
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ending.pop_front() {
                return Some(Ok(event));
            }
            if matches!(self.state, State::Ended) {
                return None;
            }
            match self.step() {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                // The host's cancellation, seen inside the runner.
                Err(error) if matches!(error.downcast_ref(), Some(RunnerError::Cancelled)) => {
                    return self.end(FinishReason::Cancelled).map(Ok);
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
