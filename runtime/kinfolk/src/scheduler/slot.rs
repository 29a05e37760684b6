//! A request, from the queue to its end.

use std::{sync::Arc, time::Instant};

use async_channel::Sender;
use kinfolk_decoder::Cancel;
use kinfolk_text::Text;

use super::{RequestError, Ticket};
use crate::{
    sampling::SampleOpts,
    session::{Event, Generation, Request, guard},
};

/// Whoever waits for a request.
#[derive(Debug)]
pub(super) struct Host {
    events: Sender<Result<Event, RequestError>>,
    cancel: Cancel,
    max_unread: usize,
}

/// Events per token of the context that a host may leave unread: more than a reply has that ends with the context. One that goes on for
/// ever, dropping what no longer fits, ends where nobody reads it.
const UNREAD_PER_TOKEN: usize = 8;

impl Host {
    /// Passes an event on. A host that is gone or reads nothing cancels its request.
    pub fn send(&self, event: Event) {
        if self.events.try_send(Ok(event)).is_err() || self.events.len() > self.max_unread {
            self.cancel.cancel();
        }
    }

    /// Says that the request has failed.
    pub fn fail(&self, error: RequestError) {
        // A host that is gone needs no answer.
        drop(self.events.try_send(Err(error)));
    }
}

/// A request nobody has looked at yet.
#[derive(Debug)]
pub(super) struct Job {
    prompt: Vec<u32>,
    request: Request,
    asked_at: Instant,
    host: Host,
}

impl Job {
    /// A job and its host's end. It is cancelled by the flag of the request, by its ticket, or once the scheduler is `closing`.
    pub fn new(prompt: &[u32], mut request: Request, asked_at: Instant, closing: &Cancel) -> (Job, Ticket) {
        let (events, receiver) = async_channel::unbounded();
        // A flag of its own, since a host may share one among many requests.
        let (by_host, closing) = (std::mem::take(&mut request.cancel), closing.clone());
        // Where it asks code of the host that panics, there is nobody left to generate for.
        let is_cancelled = move || guard(|| Ok(by_host.is_cancelled())).unwrap_or(true);
        let cancel = Cancel::when(move || is_cancelled() || closing.is_cancelled());
        request.cancel = cancel.clone();
        let ticket = Ticket { events: receiver, cancel: cancel.clone(), ended: false };
        (
            Job { prompt: prompt.to_vec(), request, asked_at, host: Host { events, cancel, max_unread: usize::MAX } },
            ticket,
        )
    }

    pub fn fail(self, error: RequestError) {
        self.host.fail(error);
    }
}

/// A request on its way to tokens.
pub(super) struct Slot<'t> {
    pub generation: Generation<'t>,
    /// Prompt tokens per step, at most.
    pub chunk_tokens: usize,
    pub deadline: Option<Instant>,
    /// Place in the order of arrival.
    pub arrival: u64,
    /// The model panicked in a step that it took part in.
    pub is_suspect: bool,
    host: Host,
}

impl<'t> Slot<'t> {
    /// Looks at a request. `None`: it cannot be run, and has been told so.
    pub fn new(
        job: Job,
        text: &'t Text,
        sample: &SampleOpts,
        vocab_size: usize,
        context_length: usize,
        arrival: u64,
    ) -> Option<Slot<'t>> {
        let Job { prompt, request, asked_at, mut host } = job;
        host.max_unread = context_length.saturating_mul(UNREAD_PER_TOKEN);
        let (chunk_tokens, deadline) = (request.chunk_tokens.max(1), request.deadline);
        match Generation::new(text, &prompt, request, sample, vocab_size, context_length, asked_at) {
            Ok(generation) => Some(Slot { generation, chunk_tokens, deadline, arrival, is_suspect: false, host }),
            Err(error) => {
                host.fail(RequestError::Invalid(Arc::new(error)));
                None
            }
        }
    }

    /// Gives the host what has happened. Returns whether the request has ended.
    pub fn deliver(&mut self) -> bool {
        while let Some(event) = self.generation.next_event() {
            self.host.send(event);
        }
        self.generation.has_ended()
    }

    /// Ends the request with an error, after what has happened before it.
    pub fn fail(mut self, error: RequestError) {
        if !self.deliver() {
            self.host.fail(error);
        }
    }

    /// Whether nobody wants the request any more.
    pub fn cancel(&self) -> Cancel {
        self.host.cancel.clone()
    }

    pub fn into_parts(self) -> (Generation<'t>, usize, Host) {
        (self.generation, self.chunk_tokens, self.host)
    }
}
