//! Streaming a reply to standard output, and the line that says how it went.

use std::time::{Duration, Instant};

use anyhow::Result;
use kinfolk::{
    session::{Event, Request, Session, Usage},
    text::RenderOptions,
};

use crate::print;

/// How long the two phases of a reply took.
#[derive(Debug, Default)]
pub struct Timing {
    usage: Usage,
    /// Prompt tokens in place, which are all of them unless it was interrupted.
    prompt_done: usize,
    prefill: Duration,
    decode: Duration,
}

/// How a prompt for a reply is rendered: with the assistant's turn open.
pub fn for_reply() -> RenderOptions {
    let mut options = RenderOptions::default();
    options.add_generation_prompt = true;
    options
}

/// Writes the reply as it is generated.
pub fn stream(session: &mut Session, prompt: &[u32], request: Request) -> Result<Timing> {
    let mut timing = Timing::default();
    let start = Instant::now();
    let mut prefilled = None;
    let mut ends_line = true;
    for event in session.start(prompt, request)? {
        match event? {
            Event::Progress { done_tokens, total_tokens } => {
                timing.prompt_done = done_tokens;
                prefilled = (done_tokens == total_tokens).then(Instant::now);
            }
            Event::Text(piece) => {
                print::out(&piece)?;
                ends_line = piece.ends_with('\n');
            }
            Event::Done { usage, .. } => timing.usage = usage,
            _ => {}
        }
    }
    let prefilled = prefilled.unwrap_or_else(Instant::now);
    timing.prefill = prefilled - start;
    timing.decode = prefilled.elapsed();
    if !ends_line {
        print::out("\n")?;
    }
    Ok(timing)
}

/// `model · family · executor · threads · speeds`, on one line.
pub fn summary(model: &str, session: &Session, timing: &Timing) -> String {
    let runner = session.runner();
    let (executor, threads) = runner.model().map_or(("own", None), |m| (m.executor(), Some(m.threads())));
    let threads = match threads {
        Some(1) => "1 thread".to_owned(),
        Some(n) => format!("{n} threads"),
        None => "its own threads".to_owned(),
    };
    let usage = timing.usage;
    let computed = timing.prompt_done.saturating_sub(usage.cached_tokens);
    format!(
        "{model} | family {} | executor {executor} | {threads} | prompt {} tokens, {} | decode {} tokens, {}",
        runner.family(),
        timing.prompt_done,
        rate(computed, timing.prefill),
        usage.completion_tokens,
        rate(usage.completion_tokens, timing.decode),
    )
}

fn rate(tokens: usize, time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds > 0.0 => format!("{:.1} tokens/s", tokens as f64 / seconds),
        _ => "no time".to_owned(),
    }
}
