//! How many tokens a second the scheduler decodes with 1, 2, 4, … requests side by side.
//!
//! `cargo bench -p kinfolk-registry-tests --bench batch -- MODEL [tokens per request] [repetitions]`

#![allow(clippy::print_stdout)]

use std::{
    env,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use kinfolk::{
    LmRunnerBuilder,
    sampling::SampleOpts,
    scheduler::{Scheduler, SchedulerOptions},
    session::{Event, Outcome, Request},
};

kinfolk::enroll!();

const WIDTHS: [usize; 5] = [1, 2, 4, 8, 16];

fn main() -> Result<()> {
    // `cargo bench` adds its own `--bench`.
    let mut typed = env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let model = typed.next().context("expected the path of a model, found none")?;
    let n_tokens: usize = typed.next().map_or(Ok(64), |n| n.parse())?;
    let n_repetitions: usize = typed.next().map_or(Ok(3), |n| n.parse())?;
    let scheduler = LmRunnerBuilder::new().weights(&model).max_seq(1024).scheduler(SchedulerOptions::default())?;
    println!("{}", scheduler.settings());
    println!("{:>8} {:>12} {:>24} {:>8}", "requests", "tokens/s", "least and most", "ratio");
    let mut single = None;
    for width in WIDTHS {
        // The first one warms up.
        let mut rates = (0..=n_repetitions).map(|_| rate(&scheduler, width, n_tokens)).collect::<Result<Vec<f64>>>()?;
        rates.remove(0);
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let single = *single.get_or_insert(median);
        let spread = format!("{:.1} to {:.1}", rates[0], rates[rates.len() - 1]);
        println!("{width:>8} {median:>12.1} {spread:>24} {:>8.2}", median / single);
    }
    Ok(())
}

/// Tokens a second of all requests together, from when all of them decode.
fn rate(scheduler: &Scheduler, width: usize, n_tokens: usize) -> Result<f64> {
    let tickets = (0..width)
        .map(|i| {
            let mut request = Request::default();
            request.sample = Some(SampleOpts::greedy());
            request.max_tokens = Some(n_tokens);
            request.ignore_eos = true;
            // Short prompts of their own, so that nothing is shared and next to all of the time is decoding.
            scheduler.submit(&[100 + i as u32, 200, 300 + i as u32], request)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    for ticket in tickets {
        for event in ticket {
            if let Event::Done(Outcome { timings, .. }) = event? {
                slowest = slowest.max(timings.decode);
            }
        }
    }
    let time = slowest.min(start.elapsed()).as_secs_f64();
    Ok((width * n_tokens) as f64 / time)
}
