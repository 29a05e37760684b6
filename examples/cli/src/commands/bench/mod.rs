//! `kinfolk bench`.

mod measure;
mod memory;
mod report;
mod work;

use std::{process::ExitCode, time::Instant};

use anyhow::{Context, Result, ensure};
use kinfolk::decoder::Cancel;

use crate::{args::BenchArgs, interrupt, open, print};
use measure::Bench;
use report::Report;
use work::Work;

pub fn run(args: &BenchArgs, cancel: &Cancel) -> Result<ExitCode> {
    ensure!(args.prompt > 0 || args.decode > 0, "expected tokens of a prompt or to decode, found 0 of both");
    interrupt::cancels(cancel);
    let load = Instant::now();
    let mut builder = open::builder(&args.load, cancel)?.profile(args.profile);
    if args.load.ctx.is_none() {
        builder = builder.max_seq(args.longest());
    }
    let runner = builder.build()?;
    let load_seconds = load.elapsed().as_secs_f64();
    let family = runner.family().to_owned();
    // A runner with a loop of its own cannot hold several sequences.
    let model = runner.model().with_context(|| format!("family `{family}`: expected a described model, found none"))?;
    drop(runner);
    let work = Work::of(&*model, &open::source(&args.load.model, &args.load.open)?)?;
    let bench = Bench { model: &*model, cancel, repetitions: args.repetitions };
    let of_model = || format!("cannot measure `{}`", args.load.model.display());
    let mut report = Report::new(args, &family, &*model, load_seconds);
    if args.prompt > 0 {
        report.add_prefill(bench.prefill(args.prompt).with_context(of_model)?, &work);
    }
    for &depth in args.depth.iter().filter(|_| args.decode > 0) {
        let prompt = bench.prompt(depth).with_context(of_model)?;
        for &n_sequences in &args.batch {
            let decoded = bench.decode(&*prompt, n_sequences, args.decode).with_context(of_model)?;
            report.add_decode(decoded, &work);
        }
    }
    report.resident_peak_bytes = memory::resident_peak_bytes();
    // Last, since it takes memory of its own.
    let executor = kinfolk::executors().into_iter().find(|executor| executor.name() == model.executor());
    report.set_peaks(executor.and_then(|executor| executor.peaks(model.threads())));
    if args.json {
        print::json(&report)?;
    } else {
        print::out(&report.in_words())?;
    }
    Ok(ExitCode::SUCCESS)
}
