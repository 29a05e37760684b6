//! `kinfolk verify`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use kinfolk::{
    decoder::Cancel,
    verify::{Reference, Report, Way, WayReport, verify},
};

use crate::{args::VerifyArgs, open, print};

/// Half a comparison is worth nothing, so Ctrl-C ends the program at once.
pub fn run(args: &VerifyArgs) -> Result<ExitCode> {
    let reference = Reference::open(&args.reference)?;
    let mut runner = open::builder(&args.load, &Cancel::new())?.build()?;
    let report = verify(&mut runner, &reference, args.tolerance)
        .with_context(|| format!("cannot compare with `{}`", args.reference.display()))?;
    if args.json {
        print::json(&report)?;
    } else {
        print::out(&in_words(&report))?;
    }
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_words(report: &Report) -> String {
    let heading =
        ["way", "rows", "max abs", "max rel", "top-1", "max KL", "first wrong position"].map(str::to_owned).to_vec();
    let row = |w: &WayReport| {
        let first = w.first_wrong.map_or("none".to_owned(), |p| p.to_string());
        let (abs, rel, kl) = (format!("{:.1e}", w.max_abs), format!("{:.1e}", w.max_rel), format!("{:.1e}", w.max_kl));
        vec![
            name(w.way).to_owned(),
            w.n_rows.to_string(),
            abs,
            rel,
            format!("{}/{}", w.top1_agree, w.top1_rows),
            kl,
            first,
        ]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(report.ways.iter().map(row)).collect();
    let verdict = match report.ways.iter().find(|w| w.first_wrong.is_some()) {
        None => format!("every way is within {:e} of the reference\n", report.tolerance),
        Some(way) => format!("beyond {:e} of the reference: {}\n", report.tolerance, diagnosis(report, way)),
    };
    print::table(&rows) + &verdict
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Prefill => "prefill",
        Way::Decode => "decode",
        Way::RePrefill => "re-prefill",
        Way::Batch => "batch",
    }
}

/// Which ways are wrong tells where to look.
fn diagnosis(report: &Report, first: &WayReport) -> String {
    let position = first.first_wrong.unwrap_or_default();
    let wrong = |way| report.ways.iter().any(|w| w.way == way && w.first_wrong.is_some());
    let hint = if wrong(Way::Prefill) && position == 0 {
        "already the first token is wrong, so look at the embedding, the norms, the value and output projections, the feed-forward or the \
         head, not at positions"
    } else if wrong(Way::Prefill) || wrong(Way::RePrefill) {
        "the first tokens are right, so look at what grows with position: rotary frequencies, windows, masks"
    } else if wrong(Way::Decode) {
        "whole passes are right, so look at the cache"
    } else {
        "single sequences are right, so look at how sequences of a batch are told apart"
    };
    format!("first in `{}` at position {position}; {hint}", name(first.way))
}
