//! Many requests on one model.
//!
//! A thread owns the model. Requests come through a bounded queue; each is answered by exactly one last event, whatever happens. Where the
//! runner shares its [`Model`](kinfolk_decoder::Model), requests run side by side (continuous batching, Yu et al. 2022): every step decodes a
//! token of each reply and computes a piece of the prompts that are not done, so that a long prompt stalls nobody. Other runners take one
//! request at a time.
//!
//! What a request gets does not depend on what runs beside it. Prompts that begin alike compute the beginning once. Memory for keys and
//! values stays within a budget: what is only kept for later goes first, then the youngest request gives way and is computed anew when its
//! turn comes again. After a panic of the model another is loaded, and the requests of that step run once more, each by itself: the one
//! to blame fails, and the others notice nothing.

mod alone;
mod batched;
mod inbox;
mod prefixes;
mod report;
mod slot;
mod ticket;
mod worker;

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use anyhow::Result;
use kinfolk_decoder::{Cancel, Workload};
use kinfolk_text::Text;

pub use report::{Settings, Stats};
pub use ticket::{RequestError, Ticket};

use crate::{
    sampling::SampleOpts,
    session::{Clock, Reload, Request},
};
use slot::Job;

/// How requests share a model.
#[derive(Clone)]
#[non_exhaustive]
pub struct SchedulerOptions {
    /// Requests that may wait. One more is refused.
    pub queue_len: usize,
    /// Requests that run side by side.
    pub max_sequences: usize,
    /// Prompt tokens computed per step while nobody decodes.
    pub step_tokens: usize,
    /// Prompt tokens computed per step beside replies: fewer keep the replies fluent, more bring the prompt in sooner.
    pub step_tokens_beside_decode: usize,
    /// Most bytes of keys and values, those kept for later included. `None`: half of the memory the machine has free at load.
    pub kv_budget_bytes: Option<u64>,
    /// How tokens are chosen where a request does not say.
    pub sample: SampleOpts,
    /// Where deadlines and timings are read from.
    pub clock: Clock,
}

impl Default for SchedulerOptions {
    /// 64 may wait and 16 run; steps of 512 prompt tokens, or 64 beside replies.
    fn default() -> Self {
        SchedulerOptions {
            queue_len: 64,
            max_sequences: 16,
            step_tokens: Workload::CHUNK_TOKENS,
            step_tokens_beside_decode: 64,
            kv_budget_bytes: None,
            sample: SampleOpts::default(),
            clock: Arc::new(Instant::now),
        }
    }
}

/// Runs requests on a model that its own thread owns. Dropping it ends them and frees the model.
pub struct Scheduler {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    text: Arc<Text>,
    queue_len: usize,
    clock: Clock,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many wait already. Another try later may find room.
    #[error("expected fewer than {queue_len} waiting requests, found that many")]
    QueueFull {
        /// How many may wait.
        queue_len: usize,
    },
}

/// What the worker and its hosts share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something for the worker to do.
    wake: Condvar,
    /// The last host is gone, and what runs ends too. Set with the lock held, so that the worker does not miss it.
    closing: Cancel,
}

#[derive(Debug, Default)]
struct State {
    /// Requests the worker has not seen.
    queue: VecDeque<Job>,
    /// Requests it has seen, whose turn has not come.
    n_waiting: usize,
    /// Hosts that wait for the model to be unloaded.
    unloads: Vec<async_channel::Sender<()>>,
    settings: Settings,
    stats: Stats,
}

impl Shared {
    /// Nothing is left half-done while the lock is held, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduler {
    /// Loads a model with `load`, on the thread that will own it, and waits until it is there. `load` is called again after an
    /// [`unload`](Self::unload) or a panic.
    ///
    /// # Errors
    /// Whatever `load` fails with; options out of range; a system without another thread.
    pub fn start(load: Reload, text: impl Into<Arc<Text>>, options: SchedulerOptions) -> Result<Scheduler> {
        options.sample.validate()?;
        for (name, value) in [
            ("queue_len", options.queue_len),
            ("max_sequences", options.max_sequences),
            ("step_tokens", options.step_tokens),
            ("step_tokens_beside_decode", options.step_tokens_beside_decode),
        ] {
            anyhow::ensure!(value > 0, "scheduler option `{name}`: expected at least 1, found 0");
        }
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), closing: Cancel::new() });
        let (queue_len, clock) = (options.queue_len, Arc::clone(&options.clock));
        let (loaded, wait_for_load) = async_channel::bounded(1);
        let text = text.into();
        let worker = {
            let (shared, text) = (Arc::clone(&shared), Arc::clone(&text));
            std::thread::Builder::new()
                .name("kinfolk-scheduler".to_owned())
                .spawn(move || worker::run(&shared, load, &text, &options, &loaded))?
        };
        let scheduler = Scheduler { shared, worker: Some(worker), text, queue_len, clock };
        match wait_for_load.recv_blocking() {
            Ok(answer) => answer.map(|()| scheduler),
            Err(_) => anyhow::bail!("the load panicked"),
        }
    }

    /// Hands a request in. Its events come from the ticket; dropping the ticket cancels it.
    ///
    /// # Errors
    /// `QueueFull`. What is wrong with the prompt or the request itself is the ticket's one event.
    pub fn submit(&self, prompt: &[u32], request: Request) -> Result<Ticket, SubmitError> {
        // The clock is the host's, and may ask the scheduler something.
        let now = (self.clock)();
        let mut state = self.shared.lock();
        if state.queue.len() + state.n_waiting >= self.queue_len {
            return Err(SubmitError::QueueFull { queue_len: self.queue_len });
        }
        let (job, ticket) = Job::new(prompt, request, now, &self.shared.closing);
        state.queue.push_back(job);
        state.stats.submitted += 1;
        self.shared.wake.notify_one();
        Ok(ticket)
    }

    /// Frees the model and all keys and values once the running requests have ended, and returns when that is done. Waiting requests, and
    /// later ones, load it again.
    pub fn unload(&self) {
        let (done, wait) = async_channel::bounded(1);
        self.shared.lock().unloads.push(done);
        self.shared.wake.notify_one();
        // An error says that the worker let go of everything, too.
        let _ = wait.recv_blocking();
    }

    /// Tokenizer, template and ends, to make prompts with.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// The settings in effect, as model, options and machine have made them.
    pub fn settings(&self) -> Settings {
        self.shared.lock().settings.clone()
    }

    /// What is going on now, and what has so far.
    pub fn stats(&self) -> Stats {
        let state = self.shared.lock();
        Stats { waiting: state.queue.len() + state.n_waiting, ..state.stats.clone() }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let state = self.shared.lock();
        self.shared.closing.cancel();
        drop(state);
        self.shared.wake.notify_one();
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has let go of everything as well.
            drop(worker.join());
        }
    }
}
