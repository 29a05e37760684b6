//! The thread that owns the model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::Result;
use async_channel::Sender;
use kinfolk_text::Text;

use super::{RequestError, SchedulerOptions, Settings, Shared, Stats, alone::Alone, batched::Batched, inbox::Inbox};
use crate::{
    runner::LmRunner,
    session::{Reload, discard, guard},
};

/// Serves requests until the last host is gone. Says through `loaded` how the first load went.
pub(super) fn run(
    shared: &Shared,
    mut load: Reload,
    text: &Text,
    options: &SchedulerOptions,
    loaded: &Sender<Result<()>>,
) {
    let mut first = match guard(|| Engine::load(&mut load, options, shared)) {
        Ok(engine) => Some(engine),
        Err(error) => return drop(loaded.try_send(Err(error.into()))),
    };
    drop(loaded.try_send(Ok(())));
    loop {
        let engine = first.take();
        let served = catch_unwind(AssertUnwindSafe(|| {
            Worker { inbox: Inbox::new(shared, text, options), options, engine }.serve(&mut load);
        }));
        if served.is_ok() {
            return;
        }
        // Whoever was with the worker is told by the end of its channel; whoever is in the queue, here. Another worker serves what comes.
        tracing::error!("the scheduler panicked and starts again");
        let queue = {
            let mut state = shared.lock();
            state.n_waiting = 0;
            state.stats.ended = state.stats.submitted;
            state.stats = Stats { running: 0, loaded: false, kv_bytes: 0, kept_prefixes: 0, ..state.stats.clone() };
            std::mem::take(&mut state.queue)
        };
        // Without the lock, and guarded: constraints and drafters are the host's own, and go with their request.
        for job in queue {
            drop(guard(|| {
                job.fail(RequestError::WorkerDied);
                Ok(())
            }));
        }
    }
}

/// A loaded model and the way it takes requests.
enum Engine<'t> {
    Batched(Batched<'t>),
    Alone(Alone),
}

impl Engine<'_> {
    fn load(load: &mut Reload, options: &SchedulerOptions, shared: &Shared) -> Result<Self> {
        let runner = load()?;
        let mut settings = Settings {
            family: runner.family().to_owned(),
            vocab_size: runner.vocab_size(),
            context_length: runner.context_length(),
            max_sequences: 1,
            queue_len: options.queue_len,
            step_tokens: options.step_tokens,
            step_tokens_beside_decode: options.step_tokens_beside_decode,
            ..Settings::default()
        };
        let engine = match runner.model() {
            Some(model) => Engine::Batched(Batched::new(model, options, &mut settings)?),
            None => Engine::Alone(Alone::new(runner)),
        };
        let mut state = shared.lock();
        state.settings = settings;
        state.stats.loaded = true;
        state.stats.loads += 1;
        Ok(engine)
    }

    /// Whether no request is under way.
    fn is_idle(&self) -> bool {
        match self {
            Engine::Batched(batched) => batched.is_idle(),
            Engine::Alone(_) => true,
        }
    }
}

struct Worker<'w> {
    inbox: Inbox<'w>,
    options: &'w SchedulerOptions,
    engine: Option<Engine<'w>>,
}

impl Worker<'_> {
    fn serve(mut self, load: &mut Reload) {
        while self.wait_for_work() {
            self.unload_if_asked();
            self.inbox.update();
            if self.is_idle() {
                continue;
            }
            if self.engine.is_none() {
                match guard(|| Engine::load(load, self.options, self.inbox.shared)) {
                    Ok(engine) => self.engine = Some(engine),
                    Err(error) => self.inbox.fail_all(error.into()),
                }
            }
            self.step();
            self.report();
        }
        // A host may hold tickets still.
        self.inbox.update();
        self.inbox.cancel_all();
        if let Some(Engine::Batched(batched)) = &mut self.engine {
            batched.cancel_all(self.inbox.now());
        }
    }

    /// Whether nobody waits and nothing is under way.
    fn is_idle(&self) -> bool {
        self.inbox.waiting.is_empty() && self.has_none_running()
    }

    fn has_none_running(&self) -> bool {
        self.engine.as_ref().is_none_or(Engine::is_idle)
    }

    /// Sleeps while there is nothing to do. Returns false once the last host is gone.
    fn wait_for_work(&self) -> bool {
        let mut state = self.inbox.shared.lock();
        while self.is_idle()
            && state.queue.is_empty()
            && state.unloads.is_empty()
            && !self.inbox.shared.closing.is_cancelled()
        {
            state = self.inbox.shared.wake.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        !self.inbox.shared.closing.is_cancelled()
    }

    /// Lets go of the model if a host asks and no request is under way.
    fn unload_if_asked(&mut self) {
        if !self.has_none_running() || self.inbox.shared.lock().unloads.is_empty() {
            return;
        }
        self.engine = None;
        self.report();
        let unloads = std::mem::take(&mut self.inbox.shared.lock().unloads);
        for done in unloads {
            let _ = done.try_send(());
        }
    }

    fn step(&mut self) {
        let answer = match self.engine.as_mut() {
            None => return,
            Some(Engine::Batched(batched)) => {
                // Who waits for the model to be unloaded waits for the requests that run, and for no others.
                if self.inbox.shared.lock().unloads.is_empty() {
                    batched.admit(&mut self.inbox);
                }
                batched.step(&mut self.inbox)
            }
            Some(Engine::Alone(alone)) => {
                let Some(slot) = self.inbox.waiting.pop_front() else { return };
                self.inbox.shared.lock().stats.running = 1;
                let answer = alone.serve(slot, &self.options.clock, || self.inbox.update());
                self.inbox.count(1);
                answer
            }
        };
        if let Err(error) = answer {
            tracing::warn!("the model is loaded again: {error}");
            discard(self.engine.take());
        }
    }

    fn report(&mut self) {
        let mut state = self.inbox.shared.lock();
        state.n_waiting = self.inbox.waiting.len();
        let stats = &mut state.stats;
        stats.loaded = self.engine.is_some();
        (stats.running, stats.kv_bytes, stats.kept_prefixes) = (0, 0, 0);
        if let Some(Engine::Batched(batched)) = &mut self.engine {
            batched.report(stats);
        }
    }
}
