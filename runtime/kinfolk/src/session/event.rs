//! What a reply tells its host.

use std::time::Duration;

use kinfolk_text::ReplyEvent;
use serde::Serialize;

use crate::sampling::TokenLogProbs;

/// What happens in the course of a reply.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// More of the prompt is computed. The last one says that all of it is.
    Progress {
        /// Prompt tokens in place, those reused from the context before included.
        done_tokens: usize,
        /// Prompt tokens in all.
        total_tokens: usize,
    },
    /// The context was full, and the request allows to drop the oldest part of it.
    Shifted {
        /// Tokens dropped, after those at the beginning that the request keeps.
        dropped_tokens: usize,
    },
    /// A token was chosen. Only if the request asks for log-probabilities. What text it makes certain follows.
    Token(TokenLogProbs),
    /// A part of the reply: text, whole characters only; reasoning; a call of a tool.
    Reply(ReplyEvent),
    /// The end, always the last event of a reply that does not fail.
    Done(Outcome),
}

/// How a reply ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Why.
    pub finish_reason: FinishReason,
    /// The stop string that ended it.
    pub stop_string: Option<String>,
    /// Tokens that went in and came out.
    pub usage: Usage,
    /// How long it took.
    pub timings: Timings,
    /// Why less of the prompt was reused than it has in common with the context before. `None`: all that could be was.
    pub reuse_miss: Option<ReuseMiss>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model ended its turn, or a stop string appeared.
    Stop,
    /// The longest reply or the end of the context was reached.
    Length,
    /// The model ended its turn to have tools called.
    ToolCalls,
    /// The host cancelled.
    Cancelled,
    /// The deadline passed. What was generated until then was given out.
    LocalDecodeTimeout,
}

/// Tokens of one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens that were still computed from before.
    pub cached_tokens: usize,
    /// Tokens generated, without the one that ended the reply.
    pub completion_tokens: usize,
    /// Tokens that speculation guessed.
    pub draft_tokens: usize,
    /// Of these, tokens that the model chose, too.
    pub accepted_draft_tokens: usize,
    /// Tokens dropped from a full context, see [`Event::Shifted`].
    pub dropped_tokens: usize,
}

impl Usage {
    /// The share of guesses that were right, from 0 to 1. `None`: there were none.
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.draft_tokens > 0).then(|| self.accepted_draft_tokens as f64 / self.draft_tokens as f64)
    }
}

/// How long the parts of a reply took, from its first step on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Timings {
    /// Until the request had its turn.
    pub queued: Duration,
    /// From the first step until the prompt was computed, or as far as it came.
    pub prefill: Duration,
    /// From there to the end.
    pub decode: Duration,
    /// From the request to the first token. `None`: it came to none.
    pub time_to_first_token: Option<Duration>,
}

/// Why a prompt could not reuse all that it shares with the context before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReuseMiss {
    /// The runner reuses nothing.
    Unsupported,
    /// The context was lost to an error or a panic before.
    ContextLost,
    /// The context reaches beyond what is shared, and a sliding window or a recurrent state cannot go back there.
    CannotGoBack {
        /// Tokens that are shared.
        shared_tokens: usize,
    },
}
