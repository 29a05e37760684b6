//! Many sequences on one shared model.

use std::{sync::Arc, time::Instant};

use anyhow::Result;
use kinfolk_decoder::{Cache, Cancel, ForwardError, Model, Output, Sequence, Want};

use super::{RequestError, SchedulerOptions, Settings, Stats, inbox::Inbox, prefixes::Prefixes, slot::Slot};
use crate::{
    admission::available_bytes,
    decoder_runner::alike,
    runner::common_prefix,
    session::{Clock, DriveError, FinishReason, ReuseMiss, choosing, guard},
};

/// Tokens two requests must share before one waits for the other to compute them, or copies them from it.
const WORTH_SHARING: usize = 32;

/// Tokens a request gets room for beyond those it has, so that it does not give way again at once.
const HEADROOM_TOKENS: usize = 64;

/// Requests that run side by side.
pub(super) struct Batched<'t> {
    model: Arc<dyn Model>,
    running: Vec<Running<'t>>,
    prefixes: Prefixes,
    /// Whose prompt goes first in the next step.
    turn: usize,
    kv_budget_bytes: u64,
    max_sequences: usize,
    /// Sequences that there was memory for when it ran short, until one of them ends.
    room_for: usize,
    /// There was no memory for the last step.
    is_short: bool,
    step_tokens: usize,
    step_tokens_beside_decode: usize,
    clock: Clock,
    stats: Stats,
}

/// A request with its keys and values.
struct Running<'t> {
    slot: Slot<'t>,
    cache: Box<dyn Cache>,
    /// What the cache holds: the beginning of the generation's context.
    tokens: Vec<u32>,
}

/// What a step computes for one of the running requests.
#[derive(Clone, Debug)]
struct Planned {
    index: usize,
    /// Tokens of the context, after those the cache holds.
    n_tokens: usize,
    /// Guesses after them.
    guesses: Vec<u32>,
}

impl Running<'_> {
    /// Tokens that are not computed yet. At least one, between steps.
    fn n_missing(&self) -> usize {
        self.slot.generation.context().len() - self.tokens.len()
    }

    fn is_decoding(&self) -> bool {
        self.n_missing() == 1 && self.slot.generation.usage().completion_tokens > 0
    }

    /// Trims the cache to what it shares with the context, at least one token short of it.
    fn realign(&mut self) {
        let context = self.slot.generation.context();
        let shared = common_prefix(&self.tokens, context).min(context.len() - 1);
        let kept = self.cache.truncate(shared).min(shared);
        self.tokens.truncate(kept);
        if kept < shared {
            self.slot.generation.stop_drafting();
        }
    }
}

impl<'t> Batched<'t> {
    /// An engine without requests. Adds to `settings` what it decides.
    ///
    /// # Errors
    /// A budget that holds no context worth the name.
    pub fn new(model: Arc<dyn Model>, options: &SchedulerOptions, settings: &mut Settings) -> Result<Batched<'t>> {
        let kv_context_bytes = model.cache_bytes(model.context_length());
        // Where the system does not say what is free, what all of them could fill.
        let all_full = kv_context_bytes.saturating_mul(options.max_sequences as u64);
        let free = available_bytes().map_or(all_full, |bytes| bytes / 2);
        let kv_budget_bytes = options.kv_budget_bytes.unwrap_or(free.min(all_full));
        let context_length = longest_within(&*model, kv_budget_bytes);
        anyhow::ensure!(
            context_length > HEADROOM_TOKENS.min(model.context_length() - 1),
            "scheduler option `kv_budget_bytes`: expected room for a context, found {kv_budget_bytes} bytes, where one of {} takes {}",
            HEADROOM_TOKENS,
            model.cache_bytes(HEADROOM_TOKENS)
        );
        settings.executor = Some(model.executor().to_owned());
        settings.threads = Some(model.threads());
        settings.context_length = context_length;
        settings.batching = true;
        settings.max_sequences = options.max_sequences;
        settings.kv_budget_bytes = Some(kv_budget_bytes);
        settings.kv_context_bytes = Some(kv_context_bytes);
        settings.weight_bytes = Some(model.weight_bytes());
        Ok(Batched {
            model,
            running: Vec::new(),
            prefixes: Prefixes::default(),
            turn: 0,
            kv_budget_bytes,
            max_sequences: options.max_sequences,
            room_for: usize::MAX,
            is_short: false,
            step_tokens: options.step_tokens,
            step_tokens_beside_decode: options.step_tokens_beside_decode,
            clock: Arc::clone(&options.clock),
            stats: Stats::default(),
        })
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    pub fn cancel_all(&mut self, now: Instant) {
        for mut running in self.running.drain(..) {
            running.slot.generation.end(FinishReason::Cancelled, now);
            running.slot.deliver();
        }
    }

    /// Moves what has happened since the last report into `stats`.
    pub fn report(&mut self, stats: &mut Stats) {
        let news = std::mem::take(&mut self.stats);
        stats.steps += news.steps;
        stats.computed_tokens += news.computed_tokens;
        stats.reused_tokens += news.reused_tokens;
        stats.preemptions += news.preemptions;
        stats.evictions += news.evictions;
        stats.running = self.running.len();
        stats.kept_prefixes = self.prefixes.len();
        stats.kv_bytes = self.running.iter().map(|r| r.cache.bytes() as u64).sum::<u64>() + self.prefixes.bytes();
    }

    /// Lets waiting requests in, oldest first, as far as there is room.
    pub fn admit(&mut self, inbox: &mut Inbox<'t>) {
        let mut at = 0;
        while self.running.len() < self.max_sequences.min(self.room_for) {
            let Some(slot) = inbox.waiting.get(at) else { return };
            // A suspect runs alone.
            if !self.running.is_empty() && (slot.is_suspect || self.running.iter().any(|r| r.slot.is_suspect)) {
                return;
            }
            let context = slot.generation.context();
            if self.will_be_shared(context) {
                at += 1;
                continue;
            }
            let needed = self.bytes_with(context.len() + HEADROOM_TOKENS);
            if needed > self.kv_budget_bytes && !self.running.is_empty() {
                return;
            }
            // What the request takes over is in what it needs.
            let taken = self.prefixes.favour(context);
            while needed + self.prefixes.bytes() - taken > self.kv_budget_bytes && self.prefixes.bytes() > taken {
                self.evict();
            }
            if let Some(slot) = inbox.waiting.remove(at) {
                self.begin(slot);
            }
        }
    }

    /// Whether another request is about to compute much more of `context` than is there already.
    fn will_be_shared(&self, context: &[u32]) -> bool {
        let n = context.len() - 1;
        let here = self.running.iter().map(|r| common_prefix(&r.tokens, context)).max().unwrap_or(0);
        let here = here.max(self.prefixes.shared(context)).min(n);
        let computing = self.running.iter().filter(|r| !r.is_decoding());
        let soon = computing.map(|r| common_prefix(r.slot.generation.context(), context)).max().unwrap_or(0).min(n);
        soon >= here + WORTH_SHARING
    }

    fn begin(&mut self, mut slot: Slot<'t>) {
        let context = slot.generation.context();
        let most = context.len() - 1;
        let from_running = self.running.iter().map(|r| (common_prefix(&r.tokens, context).min(most), r));
        let (n_running, other) = from_running.max_by_key(|(n, _)| *n).map_or((0, None), |(n, r)| (n, Some(r)));
        let n_kept = self.prefixes.shared(context).min(most);
        let (shared_tokens, copied) = match other {
            Some(other) if n_running >= WORTH_SHARING && n_running > n_kept => {
                (n_running, Some(other.cache.fork(n_running)))
            }
            _ => (n_kept, None),
        };
        // A window or a recurrent state cannot always go back.
        let copied = copied.filter(|cache| !cache.is_empty()).or_else(|| self.prefixes.take(context));
        let mut cache = copied.unwrap_or_else(|| self.model.new_cache());
        let cached = cache.truncate(most.min(cache.len())).min(most);
        let tokens = context[..cached].to_vec();
        self.stats.reused_tokens += cached as u64;
        let miss = (cached < shared_tokens).then_some(ReuseMiss::CannotGoBack { shared_tokens });
        slot.generation.started(cached, miss, (self.clock)());
        self.running.push(Running { slot, cache, tokens });
    }

    /// One step of every request that runs.
    ///
    /// # Errors
    /// The model panicked and must be replaced. The requests know already.
    pub fn step(&mut self, inbox: &mut Inbox<'t>) -> Result<(), Arc<DriveError>> {
        self.remove_ended(inbox);
        if self.running.is_empty() {
            return Ok(());
        }
        let mut plan = self.plan();
        while self.bytes_after(&plan) > self.kv_budget_bytes {
            if !self.evict() {
                if self.running.len() == 1 {
                    break;
                }
                self.preempt_youngest(inbox);
            }
            plan = self.plan();
        }
        for planned in plan.iter_mut() {
            let running = &mut self.running[planned.index];
            if running.n_missing() == planned.n_tokens && running.is_decoding() {
                planned.guesses = running.slot.generation.draft();
                let n_alike = alike(&*self.model, running.tokens.len(), planned.guesses.len() + 1);
                planned.guesses.truncate(n_alike.saturating_sub(1));
            }
        }
        let mut failed = Vec::new();
        let answer = self.compute(&plan, &mut failed);
        self.remove_failed(failed, inbox);
        if let Err(error) = &answer {
            self.part_with_all(&plan, error, inbox);
        } else {
            self.remove_ended(inbox);
            if std::mem::take(&mut self.is_short) && self.running.len() > 1 {
                self.preempt_youngest(inbox);
                self.room_for = self.running.len();
            }
        }
        answer
    }

    /// After a panic of the model: the requests of the step are suspects, which get another chance alone and no third one. All are computed
    /// anew.
    fn part_with_all(&mut self, plan: &[Planned], error: &Arc<DriveError>, inbox: &mut Inbox<'t>) {
        let mut n_failed = 0;
        for (index, running) in self.running.drain(..).enumerate() {
            let mut slot = running.slot;
            let took_part = plan.iter().any(|planned| planned.index == index);
            if took_part && std::mem::replace(&mut slot.is_suspect, true) {
                slot.fail(RequestError::Drive(Arc::clone(error)));
                n_failed += 1;
            } else {
                inbox.put_back(slot);
            }
        }
        inbox.count(n_failed);
    }

    /// Who computes how much: a token of each reply, and pieces of the prompts within what a step allows, by turns.
    fn plan(&mut self) -> Vec<Planned> {
        let n_decoding = self.running.iter().filter(|r| r.is_decoding()).count();
        let mut room = if n_decoding > 0 { self.step_tokens_beside_decode } else { self.step_tokens };
        self.turn = (self.turn + 1) % self.running.len();
        let mut plan: Vec<Planned> = Vec::new();
        for i in 0..self.running.len() {
            let index = (self.turn + i) % self.running.len();
            let running = &self.running[index];
            let n_tokens = match running.is_decoding() {
                true => 1,
                false => running.n_missing().min(running.slot.chunk_tokens).min(room),
            };
            if n_tokens > 0 {
                room -= if running.is_decoding() { 0 } else { n_tokens };
                plan.push(Planned { index, n_tokens, guesses: Vec::new() });
            }
        }
        plan.sort_unstable_by_key(|planned| planned.index);
        plan
    }

    /// Runs a plan. Requests that fail by themselves are noted in `failed`, with why.
    fn compute(&mut self, plan: &[Planned], failed: &mut Vec<(usize, DriveError)>) -> Result<(), Arc<DriveError>> {
        match self.forward(plan) {
            Ok(outputs) => {
                let now = (self.clock)();
                for (planned, output) in plan.iter().zip(outputs) {
                    if let Err(error) = choosing(|| self.absorb(planned, &output, now)) {
                        failed.push((planned.index, DriveError::Recoverable(error)));
                    }
                }
                Ok(())
            }
            Err(error @ DriveError::RunnerCorrupted { .. }) => Err(Arc::new(error)),
            Err(DriveError::Recoverable(error)) => match (error.downcast_ref(), plan) {
                // Everybody in it has been cancelled or is late, which the next step sees.
                (Some(ForwardError::Cancelled), _) if self.cancelled_together(plan).is_cancelled() => Ok(()),
                (Some(ForwardError::OutOfMemory { .. }), _) if self.evict() => Ok(()),
                (Some(ForwardError::OutOfMemory { .. }), _) if self.running.len() > 1 => {
                    self.is_short = true;
                    Ok(())
                }
                (_, [planned]) => {
                    failed.push((planned.index, DriveError::Recoverable(error)));
                    Ok(())
                }
                // One of them is to blame: alone, it shows which.
                (_, several) => several.iter().try_for_each(|one| self.compute(std::slice::from_ref(one), failed)),
            },
        }
    }

    fn forward(&mut self, plan: &[Planned]) -> Result<Vec<Output>, DriveError> {
        let inputs: Vec<Vec<u32>> = plan
            .iter()
            .map(|planned| {
                let running = &self.running[planned.index];
                let done = running.tokens.len();
                let tokens = &running.slot.generation.context()[done..done + planned.n_tokens];
                [tokens, &planned.guesses].concat()
            })
            .collect();
        let cancel = self.cancelled_together(plan);
        let mut batch = Vec::with_capacity(plan.len());
        let mut planned = plan.iter().zip(&inputs).peekable();
        for (index, running) in self.running.iter_mut().enumerate() {
            let Some((planned, tokens)) = planned.next_if(|(planned, _)| planned.index == index) else { continue };
            let want = match running.n_missing() == planned.n_tokens {
                true if planned.guesses.is_empty() => Want::LastLogits,
                true => Want::AllLogits,
                false => Want::Nothing,
            };
            batch.push(Sequence { cache: &mut *running.cache, tokens, want });
        }
        self.stats.steps += 1;
        self.stats.computed_tokens += inputs.iter().map(|tokens| tokens.len() as u64).sum::<u64>();
        let model = &self.model;
        guard(|| {
            let outputs = model.forward(&mut batch, &cancel)?;
            anyhow::ensure!(outputs.len() == plan.len(), "expected {} outputs, found {}", plan.len(), outputs.len());
            Ok(outputs)
        })
    }

    /// Ends a step early once nobody in it wants it any more.
    fn cancelled_together(&self, plan: &[Planned]) -> Cancel {
        let hosts: Vec<_> =
            plan.iter().map(|p| &self.running[p.index].slot).map(|slot| (slot.cancel(), slot.deadline)).collect();
        let clock = Arc::clone(&self.clock);
        Cancel::when(move || {
            let is_late = |deadline: Option<Instant>| deadline.is_some_and(|deadline| clock() >= deadline);
            hosts.iter().all(|(cancel, deadline)| cancel.is_cancelled() || is_late(*deadline))
        })
    }

    /// Takes in what a step has computed for one request.
    fn absorb(&mut self, planned: &Planned, output: &Output, now: Instant) -> Result<()> {
        let running = &mut self.running[planned.index];
        let done = running.tokens.len() + planned.n_tokens;
        let generation = &mut running.slot.generation;
        running.tokens.extend_from_slice(&generation.context()[running.tokens.len()..done]);
        running.tokens.extend_from_slice(&planned.guesses);
        let (expected, found) = (running.tokens.len(), running.cache.len());
        anyhow::ensure!(expected == found, "expected a cache of {expected} tokens, found one of {found}");
        generation.computed(done, now);
        if done < generation.context().len() {
            return Ok(());
        }
        // All logits are those after every token; the first that counts is the one after the last token that is no guess.
        let n_before = output.rows().len().saturating_sub(planned.guesses.len() + 1);
        generation.choose_along(output.rows().skip(n_before), &planned.guesses, now)?;
        if !generation.has_ended() {
            running.realign();
        }
        Ok(())
    }

    /// Gives hosts their events, and lets go of requests that have ended.
    fn remove_ended(&mut self, inbox: &Inbox<'t>) {
        let now = (self.clock)();
        let mut n_ended = 0;
        let mut index = 0;
        while let Some(running) = self.running.get_mut(index) {
            running.slot.generation.is_interrupted(now);
            if running.slot.deliver() {
                let Running { mut cache, mut tokens, slot } = self.running.swap_remove(index);
                // Without guesses that nobody has confirmed.
                let kept = cache.truncate(common_prefix(&tokens, slot.generation.context()));
                tokens.truncate(kept);
                if !tokens.is_empty() {
                    self.prefixes.keep(tokens, cache, self.max_sequences);
                }
                n_ended += 1;
            } else {
                index += 1;
            }
        }
        self.note_ended(n_ended, inbox);
    }

    /// Who has ended makes room.
    fn note_ended(&mut self, n_ended: usize, inbox: &Inbox<'t>) {
        if n_ended > 0 {
            self.room_for = usize::MAX;
        }
        inbox.count(n_ended);
    }

    fn remove_failed(&mut self, mut failed: Vec<(usize, DriveError)>, inbox: &Inbox<'t>) {
        failed.sort_unstable_by_key(|(index, _)| std::cmp::Reverse(*index));
        let n = failed.len();
        for (index, error) in failed {
            // Its keys and values are not trusted.
            let running = self.running.swap_remove(index);
            running.slot.fail(RequestError::Drive(Arc::new(error)));
        }
        self.note_ended(n, inbox);
    }

    /// Lets go of the least recently used beginning. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let evicted = self.prefixes.evict();
        self.stats.evictions += u64::from(evicted);
        evicted
    }

    /// The request that came last gives way; it is computed anew when its turn comes again.
    fn preempt_youngest(&mut self, inbox: &mut Inbox<'t>) {
        let youngest = self.running.iter().enumerate().max_by_key(|(_, running)| running.slot.arrival);
        if let Some((index, _)) = youngest {
            let running = self.running.swap_remove(index);
            self.stats.preemptions += 1;
            inbox.put_back(running.slot);
        }
    }

    /// Bytes of keys and values with one more sequence of `n` tokens, without those that are kept.
    fn bytes_with(&self, n: usize) -> u64 {
        let n = n.min(self.model.context_length());
        let running: u64 = self.running.iter().map(|r| self.bytes_of(r, r.slot.generation.context().len())).sum();
        running + self.model.cache_bytes(n)
    }

    /// Bytes of keys and values after a plan.
    fn bytes_after(&self, plan: &[Planned]) -> u64 {
        let mut bytes = self.prefixes.bytes();
        for (index, running) in self.running.iter().enumerate() {
            let planned = plan.iter().find(|planned| planned.index == index);
            bytes += self.bytes_of(running, running.tokens.len() + planned.map_or(0, |planned| planned.n_tokens));
        }
        bytes
    }

    fn bytes_of(&self, running: &Running<'_>, n: usize) -> u64 {
        self.model.cache_bytes(n.min(self.model.context_length())).max(running.cache.bytes() as u64)
    }
}

/// Tokens of the longest context that fits the budget.
fn longest_within(model: &dyn Model, budget: u64) -> usize {
    let (mut fits, mut beyond) = (0, model.context_length() + 1);
    while fits + 1 < beyond {
        let n = fits + (beyond - fits) / 2;
        if model.cache_bytes(n) <= budget {
            fits = n;
        } else {
            beyond = n;
        }
    }
    fits
}
