//! The engines that take part, each in a process of its own.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use kinfolk::{Registry, decoder::Source};

use crate::{
    args::EngineArgs,
    engine::EngineKind,
    frames,
    protocol::{Done, Reply, Request, Settings},
};

/// Who takes part.
pub struct Contender {
    pub name: String,
    pub engine: EngineKind,
    program: PathBuf,
}

/// Those that were asked for, the one to compare with the others first.
pub fn contenders(args: &EngineArgs) -> Result<Vec<Contender>> {
    let this_program = std::env::current_exe()?;
    let replaced = |kind| args.worker.iter().find(|w| w.name.is_none() && w.engine == kind);
    let kinds = if args.engines.is_empty() { EngineKind::built_in() } else { args.engines.clone() };
    let own = kinds.into_iter().map(|engine| Contender {
        name: engine.name().to_owned(),
        engine,
        program: replaced(engine).map_or_else(|| this_program.clone(), |w| w.program.clone()),
    });
    let named = args
        .worker
        .iter()
        .filter_map(|w| Some(Contender { name: w.name.clone()?, engine: w.engine, program: w.program.clone() }));
    let contenders: Vec<_> = own.chain(named).collect();
    let mut names = HashSet::new();
    if let Some(twice) = contenders.iter().find(|c| !names.insert(&c.name)) {
        bail!("engines: expected each name once, found `{}` twice", twice.name);
    }
    Ok(contenders)
}

/// What every engine loads `model` with, with room for `context_length` tokens.
pub fn settings(model: &Path, threads: usize, context_length: usize) -> Result<Settings> {
    let source = Source::open(model)?;
    let family = Registry::linked().claim(&source)?.family;
    let describe = family.describe.context("expected a family that is a description, found a runner")?;
    let decoder = describe(source.config())?;
    let max = decoder.context_length;
    ensure!(context_length <= max, "context: expected at most {max} tokens, found {context_length}");
    Ok(Settings { threads, context_length, vocab_size: decoder.embedding.vocab_size, exact: false })
}

/// The process of an engine. Ends when it is dropped.
pub struct Worker {
    name: String,
    process: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Worker {
    pub fn start(contender: &Contender, threads: usize) -> Result<Worker> {
        let mut process = Command::new(&contender.program)
            .args(["worker", contender.engine.name()])
            .env("RAYON_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", contender.program.display()))?;
        let (requests, replies) = (process.stdin.take(), process.stdout.take());
        let replies = BufReader::new(replies.context("a worker without an output")?);
        Ok(Worker { name: contender.name.clone(), process, requests, replies })
    }

    pub fn load(&mut self, model: &Path, settings: Settings) -> Result<Done> {
        self.ask(&Request::Load { model: model.to_owned(), settings })
    }

    pub fn ask(&mut self, request: &Request) -> Result<Done> {
        self.send(request)?;
        self.reply()
    }

    /// Asks for the logits of every position and gives them to `found` as they come.
    pub fn logits(
        &mut self,
        n_tokens: usize,
        pass_tokens: usize,
        mut found: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.send(&Request::Logits { n_tokens, pass_tokens })?;
        let mut logits = Vec::new();
        let mut position = 0;
        while frames::read(&mut self.replies, &mut logits).with_context(|| self.ended())? {
            found(position, &logits)?;
            position += 1;
        }
        self.reply()?;
        ensure!(position == n_tokens, "expected the logits of {n_tokens} positions, found {position}");
        Ok(())
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        let ended = || self.ended();
        let mut requests = self.requests.as_ref().with_context(ended)?;
        writeln!(requests, "{}", serde_json::to_string(request)?).with_context(ended)
    }

    fn reply(&mut self) -> Result<Done> {
        let mut line = String::new();
        let n_bytes = self.replies.read_line(&mut line).with_context(|| self.ended())?;
        ensure!(n_bytes > 0, self.ended());
        serde_json::from_str::<Reply>(&line).context("not a reply")?.map_err(anyhow::Error::msg)
    }

    fn ended(&self) -> String {
        format!("the process of {} ended", self.name)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.requests.take());
        let _ = self.process.wait();
    }
}
