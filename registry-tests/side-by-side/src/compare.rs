//! Lets engines take turns.

use std::{thread, time::Duration};

use anyhow::Result;

use crate::{
    args::CompareArgs,
    contender::{Contender, Worker, contenders, settings},
    protocol::{Request, Settings},
    report::{Measurement, Quantity, Report},
};

/// Time for the threads of the engine before to go to sleep. Those of llama.cpp wait for more work for about 0.35 s, on a core that the next
/// engine would have to do without.
const BETWEEN_TURNS: Duration = Duration::from_millis(600);

pub fn run(args: &CompareArgs) -> Result<()> {
    let contenders = contenders(&args.engines)?;
    let settings = settings(&args.model, args.engines.threads, context_length(args))?;
    let mut report = Report::new(args, &contenders.iter().map(|c| c.name.clone()).collect::<Vec<_>>());
    if args.cold {
        cold(args, &contenders, settings, &mut report)?;
    }
    warm(args, &contenders, settings, &mut report)?;
    report.print(args.json)
}

/// Tokens of the longest sequence of all.
fn context_length(args: &CompareArgs) -> usize {
    let decoded = args.depth.iter().map(|depth| depth + args.n_decode);
    decoded.chain(args.prompt.iter().copied()).max().unwrap_or(1).max(1)
}

/// A new process for every turn: what it costs to begin.
fn cold(args: &CompareArgs, contenders: &[Contender], settings: Settings, report: &mut Report) -> Result<()> {
    let n_tokens = args.prompt.iter().copied().find(|n| *n > 0).unwrap_or(1);
    let names = ["load", "first token", "peak of load", "peak", "resident", "of it files"];
    let unit = |i| if i < 2 { Quantity::Seconds } else { Quantity::Bytes };
    let mut values = vec![vec![Vec::new(); contenders.len()]; names.len()];
    let mut failures = vec![None; contenders.len()];
    // One turn more, which brings the file into the page cache.
    for turn in 0..=args.repetitions {
        for (i, contender) in contenders.iter().enumerate() {
            match begin(contender, args, settings, n_tokens) {
                Ok(found) if turn > 0 => found.iter().zip(&mut values).for_each(|(value, all)| all[i].push(*value)),
                Ok(_) => {}
                Err(error) => failures[i] = Some(format!("{error:#}")),
            }
        }
    }
    for (i, (name, values)) in names.into_iter().zip(values).enumerate() {
        let name = if i == 1 { format!("{name} of {n_tokens}") } else { name.to_owned() };
        report.add(Measurement::new(name, unit(i), values, failures.clone()));
    }
    Ok(())
}

/// In a new process: seconds to load, seconds to the first token, and the memory that both and some decoding took.
fn begin(contender: &Contender, args: &CompareArgs, settings: Settings, n_tokens: usize) -> Result<[f64; 6]> {
    let mut worker = Worker::start(contender, args.engines.threads)?;
    let load = worker.load(&args.model, settings)?;
    let first = worker.ask(&Request::Prefill { n_tokens })?;
    worker.ask(&Request::Start { depth: 0, n_sequences: 1 })?;
    let decoded = worker.ask(&Request::Decode { n_tokens: args.n_decode.clamp(1, 16) })?;
    let bytes = |n: u64| n as f64;
    Ok([
        load.seconds,
        load.seconds + first.seconds,
        bytes(load.resident.peak_bytes),
        bytes(decoded.resident.peak_bytes),
        bytes(decoded.resident.now_bytes),
        bytes(decoded.resident.file_bytes),
    ])
}

/// One process per engine, which stays: how fast each is once it runs.
fn warm(args: &CompareArgs, contenders: &[Contender], settings: Settings, report: &mut Report) -> Result<()> {
    let mut workers = contenders.iter().map(|c| Worker::start(c, args.engines.threads)).collect::<Result<Vec<_>>>()?;
    let mut refused = Vec::new();
    for worker in &mut workers {
        let loaded = worker.load(&args.model, settings);
        report.about.extend(loaded.as_ref().ok().and_then(|done| done.about.clone()));
        refused.push(loaded.err().map(|error| format!("{error:#}")));
    }
    let mut turns = Turns { workers, refused, n_turns: args.repetitions };
    for &n_tokens in args.prompt.iter().filter(|n| **n > 0) {
        let rates = turns.take(None, &Request::Prefill { n_tokens }, n_tokens);
        report.add(rates.called(format!("prefill {n_tokens}")));
    }
    let n_tokens = args.n_decode;
    for &depth in args.depth.iter().filter(|_| n_tokens > 0) {
        for &n_sequences in &args.batch {
            let start = Request::Start { depth, n_sequences };
            let rates = turns.take(Some(start), &Request::Decode { n_tokens }, n_sequences * n_tokens);
            let of = if n_sequences == 1 { String::new() } else { format!(", {n_sequences} sequences") };
            report.add(rates.called(format!("decode {n_tokens} at {depth}{of}")));
        }
    }
    Ok(())
}

/// Loaded engines that wait for their turns.
struct Turns {
    workers: Vec<Worker>,
    /// Why an engine takes no part.
    refused: Vec<Option<String>>,
    n_turns: usize,
}

/// Tokens per second of every engine, by turn.
struct Rates {
    values: Vec<Vec<f64>>,
    failures: Vec<Option<String>>,
}

impl Turns {
    /// Prepares every engine, and then asks one after the other, several times. In every turn an engine works twice, and the second counts.
    fn take(&mut self, prepare: Option<Request>, request: &Request, n_tokens: usize) -> Rates {
        let mut failures = self.refused.clone();
        let mut values = vec![Vec::new(); self.workers.len()];
        for (worker, failure) in self.workers.iter_mut().zip(&mut failures).filter(|(_, failure)| failure.is_none()) {
            let prepared = prepare.iter().try_for_each(|request| worker.ask(request).map(drop));
            *failure = prepared.err().map(|error| format!("{error:#}"));
        }
        for _ in 0..self.n_turns {
            for (i, worker) in self.workers.iter_mut().enumerate() {
                if failures[i].is_some() {
                    continue;
                }
                thread::sleep(BETWEEN_TURNS);
                // The first to work after a rest finds cores that slept and caches that others have filled.
                match worker.ask(request).and_then(|_| worker.ask(request)) {
                    Ok(done) => values[i].push(n_tokens as f64 / done.seconds),
                    Err(error) => failures[i] = Some(format!("{error:#}")),
                }
            }
        }
        Rates { values, failures }
    }
}

impl Rates {
    fn called(self, name: String) -> Measurement {
        Measurement::new(name, Quantity::TokensPerSecond, self.values, self.failures)
    }
}
