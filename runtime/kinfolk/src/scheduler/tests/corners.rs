//! Hosts, drafters, clocks and models in ways nobody had in mind.

use std::sync::{OnceLock, Weak, atomic::AtomicBool, mpsc};

use super::*;
use crate::{session::Overflow, session::ReuseMiss, speculation::Drafter};

/// Whether `work` ends within a few seconds. What does not is left behind on a thread of its own.
fn ends(work: impl FnOnce() + Send + 'static) -> bool {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    wait.recv_timeout(Duration::from_secs(5)).is_ok()
}

#[test]
fn a_ticket_that_is_dropped_cancels_its_own_request_and_no_other_that_shares_the_hosts_flag() {
    let (scheduler, _) = start(|log| ToyModel::new(log).endless(256), SchedulerOptions::default());
    let connection = Cancel::new();
    let request = |n| Request { cancel: connection.clone(), ..greedy(n) };
    let short = scheduler.submit(&prompt(1, 4), request(1)).unwrap();
    let long = scheduler.submit(&prompt(2, 4), request(150)).unwrap();
    finished(short);
    assert!(!connection.is_cancelled(), "the host's flag is the host's");
    let (_, outcome) = finished(long);
    assert_eq!((outcome.finish_reason, outcome.usage.completion_tokens), (FinishReason::Length, 150));
    // And the flag still does what it is for.
    let cancelled = scheduler.submit(&prompt(3, 4), request(200)).unwrap();
    connection.cancel();
    assert_eq!(finished(cancelled).1.finish_reason, FinishReason::Cancelled);
}

#[test]
fn dropping_the_scheduler_ends_a_request_of_a_runner_without_a_model() {
    let make = || ToyRunner { vocab_size: 1024, context_length: 64, ..ToyRunner::new(Abilities::ALL) };
    let load = move || Ok(Box::new(make()) as Box<dyn LmRunner>);
    let scheduler = Scheduler::start(Box::new(load), text(), SchedulerOptions::default()).unwrap();
    // Without an end of its own: the context goes on for ever, and the host reads slowly.
    let stop = Cancel::new();
    let endless = || Request {
        overflow: Overflow::Shift { keep: 4 },
        ignore_eos: true,
        max_tokens: None,
        cancel: stop.clone(),
        ..greedy(0)
    };
    let mut running = scheduler.submit(&prompt(1, 9), endless()).unwrap();
    let waiting = scheduler.submit(&prompt(2, 9), endless()).unwrap();
    running.find(|event| matches!(event, Ok(Event::Reply(_)))).unwrap().unwrap();
    let ended = ends(move || drop(scheduler));
    stop.cancel();
    assert!(ended, "the scheduler waits for a reply that has no end");
    assert_eq!(finished(running).1.finish_reason, FinishReason::Cancelled);
    assert_eq!(finished(waiting).1.finish_reason, FinishReason::Cancelled);
}

#[test]
fn a_pass_that_says_cancelled_though_nobody_cancelled_fails_instead_of_being_tried_for_ever() {
    let n_passes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&n_passes);
    let lies =
        move |_: usize, _: &[&[u32]]| (count.fetch_add(1, Ordering::SeqCst) < 100_000).then_some(Fault::Cancelled);
    let slot = std::sync::Mutex::new(Some(lies));
    let (scheduler, _) =
        start(move |log| ToyModel::new(log).failing(slot.lock().unwrap().take().unwrap()), SchedulerOptions::default());
    let tickets: Vec<Ticket> = (0..2).map(|i| scheduler.submit(&prompt(i, 9), greedy(9)).unwrap()).collect();
    for ticket in tickets {
        assert!(outcome(ticket).is_err());
    }
    assert!(n_passes.load(Ordering::SeqCst) < 10);
}

#[test]
fn a_shortage_of_memory_in_a_step_of_one_makes_another_give_way() {
    // Prompts are longer than a step, so that a step computes one of them while the other keeps what it holds.
    let options = SchedulerOptions { step_tokens: 8, ..SchedulerOptions::default() };
    let short = |pass: usize, batch: &[&[u32]]| match (pass, batch.len()) {
        // Until all of them are there.
        (0, _) => Some(Fault::Stall(Duration::from_millis(200))),
        (3..5, 1) => Some(Fault::OutOfMemory),
        _ => None,
    };
    let (scheduler, _) = start(move |log| ToyModel::new(log).failing(short), options);
    let prompts: Vec<Vec<u32>> = (0..3).map(|i| prompt(i, 60)).collect();
    let tickets: Vec<Ticket> = prompts.iter().map(|prompt| scheduler.submit(prompt, greedy(9)).unwrap()).collect();
    for (ticket, prompt) in tickets.into_iter().zip(&prompts) {
        equals_alone(finished(ticket), prompt, greedy(9));
    }
    assert!(settled(&scheduler, 3).preemptions > 0);
}

#[test]
fn a_conversation_longer_than_half_the_budget_still_reuses_its_turns() {
    let options = SchedulerOptions { kv_budget_bytes: Some(250), ..SchedulerOptions::default() };
    let (scheduler, _) = start(|log| ToyModel::new(log).endless(256), options);
    let first = prompt(1, 120);
    finished(scheduler.submit(&first, greedy(1)).unwrap());
    let longer = [&first[..], &prompt(2, 10)].concat();
    let usage = finished(scheduler.submit(&longer, greedy(1)).unwrap()).1.usage;
    assert_eq!(usage.cached_tokens, 120, "{:?}", scheduler.stats());
}

#[test]
fn what_is_kept_is_not_dropped_for_a_request_that_does_not_fit_beside_those_that_run() {
    let options = SchedulerOptions { kv_budget_bytes: Some(256), ..SchedulerOptions::default() };
    let slow = |_: usize, _: &[&[u32]]| Some(Fault::Stall(Duration::from_millis(1)));
    let (scheduler, _) = start(move |log| ToyModel::new(log).endless(256).failing(slow), options);
    finished(scheduler.submit(&prompt(1, 40), greedy(1)).unwrap());
    let mut running = scheduler.submit(&prompt(2, 20), greedy(60)).unwrap();
    running.find(|event| matches!(event, Ok(Event::Reply(_)))).unwrap().unwrap();
    let large = scheduler.submit(&prompt(3, 230), greedy(1)).unwrap();
    let next = running.by_ref().filter(|event| matches!(event, Ok(Event::Reply(_)))).nth(3);
    next.unwrap().unwrap();
    assert_eq!(scheduler.stats().evictions, 0, "the large one waits all the same");
    finished(running);
    finished(large);
}

#[test]
fn why_less_is_reused_than_is_shared_is_said_here_too() {
    let (scheduler, _) = start(|log| ToyModel::new(log).windowed(Some(20)), SchedulerOptions::default());
    let system = prompt(1, 60);
    let with = |seed| [&system[..], &prompt(seed, 9)].concat();
    assert_eq!(finished(scheduler.submit(&with(2), greedy(1)).unwrap()).1.reuse_miss, None);
    let found = finished(scheduler.submit(&with(3), greedy(1)).unwrap()).1;
    assert_eq!(found.usage.cached_tokens, 0);
    assert_eq!(found.reuse_miss, Some(ReuseMiss::CannotGoBack { shared_tokens: 60 }));
}

/// Panics when asked, and once more when dropped after that.
#[derive(Debug)]
struct Bomb(bool);

impl Drafter for Bomb {
    fn draft(&mut self, _: &[u32], _: usize) -> anyhow::Result<Vec<u32>> {
        self.0 = true;
        panic!("a drafter");
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "a drafter to the end");
    }
}

#[test]
fn a_drafter_that_panics_to_the_end_touches_no_other_request() {
    let (scheduler, _) = start(ToyModel::new, SchedulerOptions::default());
    let bombed = Request { speculation: Some(Speculation::new(Bomb(false))), ..greedy(20) };
    let tickets = [bombed, greedy(20)].map(|request| scheduler.submit(&prompt(1, 9), request).unwrap());
    for ticket in tickets {
        equals_alone(finished(ticket), &prompt(1, 9), greedy(20));
    }
    assert_eq!(scheduler.stats().loads, 1);
}

/// Guesses a token that the model does not have.
#[derive(Debug)]
struct Beyond;

impl Drafter for Beyond {
    fn draft(&mut self, _: &[u32], n: usize) -> anyhow::Result<Vec<u32>> {
        Ok(vec![crate::toy_model::VOCAB as u32; n])
    }
}

#[test]
fn a_guess_beyond_the_vocabulary_is_a_wrong_guess() {
    let (scheduler, _) = start(
        |log| {
            // What the executors do.
            ToyModel::new(log).failing(|_, batch| {
                batch.iter().any(|tokens| tokens.contains(&(crate::toy_model::VOCAB as u32))).then_some(Fault::Error)
            })
        },
        SchedulerOptions::default(),
    );
    let request = Request { speculation: Some(Speculation::new(Beyond)), ..greedy(20) };
    equals_alone(finished(scheduler.submit(&prompt(1, 9), request).unwrap()), &prompt(1, 9), greedy(20));
}

#[test]
fn a_clock_that_asks_the_scheduler_does_not_stop_it() {
    let own: Arc<OnceLock<Weak<Scheduler>>> = Arc::default();
    let asked = Arc::new(AtomicBool::new(false));
    let clock = {
        let (own, asked) = (Arc::clone(&own), Arc::clone(&asked));
        move || {
            if let Some(scheduler) = own.get().and_then(Weak::upgrade) {
                scheduler.stats();
                // The worker must not be the last to let go.
                asked.store(true, Ordering::SeqCst);
            }
            Instant::now()
        }
    };
    let options = SchedulerOptions { clock: Arc::new(clock), ..SchedulerOptions::default() };
    let scheduler = Arc::new(start(ToyModel::new, options).0);
    own.set(Arc::downgrade(&scheduler)).unwrap();
    let shared = Arc::clone(&scheduler);
    let ended = ends(move || drop(finished(shared.submit(&prompt(1, 9), greedy(2)).unwrap())));
    if !ended {
        std::mem::forget(scheduler);
        panic!("the lock is held while the host's clock is asked");
    }
    assert!(asked.load(Ordering::SeqCst));
}

#[test]
fn a_host_that_reads_nothing_does_not_fill_the_memory() {
    let (scheduler, _) = start(|log| ToyModel::new(log).endless(64), SchedulerOptions::default());
    let request = Request { overflow: Overflow::Shift { keep: 4 }, max_tokens: None, ignore_eos: true, ..greedy(0) };
    let unread = scheduler.submit(&prompt(1, 9), request).unwrap();
    let begun = Instant::now();
    while scheduler.stats().ended == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} events wait to be read", unread.events.len());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(finished(unread).1.finish_reason, FinishReason::Cancelled);
}

#[test]
fn conversations_that_cannot_go_back_keep_their_own_turns() {
    let (scheduler, _) = start(|log| ToyModel::new(log).windowed(Some(20)).endless(256), SchedulerOptions::default());
    let system = prompt(1, 60);
    let one = [&system[..], &prompt(2, 20)].concat();
    let two = [&system[..], &prompt(3, 20)].concat();
    finished(scheduler.submit(&one, greedy(1)).unwrap());
    finished(scheduler.submit(&two, greedy(1)).unwrap());
    for turns in [one, two] {
        let longer = [&turns[..], &prompt(4, 5)].concat();
        let found = finished(scheduler.submit(&longer, greedy(1)).unwrap()).1;
        assert_eq!((found.usage.cached_tokens, found.reuse_miss), (80, None));
    }
}

/// Asks the scheduler something as it goes.
#[derive(Debug)]
struct Curious(Weak<Scheduler>);

impl Drafter for Curious {
    fn draft(&mut self, _: &[u32], _: usize) -> anyhow::Result<Vec<u32>> {
        Ok(Vec::new())
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        if let Some(scheduler) = self.0.upgrade() {
            scheduler.stats();
            // The worker must not be the last to let go.
            std::mem::forget(scheduler);
        }
    }
}

#[test]
fn a_worker_that_dies_lets_go_of_requests_without_the_lock() {
    let dies = Arc::new(AtomicBool::new(false));
    let options = SchedulerOptions { max_sequences: 1, clock: mortal_clock(&dies), ..SchedulerOptions::default() };
    let (scheduler, first) = busy(Duration::from_millis(50), options);
    let scheduler = Arc::new(scheduler);
    let speculation = Some(Speculation::new(Curious(Arc::downgrade(&scheduler))));
    let second = scheduler.submit(&prompt(1, 3), Request { speculation, ..greedy(2) }).unwrap();
    dies.store(true, Ordering::SeqCst);
    let shared = Arc::clone(&scheduler);
    let ended = ends(move || {
        outcome(first).unwrap_err();
        outcome(second).unwrap_err();
        finished(shared.submit(&prompt(1, 3), greedy(2)).unwrap());
    });
    std::mem::forget(scheduler);
    assert!(ended, "the lock is held while requests are dropped");
}

#[test]
fn a_flag_of_the_host_that_panics_touches_no_other_request() {
    let (scheduler, _) = start(|log| ToyModel::new(log).endless(256), SchedulerOptions::default());
    let other = scheduler.submit(&prompt(1, 9), greedy(200)).unwrap();
    let bad = Request { cancel: Cancel::when(|| panic!("the host's flag")), ..greedy(5) };
    let bad = scheduler.submit(&prompt(2, 9), bad).unwrap();
    assert_eq!(finished(bad).1.finish_reason, FinishReason::Cancelled);
    finished(other);
}
