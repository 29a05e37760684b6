//! One reply on one runner, step by step.

use anyhow::Result;
use kinfolk_text::ParsedReply;

use super::{
    Clock, Completion, DriveError, Event, Evicted, FinishReason, Generation, ReuseMiss, Usage, choosing, discard, guard,
};
use crate::{
    host_driven::HostDriven,
    runner::{LmRunner, RunnerError, common_prefix},
};

/// The runner of a session, for as long as it can be trusted.
pub(crate) type Driven = HostDriven<Box<dyn LmRunner>>;

/// A reply in the making: pull [`Event`]s until there are no more. Dropping it ends it.
///
/// Exactly one event is the last: [`Event::Done`], or an error.
pub struct Reply<'a> {
    runner: &'a mut Driven,
    is_evicted: &'a mut bool,
    generation: Generation<'a>,
    clock: Clock,
    chunk_tokens: usize,
    /// Tokens of the context that are computed. `None`: not begun.
    done_tokens: Option<usize>,
    /// What comes after the events before it, instead of an end.
    failure: Option<DriveError>,
    failed: bool,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(
        runner: &'a mut Driven,
        is_evicted: &'a mut bool,
        generation: Generation<'a>,
        chunk_tokens: usize,
        clock: Clock,
    ) -> Self {
        Reply { runner, is_evicted, generation, clock, chunk_tokens, done_tokens: None, failure: None, failed: false }
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        self.generation.usage()
    }

    /// Prompt and reply so far, as tokens.
    pub fn tokens(&self) -> &[u32] {
        self.generation.context()
    }

    /// Runs the reply to its end. `on_event` sees every event as it comes.
    ///
    /// # Errors
    /// [`DriveError`].
    pub fn complete(mut self, mut on_event: impl FnMut(&Event)) -> Result<Completion> {
        let mut parts = ParsedReply::default();
        while let Some(event) = self.next() {
            let event = event?;
            on_event(&event);
            match event {
                Event::Reply(part) => parts.add(part),
                Event::Done(outcome) => {
                    let (text, tokens) = (parts.content.clone(), self.tokens().to_vec());
                    return Ok(Completion { text, parts, tokens, outcome });
                }
                _ => {}
            }
        }
        anyhow::bail!("expected the end of the reply, found no more events")
    }

    /// One step towards the next event.
    fn step(&mut self) -> Result<()> {
        let n_tokens = self.generation.context().len();
        match self.done_tokens {
            None => self.begin(),
            Some(done) if done > 0 && done + 1 == n_tokens => self.decode(),
            Some(done) => self.prefill(done),
        }
    }

    fn begin(&mut self) -> Result<()> {
        let context = self.generation.context();
        let shared = common_prefix(self.runner.context(), context).min(context.len() - 1);
        let was_lost = self.runner.has_lost_context();
        let cached = self.runner.begin_prompt(context)?;
        let miss = match () {
            () if cached >= shared => None,
            () if was_lost => Some(ReuseMiss::ContextLost),
            () if !self.runner.capabilities().prefix_reuse => Some(ReuseMiss::Unsupported),
            () => Some(ReuseMiss::CannotGoBack { shared_tokens: shared }),
        };
        self.generation.started(cached, miss, (self.clock)());
        self.done_tokens = Some(cached);
        Ok(())
    }

    /// Computes a chunk of a prompt, or of what is left of a context that was full.
    fn prefill(&mut self, done: usize) -> Result<()> {
        let total = self.generation.context().len();
        // Growing the prompt chunk by chunk costs a runner without reuse the whole of it each time.
        let chunk = if self.runner.capabilities().prefix_reuse { self.chunk_tokens.max(1) } else { total };
        let done = done.saturating_add(chunk).min(total);
        let logits = self.runner.prefill_logits_reusing(&self.generation.context()[..done])?;
        self.computed(done);
        if done == total { self.choose(&logits) } else { Ok(()) }
    }

    /// Appends the token chosen last, and guesses at those after it.
    fn decode(&mut self) -> Result<()> {
        let done = self.generation.context().len();
        let guesses = self.generation.draft();
        let Some(&token) = self.generation.context().last() else { return Ok(()) };
        if guesses.is_empty() {
            let logits = self.runner.decode_logits(token)?;
            self.computed(done);
            return self.choose(&logits);
        }
        let appended: Vec<u32> = [token].into_iter().chain(guesses.iter().copied()).collect();
        let rows = self.runner.decode_logits_each(&appended)?;
        self.computed(done);
        let now = (self.clock)();
        choosing(|| self.generation.choose_along(rows.iter().map(Vec::as_slice), &guesses, now))?;
        self.realign()
    }

    fn computed(&mut self, done: usize) {
        self.done_tokens = Some(done);
        self.generation.computed(done, (self.clock)());
    }

    fn choose(&mut self, logits: &[f32]) -> Result<()> {
        let n_before = self.generation.context().len();
        let now = (self.clock)();
        choosing(|| self.generation.choose(logits, now))?;
        if self.generation.context().len() < n_before { self.realign() } else { Ok(()) }
    }

    /// Trims the runner to what it shares with the context, after wrong guesses or after tokens were dropped.
    fn realign(&mut self) -> Result<()> {
        if self.generation.has_ended() {
            return Ok(());
        }
        let context = self.generation.context();
        let n_right = common_prefix(self.runner.context(), context).min(context.len() - 1);
        let kept = self.runner.begin_prompt(context)?;
        if kept < n_right {
            // A window or a recurrent state that cannot go back: it is computed anew, and once is enough.
            tracing::debug!(kept, n_right, "speculation ends: the cache cannot take guesses back");
            self.generation.stop_drafting();
        }
        self.done_tokens = Some(kept);
        Ok(())
    }

    /// Notes a failure, after which no step is made.
    fn fail(&mut self, error: DriveError) {
        self.failed = true;
        if let DriveError::RunnerCorrupted { .. } = error {
            let evicted = guard(|| Ok(Evicted::of(&*self.runner))).unwrap_or_default();
            let corrupted = std::mem::replace(self.runner, HostDriven::new(Box::new(evicted)));
            discard(corrupted);
            *self.is_evicted = true;
        }
        self.failure = Some(error);
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<Event, DriveError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.generation.next_event() {
                return Some(Ok(event));
            }
            if self.failed || self.generation.has_ended() {
                return self.failure.take().map(Err);
            }
            if self.generation.is_interrupted((self.clock)()) {
                continue;
            }
            match guard(|| self.step()) {
                Ok(()) => {}
                // The host's cancellation, seen inside the runner.
                Err(DriveError::Recoverable(error)) if matches!(error.downcast_ref(), Some(RunnerError::Cancelled)) => {
                    self.generation.end(FinishReason::Cancelled, (self.clock)());
                }
                Err(error) => self.fail(error),
            }
        }
    }
}
