//! One request's way from logits to events, whoever computes the logits.

use std::{collections::VecDeque, time::Instant};

use anyhow::Result;
use kinfolk_text::{Ending, Ends, ReplyDecoder, ReplyEvent, StopStrings, Text};

use super::{Event, FinishReason, Outcome, Overflow, Request, ReuseMiss, Timings, Usage, discard, guard};
use crate::{
    runner::RunnerError,
    sampling::{SampleOpts, SamplerChain, log_probabilities},
    speculation::{MAX_GUESSES, Speculation},
};

/// The tokens a sequence should have in its context, and what is made of the logits after them.
///
/// A driver computes [`context`](Self::context) in whichever way it has, tells [`computed`](Self::computed), and hands in the logits after
/// the last token; [`choose`](Self::choose) makes the context a token longer, or ends the reply. Events pile up until they are
/// [taken](Self::next_event).
pub(crate) struct Generation<'t> {
    decoder: ReplyDecoder<'t>,
    ends: Ends,
    stop: Vec<String>,
    chain: SamplerChain,
    log_probs: Option<usize>,
    overflow: Overflow,
    speculation: Option<Speculation>,
    max_tokens: Option<usize>,
    cancel: kinfolk_decoder::Cancel,
    deadline: Option<Instant>,
    vocab_size: usize,
    context_length: usize,
    /// Prompt and reply, the token included that was chosen last.
    context: Vec<u32>,
    called_tools: bool,
    /// Tokens of the prompt that the host knows to be computed.
    progress: Option<usize>,
    usage: Usage,
    reuse_miss: Option<ReuseMiss>,
    asked_at: Instant,
    started_at: Option<Instant>,
    computed_at: Option<Instant>,
    first_token_at: Option<Instant>,
    events: VecDeque<Event>,
    ended: bool,
}

impl<'t> Generation<'t> {
    /// A reply to `prompt` on a model of that vocabulary and context.
    ///
    /// # Errors
    /// An empty prompt, one longer than the context (unless the request drops what does not fit), a token outside the vocabulary; sampling
    /// options out of range.
    pub fn new(
        text: &'t Text,
        prompt: &[u32],
        request: Request,
        sample: &SampleOpts,
        vocab_size: usize,
        context_length: usize,
        now: Instant,
    ) -> Result<Generation<'t>> {
        if prompt.is_empty() {
            return Err(RunnerError::EmptyPrompt.into());
        }
        if let Some(&token) = prompt.iter().find(|token| **token as usize >= vocab_size) {
            return Err(RunnerError::TokenOutOfRange { token, vocab_size }.into());
        }
        let mut chain = SamplerChain::with_tokenizer(request.sample.as_ref().unwrap_or(sample), &text.tokenizer)?;
        chain.check_vocab(vocab_size)?;
        chain.accept_prompt(prompt);
        if let Some(constraint) = request.constraint {
            chain.set_constraint(constraint);
        }
        let stops = StopStrings::new(&request.stop);
        let decoder = ReplyDecoder::new(&text.tokenizer, stops.include_stop(request.include_stop), request.reply);
        let mut generation = Generation {
            decoder,
            ends: text.ends.for_request(request.ignore_eos),
            stop: request.stop,
            chain,
            log_probs: request.log_probs,
            overflow: request.overflow,
            speculation: request.speculation,
            max_tokens: request.max_tokens,
            cancel: request.cancel,
            deadline: request.deadline,
            vocab_size,
            context_length,
            context: prompt.to_vec(),
            called_tools: false,
            progress: None,
            usage: Usage { prompt_tokens: prompt.len(), ..Usage::default() },
            reuse_miss: None,
            asked_at: now,
            started_at: None,
            computed_at: None,
            first_token_at: None,
            events: VecDeque::new(),
            ended: false,
        };
        if prompt.len() > context_length {
            generation.shift()?;
        }
        Ok(generation)
    }

    /// Prompt and reply so far.
    pub fn context(&self) -> &[u32] {
        &self.context
    }

    pub fn usage(&self) -> Usage {
        self.usage
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// What has happened and was not taken yet, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the reply if its host or its deadline asks for it. Returns whether it has ended.
    pub fn is_interrupted(&mut self, now: Instant) -> bool {
        if !self.ended && self.cancel.is_cancelled() {
            self.end(FinishReason::Cancelled, now);
        } else if !self.ended && self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end(FinishReason::LocalDecodeTimeout, now);
        }
        self.ended
    }

    /// Notes the first step, with what of the prompt is there already. A second start, after it had to give way, is no news.
    pub fn started(&mut self, cached_tokens: usize, reuse_miss: Option<ReuseMiss>, now: Instant) {
        if self.started_at.is_none() {
            self.started_at = Some(now);
            self.usage.cached_tokens = cached_tokens;
            self.reuse_miss = reuse_miss;
            self.progress(cached_tokens);
        }
    }

    /// Notes that the first `n` tokens of the context are computed.
    pub fn computed(&mut self, n: usize, now: Instant) {
        if self.computed_at.is_none() {
            self.progress(n);
            self.computed_at = (n == self.context.len()).then_some(now);
        }
    }

    /// Tells of progress, if it is any: a request that had to give way is computed anew.
    fn progress(&mut self, done_tokens: usize) {
        if self.progress.is_none_or(|before| done_tokens > before) {
            self.progress = Some(done_tokens);
            self.events.push_back(Event::Progress { done_tokens, total_tokens: self.context.len() });
        }
    }

    /// Chooses the next token from the logits after the context, unless the reply is interrupted by now.
    ///
    /// # Errors
    /// Nothing can be chosen, or the logits are not one per token of the vocabulary. The reply is then over, without an event.
    pub fn choose(&mut self, logits: &[f32], now: Instant) -> Result<()> {
        if self.is_interrupted(now) {
            return Ok(());
        }
        let vocab_size = self.vocab_size;
        anyhow::ensure!(logits.len() == vocab_size, "expected {vocab_size} logits, found {}", logits.len());
        // Before the first token: a reply of none.
        if self.is_long_enough() || self.chain.is_complete() {
            let reason = if self.is_long_enough() { FinishReason::Length } else { FinishReason::Stop };
            self.end(reason, now);
            return Ok(());
        }
        let token = self.chain.sample(logits)?;
        if self.ends.contains(token) {
            self.end(FinishReason::Stop, now);
            return Ok(());
        }
        self.chain.accept(token)?;
        self.context.push(token);
        self.usage.completion_tokens += 1;
        self.first_token_at.get_or_insert(now);
        if let Some(n_top) = self.log_probs {
            self.events.push_back(Event::Token(log_probabilities(logits, token, n_top)));
        }
        let parts = self.decoder.push(token);
        self.tell(parts);
        if self.decoder.stopped().is_some() || self.chain.is_complete() {
            self.end(FinishReason::Stop, now);
        } else if self.is_long_enough() || self.context.len() > self.context_length && self.shift().is_err() {
            self.end(FinishReason::Length, now);
        }
        Ok(())
    }

    fn is_long_enough(&self) -> bool {
        self.max_tokens.is_some_and(|max| self.usage.completion_tokens >= max)
    }

    /// Guesses at what follows the context, which must be a token or more ahead of what is computed.
    pub fn draft(&mut self) -> Vec<u32> {
        let room = self.context_length - self.context.len().min(self.context_length);
        let wanted = self.max_tokens.map_or(usize::MAX, |max| max.saturating_sub(self.usage.completion_tokens + 1));
        let Some(speculation) = &mut self.speculation else { return Vec::new() };
        let n = speculation.max_tokens.min(MAX_GUESSES).min(room).min(wanted);
        if n == 0 {
            return Vec::new();
        }
        match guard(|| speculation.drafter.draft(&self.context, n)) {
            // A draft model may know tokens that the model does not.
            Ok(guesses) => guesses.into_iter().take(n).take_while(|id| (*id as usize) < self.vocab_size).collect(),
            Err(error) => {
                tracing::warn!("speculation ends: {:#}", anyhow::Error::from(error));
                let failed = self.speculation.take();
                discard(failed);
                Vec::new()
            }
        }
    }

    /// Gives speculation up for the rest of the reply.
    pub fn stop_drafting(&mut self) {
        self.speculation = None;
    }

    /// Chooses as long as the guesses are right: `rows` holds the logits after the context and after each guess.
    ///
    /// # Errors
    /// As [`choose`](Self::choose), and if there are other than that many rows.
    pub fn choose_along<'l>(
        &mut self,
        rows: impl ExactSizeIterator<Item = &'l [f32]>,
        guesses: &[u32],
        now: Instant,
    ) -> Result<()> {
        let n_rows = guesses.len() + 1;
        anyhow::ensure!(rows.len() == n_rows, "expected logits after {n_rows} tokens, found {}", rows.len());
        self.usage.draft_tokens += guesses.len();
        let mut guesses = guesses.iter();
        for logits in rows {
            let n_before = self.context.len();
            self.choose(logits, now)?;
            let goes_on = !self.ended && self.context.len() == n_before + 1;
            match guesses.next() {
                Some(guess) if goes_on && self.context.last() == Some(guess) => self.usage.accepted_draft_tokens += 1,
                _ => break,
            }
        }
        Ok(())
    }

    /// Ends the reply: flushes what is held and says why.
    pub fn end(&mut self, reason: FinishReason, now: Instant) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let parts = self.decoder.finish(if reason == FinishReason::Stop { Ending::Stop } else { Ending::Length });
        self.tell(parts);
        let stop_string = self.decoder.stopped().and_then(|i| self.stop.get(i)).cloned();
        let finish_reason = match reason {
            // What was held may turn out to be a stop string.
            FinishReason::Length if stop_string.is_some() => FinishReason::Stop,
            FinishReason::Stop if self.called_tools && stop_string.is_none() => FinishReason::ToolCalls,
            other => other,
        };
        let outcome = Outcome {
            finish_reason,
            stop_string,
            usage: self.usage,
            timings: self.timings(now),
            reuse_miss: self.reuse_miss,
        };
        self.events.push_back(Event::Done(outcome));
    }

    fn tell(&mut self, parts: Vec<ReplyEvent>) {
        self.called_tools |= parts.iter().any(|part| matches!(part, ReplyEvent::ToolCallEnd { .. }));
        self.events.extend(parts.into_iter().map(Event::Reply));
    }

    fn timings(&self, now: Instant) -> Timings {
        let started = self.started_at.unwrap_or(now);
        let computed = self.computed_at.unwrap_or(now);
        Timings {
            queued: started.saturating_duration_since(self.asked_at),
            prefill: computed.saturating_duration_since(started),
            decode: now.saturating_duration_since(computed),
            time_to_first_token: self.first_token_at.map(|at| at.saturating_duration_since(self.asked_at)),
        }
    }

    /// Drops what the request allows to, so that the context has room.
    fn shift(&mut self) -> Result<(), RunnerError> {
        let dropped_tokens = self.overflow.make_room(&mut self.context, self.context_length)?;
        self.usage.dropped_tokens += dropped_tokens;
        self.events.push_back(Event::Shifted { dropped_tokens });
        Ok(())
    }
}
