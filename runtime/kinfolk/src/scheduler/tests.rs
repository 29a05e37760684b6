//! The scheduler over a model whose every pass is known, and may go wrong.

mod corners;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use kinfolk_decoder::Cancel;
use proptest::prelude::*;

use super::{RequestError, Scheduler, SchedulerOptions, Stats, SubmitError, Ticket};
use crate::{
    LmRunner, RunnerError,
    sampling::SampleOpts,
    session::{Clock, DriveError, Event, FinishReason, Outcome, Request, Session},
    speculation::{PromptLookup, Speculation},
    toy_model::{Fault, Log, ToyModel, prompt, text},
    toy_runner::{Abilities, ToyRunner},
};

fn greedy(max_tokens: usize) -> Request {
    Request { max_tokens: Some(max_tokens), sample: Some(SampleOpts::greedy()), ..Request::default() }
}

fn sampled(max_tokens: usize, seed: u64) -> Request {
    let sample = SampleOpts { seed: Some(seed), ..SampleOpts::default() };
    Request { max_tokens: Some(max_tokens), sample: Some(sample), ..Request::default() }
}

fn start(make: impl Fn(&Arc<Log>) -> ToyModel + Send + 'static, options: SchedulerOptions) -> (Scheduler, Arc<Log>) {
    let log = Arc::new(Log::default());
    let shared = Arc::clone(&log);
    let scheduler = Scheduler::start(Box::new(move || Ok(make(&shared).runner())), text(), options).unwrap();
    (scheduler, log)
}

/// The first pass takes long enough for a test to submit whatever it wants to run side by side.
fn first_waits(pass: usize, _: &[&[u32]]) -> Option<Fault> {
    (pass == 0).then_some(Fault::Stall(Duration::from_millis(200)))
}

/// The stats once `n` requests have ended and the worker has said so.
fn settled(scheduler: &Scheduler, n: u64) -> Stats {
    loop {
        let stats = scheduler.stats();
        if stats.ended >= n && stats.running == 0 {
            return stats;
        }
        std::thread::yield_now();
    }
}

/// How a request ended, after events that any stream must have.
#[track_caller]
fn outcome(ticket: Ticket) -> Result<(String, Outcome), RequestError> {
    let mut text = String::new();
    let mut end = None;
    let mut done = 0;
    for event in ticket {
        assert!(end.is_none(), "nothing comes after the end");
        match event {
            Ok(Event::Reply(kinfolk_text::ReplyEvent::Text(piece))) => text += &piece,
            Ok(Event::Progress { done_tokens, total_tokens }) => {
                assert!(done_tokens >= done && done_tokens <= total_tokens);
                done = done_tokens;
            }
            Ok(Event::Done(outcome)) => end = Some(Ok(outcome)),
            Ok(_) => {}
            Err(error) => end = Some(Err(error)),
        }
    }
    end.expect("every request ends").map(|outcome| (text, outcome))
}

#[track_caller]
fn finished(ticket: Ticket) -> (String, Outcome) {
    outcome(ticket).unwrap()
}

/// What a request gets from a session of its own.
fn alone(prompt: &[u32], request: Request) -> (String, FinishReason, usize) {
    let mut session = Session::new(ToyModel::new(&Arc::default()).runner(), text());
    let found = session.complete(prompt, request).unwrap();
    (found.text, found.outcome.finish_reason, found.outcome.usage.completion_tokens)
}

#[track_caller]
fn equals_alone(found: (String, Outcome), prompt: &[u32], request: Request) {
    let (text, Outcome { finish_reason, usage, .. }) = found;
    assert_eq!((text, finish_reason, usage.completion_tokens), alone(prompt, request));
}

#[test]
fn requests_side_by_side_get_what_they_get_alone() {
    let (scheduler, log) = start(|log| ToyModel::new(log).failing(first_waits), SchedulerOptions::default());
    let cases: Vec<(Vec<u32>, u64)> = (0..30).map(|i| (prompt(i, 1 + (i as usize * 37) % 200), u64::from(i))).collect();
    let tickets: Vec<Ticket> =
        cases.iter().map(|(prompt, seed)| scheduler.submit(prompt, sampled(20, *seed)).unwrap()).collect();
    for (ticket, (prompt, seed)) in tickets.into_iter().zip(&cases) {
        equals_alone(finished(ticket), prompt, sampled(20, *seed));
    }
    let widest = log.batches.lock().unwrap().iter().map(Vec::len).max();
    assert!(widest > Some(8), "they ran side by side: {widest:?}");
}

#[test]
fn a_common_beginning_is_computed_once() {
    let (scheduler, log) = start(ToyModel::new, SchedulerOptions::default());
    let system = prompt(1, 150);
    let prompts: Vec<Vec<u32>> = (2..8).map(|i| [&system[..], &prompt(i, 5)].concat()).collect();
    let tickets: Vec<Ticket> = prompts.iter().map(|prompt| scheduler.submit(prompt, greedy(3)).unwrap()).collect();
    let mut cached = Vec::new();
    for (ticket, prompt) in tickets.into_iter().zip(&prompts) {
        let found = finished(ticket);
        cached.push(found.1.usage.cached_tokens);
        equals_alone(found, prompt, greedy(3));
    }
    cached.sort_unstable();
    assert_eq!(cached, [0, 150, 150, 150, 150, 150]);
    let computed: usize = log.batches.lock().unwrap().iter().flatten().sum();
    assert!(computed <= 150 + 6 * (5 + 3), "{computed}");
    // Later, too, and in a conversation that goes on.
    let later = finished(scheduler.submit(&[&system[..], &prompt(9, 5)].concat(), greedy(3)).unwrap()).1;
    assert_eq!(later.usage.cached_tokens, 150);
}

#[test]
fn a_long_prompt_does_not_stall_a_reply() {
    let options = SchedulerOptions { step_tokens_beside_decode: 8, ..SchedulerOptions::default() };
    let (scheduler, log) = start(|log| ToyModel::new(log).endless(4096), options);
    // Long enough to be there still when the prompt comes, however busy the machine is.
    let mut reply = scheduler.submit(&prompt(1, 4), greedy(4000)).unwrap();
    reply.find(|event| matches!(event, Ok(Event::Reply(_)))).unwrap().unwrap();
    let long = scheduler.submit(&prompt(2, 200), greedy(1)).unwrap();
    finished(long);
    drop(reply);
    let batches = log.batches.lock().unwrap();
    // While both run, the prompt gets no more than its share of a step, and the reply a token of each.
    let together: Vec<&Vec<usize>> = batches.iter().filter(|batch| batch.len() == 2).collect();
    assert!(together.len() >= 20, "{batches:?}");
    assert!(together.iter().all(|batch| batch.contains(&1) && batch.iter().sum::<usize>() <= 9), "{batches:?}");
}

#[test]
fn prompts_take_turns() {
    // A short prompt that comes after a long one is not behind it.
    let options = SchedulerOptions { step_tokens: 16, ..SchedulerOptions::default() };
    let stall = |pass: usize, _: &[&[u32]]| (pass == 0).then_some(Fault::Stall(Duration::from_millis(50)));
    let (scheduler, _) = start(move |log| ToyModel::new(log).failing(stall), options);
    let long = scheduler.submit(&prompt(1, 250), greedy(1)).unwrap();
    let short = scheduler.submit(&prompt(2, 20), greedy(1)).unwrap();
    let (short, long) = (finished(short).1.timings, finished(long).1.timings);
    assert!(short.time_to_first_token < long.time_to_first_token, "{short:?} {long:?}");
}

/// A scheduler whose model waits in its first pass, so that what is submitted meanwhile waits too.
fn busy(time: Duration, options: SchedulerOptions) -> (Scheduler, Ticket) {
    let stall = move |pass: usize, _: &[&[u32]]| (pass == 0).then_some(Fault::Stall(time));
    let (scheduler, _) = start(move |log| ToyModel::new(log).failing(stall), options);
    let first = scheduler.submit(&prompt(0, 3), greedy(2)).unwrap();
    while scheduler.stats().running == 0 && scheduler.stats().waiting > 0 {
        std::thread::yield_now();
    }
    (scheduler, first)
}

#[test]
fn a_full_queue_refuses_and_the_rest_is_served() {
    let options = SchedulerOptions { queue_len: 4, max_sequences: 1, ..SchedulerOptions::default() };
    let (scheduler, first) = busy(Duration::from_millis(200), options);
    let tickets: Vec<Ticket> = (1..=4).filter_map(|i| scheduler.submit(&prompt(i, 3), greedy(2)).ok()).collect();
    let refused = scheduler.submit(&prompt(9, 3), greedy(2)).unwrap_err();
    assert_eq!(refused, SubmitError::QueueFull { queue_len: 4 });
    finished(first);
    tickets.into_iter().for_each(|ticket| drop(finished(ticket)));
}

#[test]
fn who_waits_can_be_cancelled_or_late() {
    let options = SchedulerOptions { max_sequences: 1, ..SchedulerOptions::default() };
    let (scheduler, first) = busy(Duration::from_millis(100), options);
    let cancelled = scheduler.submit(&prompt(1, 3), greedy(2)).unwrap();
    cancelled.cancel();
    let late = Request { deadline: Some(Instant::now()), ..greedy(2) };
    let late = scheduler.submit(&prompt(2, 3), late).unwrap();
    assert_eq!(finished(cancelled).1.finish_reason, FinishReason::Cancelled);
    assert_eq!(finished(late).1.finish_reason, FinishReason::LocalDecodeTimeout);
    finished(first);
}

#[test]
fn a_deadline_keeps_the_text_and_a_step_nobody_wants_is_cut_short() {
    let forever = |log: &Arc<Log>| ToyModel::new(log).endless(100_000);
    let slow = |_: usize, _: &[&[u32]]| Some(Fault::Stall(Duration::from_millis(2)));
    let (scheduler, _) = start(move |log| forever(log).failing(slow), SchedulerOptions::default());
    let request = Request { deadline: Some(Instant::now() + Duration::from_millis(100)), ..greedy(1_000_000) };
    let (text, outcome) = finished(scheduler.submit(&prompt(1, 4), request).unwrap());
    assert_eq!(outcome.finish_reason, FinishReason::LocalDecodeTimeout);
    assert!(!text.is_empty() && outcome.usage.completion_tokens > 1);
}

#[test]
fn a_host_that_goes_stops_its_request_within_a_step() {
    let (scheduler, log) = start(|log| ToyModel::new(log).endless(256), SchedulerOptions::default());
    let mut ticket = scheduler.submit(&prompt(1, 4), greedy(200)).unwrap();
    ticket.find(|event| matches!(event, Ok(Event::Reply(_)))).unwrap().unwrap();
    drop(ticket);
    settled(&scheduler, 1);
    let passes = log.passes.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(log.passes.load(Ordering::SeqCst), passes, "nothing is computed for nobody");
}

#[test]
fn keys_and_values_stay_within_the_budget_and_the_youngest_gives_way() {
    let options = SchedulerOptions { kv_budget_bytes: Some(300), ..SchedulerOptions::default() };
    let (scheduler, log) = start(|log| ToyModel::new(log).endless(256).failing(first_waits), options);
    assert_eq!(scheduler.settings().context_length, 256);
    let prompts: Vec<Vec<u32>> = (0..6).map(|i| prompt(i, 60)).collect();
    let tickets: Vec<Ticket> = prompts.iter().map(|prompt| scheduler.submit(prompt, greedy(120)).unwrap()).collect();
    for (ticket, prompt) in tickets.into_iter().zip(&prompts) {
        let (found, outcome) = finished(ticket);
        let mut session = Session::new(ToyModel::new(&Arc::default()).endless(256).runner(), text());
        assert_eq!(found, session.complete(prompt, greedy(120)).unwrap().text);
        assert_eq!(outcome.usage.completion_tokens, 120);
    }
    let stats = settled(&scheduler, 6);
    assert!(stats.preemptions > 0 && stats.kv_bytes <= 300, "{stats:?}");
    drop(scheduler);
    assert_eq!(log.live_caches.load(Ordering::SeqCst), 0);
}

#[test]
fn a_budget_shorter_than_the_context_is_the_context() {
    let options = SchedulerOptions { kv_budget_bytes: Some(100), ..SchedulerOptions::default() };
    let (scheduler, _) = start(|log| ToyModel::new(log).endless(256), options);
    assert_eq!(scheduler.settings().context_length, 100);
    let error = outcome(scheduler.submit(&prompt(1, 101), greedy(1)).unwrap()).unwrap_err();
    let RequestError::Invalid(error) = error else { panic!("{error:?}") };
    let expected = RunnerError::ContextFull { context_length: 100, asked: 101 };
    assert_eq!(error.downcast_ref::<RunnerError>(), Some(&expected));
    let (_, outcome) = finished(scheduler.submit(&prompt(1, 90), greedy(50)).unwrap());
    assert_eq!((outcome.finish_reason, outcome.usage.completion_tokens), (FinishReason::Length, 11));
}

#[test]
fn an_unload_frees_everything_and_the_next_request_loads_again() {
    let (scheduler, log) = start(ToyModel::new, SchedulerOptions::default());
    let expected = finished(scheduler.submit(&prompt(1, 40), greedy(5)).unwrap()).0;
    scheduler.unload();
    let stats = scheduler.stats();
    assert!(!stats.loaded && stats.kv_bytes == 0, "{stats:?}");
    assert_eq!([&log.live_models, &log.live_caches].map(|n| n.load(Ordering::SeqCst)), [0, 0]);
    assert_eq!(finished(scheduler.submit(&prompt(1, 40), greedy(5)).unwrap()).0, expected);
    assert_eq!(scheduler.stats().loads, 2);
}

#[test]
fn a_panic_ends_the_request_to_blame_and_the_others_go_on_with_a_new_model() {
    // Once, whoever is there: all are computed anew. And at every pass that sees token 5: the others do.
    for blames in [false, true] {
        let passes = Arc::new(AtomicUsize::new(0));
        let (scheduler, log) = start(
            move |log| {
                let passes = Arc::clone(&passes);
                ToyModel::new(log).failing(move |_, batch| {
                    let pass = passes.fetch_add(1, Ordering::SeqCst);
                    let panics = if blames { batch.iter().any(|tokens| tokens.contains(&5)) } else { pass == 3 };
                    panics.then_some(Fault::Panic)
                })
            },
            SchedulerOptions::default(),
        );
        let prompts: Vec<Vec<u32>> =
            (0..5).map(|i| if blames && i == 2 { vec![300, 5, 301] } else { prompt(i, 20) }).collect();
        let tickets: Vec<Ticket> = prompts.iter().map(|prompt| scheduler.submit(prompt, greedy(9)).unwrap()).collect();
        for (i, (ticket, prompt)) in tickets.into_iter().zip(&prompts).enumerate() {
            match outcome(ticket) {
                Ok(found) => equals_alone(found, prompt, greedy(9)),
                Err(RequestError::Drive(error)) => {
                    assert!(blames && i == 2 && matches!(*error, DriveError::RunnerCorrupted { .. }));
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        let n_loads = if blames { 3 } else { 2 };
        assert_eq!((scheduler.stats().loads, log.live_models.load(Ordering::SeqCst)), (n_loads, 1));
    }
}

#[test]
fn a_model_that_cannot_be_loaded_again_is_an_error_and_the_next_request_tries() {
    let n_loads = Arc::new(AtomicUsize::new(0));
    let load = move || {
        anyhow::ensure!(n_loads.fetch_add(1, Ordering::SeqCst) != 1, "the disk is gone");
        Ok(ToyModel::new(&Arc::default()).runner())
    };
    let scheduler = Scheduler::start(Box::new(load), text(), SchedulerOptions::default()).unwrap();
    scheduler.unload();
    let error = outcome(scheduler.submit(&prompt(1, 4), greedy(2)).unwrap()).unwrap_err();
    assert!(matches!(error, RequestError::Load(_)), "{error:?}");
    finished(scheduler.submit(&prompt(1, 4), greedy(2)).unwrap());
}

#[test]
fn a_model_that_cannot_be_loaded_at_all_says_so_at_the_start() {
    let error = Scheduler::start(Box::new(|| anyhow::bail!("no such file")), text(), SchedulerOptions::default());
    assert!(format!("{:#}", error.err().unwrap()).contains("no such file"));
    let panics = Scheduler::start(Box::new(|| panic!("in the loader")), text(), SchedulerOptions::default());
    assert!(format!("{:#}", panics.err().unwrap()).contains("in the loader"));
}

#[test]
fn only_the_request_that_fails_fails() {
    // Token 5 is one that the model chokes on.
    let chokes = |_: usize, batch: &[&[u32]]| batch.iter().any(|tokens| tokens.contains(&5)).then_some(Fault::Error);
    let (scheduler, _) = start(move |log| ToyModel::new(log).failing(chokes), SchedulerOptions::default());
    let prompts: Vec<Vec<u32>> = (0..6).map(|i| if i == 3 { vec![300, 5, 301] } else { prompt(i, 30) }).collect();
    let tickets: Vec<Ticket> = prompts.iter().map(|prompt| scheduler.submit(prompt, greedy(9)).unwrap()).collect();
    for (i, (ticket, prompt)) in tickets.into_iter().zip(&prompts).enumerate() {
        match (i, outcome(ticket)) {
            (3, Err(RequestError::Drive(error))) => assert!(matches!(*error, DriveError::Recoverable(_))),
            (_, found) => equals_alone(found.unwrap(), prompt, greedy(9)),
        }
    }
}

#[test]
fn a_shortage_of_memory_makes_requests_give_way_and_nobody_fails() {
    let short = |_: usize, batch: &[&[u32]]| (batch.len() > 2).then_some(Fault::OutOfMemory);
    let (scheduler, _) = start(move |log| ToyModel::new(log).failing(short), SchedulerOptions::default());
    let prompts: Vec<Vec<u32>> = (0..6).map(|i| prompt(i, 30)).collect();
    let tickets: Vec<Ticket> = prompts.iter().map(|prompt| scheduler.submit(prompt, greedy(9)).unwrap()).collect();
    for (ticket, prompt) in tickets.into_iter().zip(&prompts) {
        equals_alone(finished(ticket), prompt, greedy(9));
    }
}

#[test]
fn a_runner_without_a_model_takes_one_request_at_a_time() {
    for abilities in [Abilities::ALL, Abilities::NONE] {
        let make = move || ToyRunner { vocab_size: 1024, context_length: 64, ..ToyRunner::new(abilities) };
        let load = move || Ok(Box::new(make()) as Box<dyn LmRunner>);
        let scheduler = Scheduler::start(Box::new(load), text(), SchedulerOptions::default()).unwrap();
        assert!(!scheduler.settings().batching);
        let tickets: Vec<Ticket> = (0..8).map(|i| scheduler.submit(&prompt(i, 9), greedy(9)).unwrap()).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            let mut session = Session::new(Box::new(make()), text());
            assert_eq!(finished(ticket).0, session.complete(&prompt(i as u32, 9), greedy(9)).unwrap().text);
        }
    }
}

#[test]
fn guesses_change_nothing_but_the_number_of_steps() {
    let again = |seed: u64| {
        let speculation = Some(Speculation::new(PromptLookup { max_ngram: 2, min_ngram: 1 }));
        Request { speculation, ..sampled(60, seed) }
    };
    let (scheduler, _) = start(ToyModel::new, SchedulerOptions::default());
    for seed in 0..10 {
        let prompt = prompt(seed as u32 % 3, 40);
        let found = finished(scheduler.submit(&prompt, again(seed)).unwrap());
        equals_alone(found, &prompt, sampled(60, seed));
    }
}

#[test]
fn dropping_the_scheduler_ends_every_request() {
    let forever = |log: &Arc<Log>| ToyModel::new(log).endless(1_000_000);
    let options = SchedulerOptions { max_sequences: 2, ..SchedulerOptions::default() };
    let (scheduler, log) = start(forever, options);
    let tickets: Vec<Ticket> = (0..5).map(|i| scheduler.submit(&prompt(i, 4), greedy(1_000_000)).unwrap()).collect();
    drop(scheduler);
    for ticket in tickets {
        assert_eq!(finished(ticket).1.finish_reason, FinishReason::Cancelled);
    }
    assert_eq!([&log.live_models, &log.live_caches].map(|n| n.load(Ordering::SeqCst)), [0, 0]);
}

#[test]
fn a_soak_of_failures_leaves_nothing_behind() {
    // Every kind of fault, on a schedule that no request can foresee, and hosts that change their mind.
    let n_requests = 3000;
    let passes = Arc::new(AtomicUsize::new(0));
    let make = {
        let passes = Arc::clone(&passes);
        move |log: &Arc<Log>| {
            let passes = Arc::clone(&passes);
            ToyModel::new(log).windowed(Some(180)).failing(move |_, _| {
                let state = (passes.fetch_add(1, Ordering::SeqCst) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                let kinds = [
                    Fault::Error,
                    Fault::OutOfMemory,
                    Fault::Panic,
                    Fault::Stall(Duration::from_micros(300)),
                    Fault::FewOutputs,
                    Fault::ShortLogits,
                    Fault::NotANumber,
                    Fault::KeepsCache,
                ];
                state.is_multiple_of(40).then(|| kinds[(state / 40) as usize % kinds.len()])
            })
        }
    };
    let options = SchedulerOptions { kv_budget_bytes: Some(900), ..SchedulerOptions::default() };
    let (scheduler, log) = start(make, options);
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    let mut tickets = Vec::new();
    let mut n_submitted = 0;
    while n_submitted < n_requests {
        let i = n_submitted as u32;
        let mut request = sampled(1 + i as usize % 40, u64::from(i));
        match i % 11 {
            0 => request.deadline = Some(Instant::now() + Duration::from_micros(u64::from(i % 700))),
            1 => request.speculation = Some(Speculation::new(PromptLookup::default())),
            2 => request.chunk_tokens = 3,
            _ => {}
        }
        let cancel: Cancel = request.cancel.clone();
        match scheduler.submit(&prompt(i % 17, 1 + (i as usize * 29) % 220), request) {
            Ok(ticket) => {
                tickets.push(ticket);
                n_submitted += 1;
                if i.is_multiple_of(7) {
                    cancel.cancel();
                }
                if i.is_multiple_of(13) {
                    drop(tickets.pop());
                }
            }
            // The queue is full: wait for the oldest.
            Err(SubmitError::QueueFull { .. }) => {
                let ticket = tickets.remove(0);
                *ends.entry(kind(outcome(ticket))).or_default() += 1;
            }
        }
    }
    for ticket in tickets {
        *ends.entry(kind(outcome(ticket))).or_default() += 1;
    }
    for expected in ["stop", "length", "cancelled", "local_decode_timeout", "error", "panic"] {
        assert!(ends.contains_key(expected), "{expected}: {ends:?}");
    }
    scheduler.unload();
    let stats = scheduler.stats();
    assert_eq!((stats.ended, stats.running, stats.waiting, stats.kv_bytes), (n_requests as u64, 0, 0, 0));
    assert_eq!([&log.live_models, &log.live_caches].map(|n| n.load(Ordering::SeqCst)), [0, 0]);
}

fn kind(end: Result<(String, Outcome), RequestError>) -> &'static str {
    match end {
        Ok((_, outcome)) => match outcome.finish_reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
            FinishReason::LocalDecodeTimeout => "local_decode_timeout",
            FinishReason::ToolCalls => "tool_calls",
        },
        Err(RequestError::Drive(error)) => match *error {
            DriveError::RunnerCorrupted { .. } => "panic",
            DriveError::Recoverable(_) => "error",
        },
        Err(error) => panic!("{error:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_the_options_requests_get_what_they_get_alone(
        max_sequences in 1usize..6,
        step_tokens in 1usize..40,
        beside in 1usize..20,
        budget in 260u64..900,
        window in proptest::option::of(1usize..100),
        lens in proptest::collection::vec((0u32..4, 1usize..120), 1..8),
    ) {
        let options = SchedulerOptions {
            max_sequences,
            step_tokens,
            step_tokens_beside_decode: beside,
            kv_budget_bytes: Some(budget),
            ..SchedulerOptions::default()
        };
        let (scheduler, _) = start(move |log| ToyModel::new(log).windowed(window), options);
        let tickets: Vec<Ticket> =
            lens.iter().map(|(seed, n)| scheduler.submit(&prompt(*seed, *n), greedy(30)).unwrap()).collect();
        for (ticket, (seed, n)) in tickets.into_iter().zip(&lens) {
            equals_alone(finished(ticket), &prompt(*seed, *n), greedy(30));
        }
    }
}

/// What nothing in the worker expects to fail: it panics there once after the flag is set.
fn mortal_clock(dies: &Arc<AtomicBool>) -> Clock {
    let dies = Arc::clone(dies);
    Arc::new(move || {
        let is_worker = std::thread::current().name() == Some("kinfolk-scheduler");
        assert!(!(is_worker && dies.swap(false, Ordering::SeqCst)), "the clock is broken");
        Instant::now()
    })
}

#[test]
fn a_worker_that_dies_answers_every_waiter_and_another_takes_over() {
    let dies = Arc::new(AtomicBool::new(false));
    let options = SchedulerOptions { max_sequences: 1, clock: mortal_clock(&dies), ..SchedulerOptions::default() };
    let (scheduler, first) = busy(Duration::from_millis(50), options);
    let tickets: Vec<Ticket> = (1..5).map(|i| scheduler.submit(&prompt(i, 3), greedy(2)).unwrap()).collect();
    dies.store(true, Ordering::SeqCst);
    for ticket in std::iter::once(first).chain(tickets) {
        assert!(matches!(outcome(ticket), Err(RequestError::WorkerDied)));
    }
    equals_alone(finished(scheduler.submit(&prompt(1, 3), greedy(2)).unwrap()), &prompt(1, 3), greedy(2));
    let stats = settled(&scheduler, 6);
    assert_eq!((stats.loads, stats.running, stats.waiting), (2, 0, 0));
}
