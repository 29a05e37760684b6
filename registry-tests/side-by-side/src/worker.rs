//! The process of one engine.

use std::{
    io::{self, BufRead, Write},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{
    engine::{Engine, EngineKind},
    frames,
    memory::Resident,
    protocol::{Done, Reply, Request, Settings, token},
};

/// A loaded engine, and where its sequences stand.
struct Loaded {
    engine: Box<dyn Engine>,
    settings: Settings,
    depth: usize,
    n_sequences: usize,
}

/// Answers requests until standard input ends.
pub fn serve(kind: EngineKind) -> Result<()> {
    let mut loaded = None;
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?).context("not a request")?;
        let reply: Reply = answer(kind, &mut loaded, request).map_err(|error| format!("{error:#}"));
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &reply)?;
        writeln!(out)?;
    }
    Ok(())
}

fn answer(kind: EngineKind, loaded: &mut Option<Loaded>, request: Request) -> Result<Done> {
    let (seconds, about) = match request {
        Request::Load { model, settings } => {
            let start = Instant::now();
            let engine = kind.load(&model, settings)?;
            let seconds = start.elapsed().as_secs_f64();
            let about = engine.about();
            *loaded = Some(Loaded { engine, settings, depth: 0, n_sequences: 0 });
            (seconds, Some(about))
        }
        other => (loaded.as_mut().context("expected `Load` first")?.answer(&other)?, None),
    };
    Ok(Done { seconds, resident: Resident::of_this_process(), about })
}

impl Loaded {
    /// Seconds that the request took.
    fn answer(&mut self, request: &Request) -> Result<f64> {
        let vocab_size = self.settings.vocab_size;
        let prompt = |n: usize| (0..n).map(|position| token(0, position, vocab_size)).collect::<Vec<_>>();
        match *request {
            Request::Load { .. } => anyhow::bail!("expected one `Load`, found a second"),
            Request::Prefill { n_tokens } => {
                let tokens = prompt(n_tokens);
                let start = Instant::now();
                self.engine.prefill(&tokens)?;
                Ok(start.elapsed().as_secs_f64())
            }
            Request::Start { depth, n_sequences } => {
                let start = Instant::now();
                self.engine.start(&prompt(depth), n_sequences)?;
                (self.depth, self.n_sequences) = (depth, n_sequences);
                Ok(start.elapsed().as_secs_f64())
            }
            Request::Logits { n_tokens, pass_tokens } => {
                let tokens = prompt(n_tokens);
                let start = Instant::now();
                let mut out = io::stdout().lock();
                let written = self.engine.logits(&tokens, pass_tokens.max(1), &mut |logits| {
                    ensure!(logits.len() == vocab_size, "expected {vocab_size} logits, found {}", logits.len());
                    Ok(frames::write(&mut out, logits)?)
                });
                frames::end(&mut out)?;
                written?;
                Ok(start.elapsed().as_secs_f64())
            }
            Request::Decode { n_tokens } => {
                self.engine.rewind()?;
                let mut tokens = vec![0; self.n_sequences];
                let start = Instant::now();
                for position in self.depth..self.depth + n_tokens {
                    for (sequence, next) in tokens.iter_mut().enumerate() {
                        *next = token(sequence, position, vocab_size);
                    }
                    self.engine.step(&tokens)?;
                }
                Ok(start.elapsed().as_secs_f64())
            }
        }
    }
}
