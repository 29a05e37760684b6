//! A request gets the same tokens from nothing, on what another has left, beside others, and with guesses: on every checkpoint there is.

use std::{fs, path::PathBuf, sync::Arc};

use kinfolk::{
    LmRunner, LoadOptions, LoadRequest, Registry,
    decoder::Source,
    sampling::SampleOpts,
    scheduler::{Scheduler, SchedulerOptions, Ticket},
    session::{Event, Request, Session},
    speculation::{PromptLookup, Speculation},
    text::Text,
};
use kinfolk_registry_tests::{checkpoint_in, in_repository, shared};

use crate::parity::is_ours;

/// A text layer for tests that look at tokens only.
fn text() -> Arc<Text> {
    Arc::new(Text::from_source(&Source::open(in_repository("models/tinytales")).unwrap(), &[]).unwrap())
}

fn load(source: &Arc<Source>) -> anyhow::Result<Box<dyn LmRunner>> {
    let family = Registry::linked().claim(source)?.family;
    (family.load)(LoadRequest::new(Arc::clone(source), LoadOptions::default()))
}

fn request() -> Request {
    let mut request = Request::default();
    request.sample = Some(SampleOpts::greedy());
    request.max_tokens = Some(12);
    request.ignore_eos = true;
    request.log_probs = Some(0);
    request
}

/// Prompts that begin alike, of many lengths, some longer than the windows of the fixtures.
fn prompts(vocab_size: usize) -> Vec<Vec<u32>> {
    let token = |i: usize| ((i * 73 + 11) % vocab_size.min(320)) as u32;
    let tail = |seed: usize, n: usize| (0..n).map(move |i| token(i * 7 + seed * 131));
    (0..6).map(|seed| (0..20).map(token).chain(tail(seed, 1 + seed * 5)).collect()).collect()
}

/// The tokens of a scheduled request's reply.
fn tokens(ticket: Ticket) -> anyhow::Result<Vec<u32>> {
    let mut tokens = Vec::new();
    for event in ticket {
        if let Event::Token(token) = event? {
            tokens.push(token.token);
        }
    }
    Ok(tokens)
}

fn check(path: &PathBuf, text: &Arc<Text>) -> anyhow::Result<()> {
    let source = Arc::new(Source::open(path)?);
    let runner = load(&source)?;
    let prompts = prompts(runner.vocab_size());
    let session = |runner| Session::new(runner, Arc::clone(text));
    let mut cold = Vec::new();
    for prompt in &prompts {
        let found = session(load(&source)?).complete(prompt, request())?;
        cold.push(found.tokens[prompt.len()..].to_vec());
    }
    let mut reusing = session(runner);
    for (prompt, expected) in prompts.iter().zip(&cold) {
        let mut chunked = request();
        chunked.chunk_tokens = 7;
        let found = reusing.complete(prompt, chunked)?;
        anyhow::ensure!(found.tokens[prompt.len()..] == *expected, "after another prompt");
        let mut guessing = request();
        guessing.speculation = Some(Speculation::new(PromptLookup { max_ngram: 2, min_ngram: 1 }));
        let found = reusing.complete(prompt, guessing)?;
        anyhow::ensure!(found.tokens[prompt.len()..] == *expected, "with guesses");
    }
    let mut options = SchedulerOptions::default();
    (options.step_tokens, options.step_tokens_beside_decode) = (24, 5);
    let again = Arc::clone(&source);
    let scheduler = Scheduler::start(Box::new(move || load(&again)), Arc::clone(text), options)?;
    let tickets: Vec<Ticket> =
        prompts.iter().map(|prompt| scheduler.submit(prompt, request())).collect::<Result<_, _>>()?;
    for (ticket, expected) in tickets.into_iter().zip(&cold) {
        anyhow::ensure!(tokens(ticket)? == *expected, "beside others");
    }
    Ok(())
}

#[test]
fn every_checkpoint_gives_the_same_tokens_cold_reused_guessed_and_batched() {
    // Those of the repository are some of those beside it.
    let fixtures = shared("fixtures/public").unwrap_or_else(|| in_repository("fixtures"));
    let entries = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.filter(|folder| is_ours(folder));
    let mut paths: Vec<PathBuf> = folders.filter_map(|folder| checkpoint_in(&folder)).collect();
    paths.push(in_repository("fixtures/quant-llama/model-Q4_K_M.gguf"));
    paths.push(in_repository("models/tinytales"));
    paths.sort();
    assert!(paths.len() >= 18, "{paths:?}");
    let text = text();
    let failures: Vec<String> = paths
        .iter()
        .filter_map(|path| check(path, &text).err().map(|error| format!("{}: {error:#}", path.display())))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
