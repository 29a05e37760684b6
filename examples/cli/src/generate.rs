//! Streaming a reply to standard output, and the line that says how it went.

use std::time::Duration;

use anyhow::Result;
use kinfolk::{
    session::{Event, Outcome, Request, Session},
    text::{RenderOptions, ReplyEvent},
};

use crate::print;

/// How a reply went.
#[derive(Debug)]
pub struct Report {
    outcome: Outcome,
    /// Prompt tokens in place, which are all of them unless it was interrupted.
    prompt_done: usize,
}

/// How a prompt for a reply is rendered: with the assistant's turn open.
pub fn for_reply() -> RenderOptions {
    let mut options = RenderOptions::default();
    options.add_generation_prompt = true;
    options
}

/// Writes the reply as it is generated.
pub fn stream(session: &mut Session, prompt: &[u32], request: Request) -> Result<Report> {
    let mut writer = Writer::default();
    for event in session.start(prompt, request)? {
        writer.write(&event?)?;
    }
    writer.finish()
}

/// Writes events as text.
#[derive(Debug, Default)]
pub struct Writer {
    prompt_done: usize,
    in_line: bool,
    outcome: Option<Outcome>,
}

impl Writer {
    pub fn write(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Progress { done_tokens, .. } => self.prompt_done = *done_tokens,
            Event::Reply(ReplyEvent::Text(piece) | ReplyEvent::Reasoning(piece)) => {
                print::out(piece)?;
                self.in_line = !piece.ends_with('\n');
            }
            Event::Shifted { dropped_tokens } => {
                print::warn(&format!("the context was full: {dropped_tokens} tokens were dropped"));
            }
            Event::Done(outcome) => self.outcome = Some(outcome.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Ends the line, if one has begun.
    pub fn finish(self) -> Result<Report> {
        if self.in_line {
            print::out("\n")?;
        }
        let outcome = self.outcome.ok_or_else(|| anyhow::anyhow!("the reply ended without saying why"))?;
        Ok(Report { outcome, prompt_done: self.prompt_done })
    }
}

/// `model · family · executor · threads · speeds`, on one line.
pub fn summary(model: &str, session: &Session, report: &Report) -> String {
    let runner = session.runner();
    let (executor, threads) = runner.model().map_or(("own", None), |m| (m.executor(), Some(m.threads())));
    let threads = match threads {
        Some(1) => "1 thread".to_owned(),
        Some(n) => format!("{n} threads"),
        None => "its own threads".to_owned(),
    };
    format!("{model} | family {} | executor {executor} | {threads} | {}", runner.family(), report.speeds())
}

impl Report {
    /// `prompt, decode`, and what made them shorter.
    pub fn speeds(&self) -> String {
        let Outcome { usage, timings, .. } = &self.outcome;
        let computed = self.prompt_done.saturating_sub(usage.cached_tokens);
        let mut line = format!(
            "prompt {} tokens, {} | decode {} tokens, {}",
            self.prompt_done,
            rate(computed, timings.prefill),
            usage.completion_tokens,
            // The first one comes with the prompt.
            rate(usage.completion_tokens.saturating_sub(1), timings.decode),
        );
        if usage.cached_tokens > 0 {
            line += &format!(" | {} prompt tokens reused", usage.cached_tokens);
        }
        if let Some(rate) = usage.acceptance_rate() {
            line += &format!(" | {:.0} % of {} guesses right", rate * 100.0, usage.draft_tokens);
        }
        line
    }
}

fn rate(tokens: usize, time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if tokens > 0 && seconds > 0.0 => format!("{:.1} tokens/s", tokens as f64 / seconds),
        _ => "no time".to_owned(),
    }
}
