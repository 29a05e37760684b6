//! What a host asks for.

use std::{fmt, time::Instant};

use kinfolk_decoder::{Cancel, Workload};
use kinfolk_text::ReplyOptions;

use crate::{
    runner::RunnerError,
    sampling::{Constraint, SampleOpts},
    speculation::Speculation,
};

/// What to generate, and within which bounds.
///
/// A request is used up by its reply, since a constraint and a drafter follow one text.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// The longest reply, in tokens. `None`: as long as the context lasts.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen. `None`: as the session is set.
    pub sample: Option<SampleOpts>,
    /// Limits what may be generated, such as to JSON of a schema.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Texts that end the reply where they appear, reasoning and calls included.
    pub stop: Vec<String>,
    /// Gives the stop string out as part of the reply.
    pub include_stop: bool,
    /// Goes on where the model would end its turn.
    pub ignore_eos: bool,
    /// How reasoning and calls of tools are told from text; see [`Text::reply_options`](kinfolk_text::Text::reply_options). By default
    /// all is text.
    pub reply: ReplyOptions,
    /// Reports every token with its log-probability and this many of the likeliest alternatives.
    pub log_probs: Option<usize>,
    /// Ends the reply where it is, with what was generated.
    pub cancel: Cancel,
    /// Ends the reply, as `cancel` does, once this moment has passed.
    pub deadline: Option<Instant>,
    /// What to do when the context is full.
    pub overflow: Overflow,
    /// Guesses tokens ahead. The reply is the same, sooner where guesses are good.
    pub speculation: Option<Speculation>,
    /// Prompt tokens computed between two looks at `cancel` and `deadline`.
    pub chunk_tokens: usize,
}

impl Default for Request {
    /// As long as the context lasts, all of it text, prompts in chunks of 512 tokens.
    fn default() -> Self {
        Request {
            max_tokens: None,
            sample: None,
            constraint: None,
            stop: Vec::new(),
            include_stop: false,
            ignore_eos: false,
            reply: ReplyOptions::default(),
            log_probs: None,
            cancel: Cancel::new(),
            deadline: None,
            overflow: Overflow::default(),
            speculation: None,
            chunk_tokens: Workload::CHUNK_TOKENS,
        }
    }
}

/// What to do when tokens do not fit the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// A prompt that does not fit is refused; a reply ends with `length`.
    #[default]
    Refuse,
    /// Drops tokens from the middle and goes on: the first `keep` stay, and of the others the later half, computed anew at their new
    /// places. The reply says how many were dropped.
    Shift {
        /// Tokens at the beginning that are never dropped, such as a system prompt. Fewer than the context holds.
        keep: usize,
    },
}

impl Overflow {
    /// Makes room in `context` for at least one more token than it then has. Returns how many tokens were dropped.
    ///
    /// # Errors
    /// [`ContextFull`](RunnerError::ContextFull) if nothing may be dropped.
    pub(crate) fn make_room(self, context: &mut Vec<u32>, context_length: usize) -> Result<usize, RunnerError> {
        let full = RunnerError::ContextFull { context_length, asked: context.len() };
        let Overflow::Shift { keep } = self else { return Err(full) };
        let kept_later = context_length.saturating_sub(keep) / 2;
        if kept_later == 0 || keep.saturating_add(kept_later) >= context.len() {
            return Err(full);
        }
        let dropped = context.len() - keep - kept_later;
        context.drain(keep..keep + dropped);
        Ok(dropped)
    }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overflow::Refuse => f.write_str("refuse"),
            Overflow::Shift { keep } => write!(f, "shift, keeping {keep}"),
        }
    }
}
