//! Requests whose turn has not come.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use kinfolk_text::Text;

use super::{RequestError, SchedulerOptions, Shared, slot::Slot};
use crate::session::FinishReason;

/// The worker's end of the queue.
pub(super) struct Inbox<'w> {
    pub shared: &'w Shared,
    text: &'w Text,
    options: &'w SchedulerOptions,
    /// Oldest first. Those among them that had to give way are older than those that never ran.
    pub waiting: VecDeque<Slot<'w>>,
    arrivals: u64,
}

impl<'w> Inbox<'w> {
    pub fn new(shared: &'w Shared, text: &'w Text, options: &'w SchedulerOptions) -> Inbox<'w> {
        Inbox { shared, text, options, waiting: VecDeque::new(), arrivals: 0 }
    }

    /// Looks at the requests that have come in, and ends those that wait for nothing any more.
    pub fn update(&mut self) {
        let (jobs, settings) = {
            let mut state = self.shared.lock();
            // Counted as waiting before they leave the queue, so that it does not look shorter than it is.
            state.n_waiting += state.queue.len();
            (std::mem::take(&mut state.queue), state.settings.clone())
        };
        let mut n_ended = 0;
        for job in jobs {
            self.arrivals += 1;
            let (vocab_size, context_length) = (settings.vocab_size, settings.context_length);
            match Slot::new(job, self.text, &self.options.sample, vocab_size, context_length, self.arrivals) {
                Some(slot) => self.waiting.push_back(slot),
                None => n_ended += 1,
            }
        }
        let now = self.now();
        let n_before = self.waiting.len();
        self.waiting.retain_mut(|slot| !(slot.generation.is_interrupted(now) && slot.deliver()));
        n_ended += n_before - self.waiting.len();
        self.count(n_ended);
    }

    /// Puts a request back that has to give way, in the order of arrival.
    pub fn put_back(&mut self, slot: Slot<'w>) {
        let at = self.waiting.partition_point(|other| other.arrival < slot.arrival);
        self.waiting.insert(at, slot);
    }

    /// Ends every request with an error.
    pub fn fail_all(&mut self, error: anyhow::Error) {
        let error = RequestError::Load(Arc::new(error));
        let n = self.waiting.len();
        self.waiting.drain(..).for_each(|slot| slot.fail(error.clone()));
        self.count(n);
    }

    /// Ends every request, since the last host is gone.
    pub fn cancel_all(&mut self) {
        let now = self.now();
        for mut slot in self.waiting.drain(..) {
            slot.generation.end(FinishReason::Cancelled, now);
            slot.deliver();
        }
    }

    /// Counts requests that have ended.
    pub fn count(&self, n_ended: usize) {
        let mut state = self.shared.lock();
        state.stats.ended += n_ended as u64;
        state.n_waiting = self.waiting.len();
    }

    pub fn now(&self) -> Instant {
        (self.options.clock)()
    }
}
