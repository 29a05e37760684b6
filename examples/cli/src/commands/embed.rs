//! `kinfolk embed`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use kinfolk::{
    decoder::Cancel,
    embedding::{EmbedRequest, Embeddings},
};
use serde::Serialize;

use crate::{args::EmbedArgs, interrupt, open, print};

pub fn run(args: &EmbedArgs, cancel: &Cancel) -> Result<ExitCode> {
    let texts = texts(&args.texts)?;
    interrupt::cancels(cancel);
    let embeddings =
        embed(args, &texts, cancel).with_context(|| format!("cannot embed with `{}`", args.load.model.display()))?;
    for cut in &embeddings.truncated {
        print::warn(&format!("text {}: cut at the end by {} tokens", cut.text, cut.n_cut_tokens));
    }
    if args.json {
        print::json(&report(&embeddings))?;
        return Ok(ExitCode::SUCCESS);
    }
    for vector in &embeddings.vectors {
        let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
        print::out(&(numbers.join(" ") + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was typed, or the lines of standard input for a lone `-`.
fn texts(typed: &[String]) -> Result<Vec<String>> {
    match typed {
        [dash] if dash == "-" => Ok(open::text_or_stdin(dash)?.lines().map(str::to_owned).collect()),
        typed => Ok(typed.to_vec()),
    }
}

fn embed(args: &EmbedArgs, texts: &[String], cancel: &Cancel) -> Result<Embeddings> {
    let mut embedder = open::builder(&args.load, cancel)?.embedder()?;
    if let Some(pooling) = &args.pooling {
        embedder.set_pooling(pooling.clone())?;
    }
    let mut request = EmbedRequest::default();
    request.prompt = args.prompt.prompt();
    request.truncate = args.truncate;
    request.normalize = (args.normalize || args.no_normalize).then_some(args.normalize);
    request.dimensions = args.dimensions;
    request.cancel = cancel.clone();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    embedder.embed(&texts, &request)
}

#[derive(Serialize)]
struct Report<'a> {
    embeddings: Vec<Embedded<'a>>,
}

#[derive(Serialize)]
struct Embedded<'a> {
    n_tokens: usize,
    n_cut_tokens: usize,
    embedding: &'a [f32],
}

fn report(embeddings: &Embeddings) -> Report<'_> {
    let n_cut =
        |text: usize| embeddings.truncated.iter().find(|cut| cut.text == text).map_or(0, |cut| cut.n_cut_tokens);
    let vectors = embeddings.vectors.iter().zip(&embeddings.n_tokens).enumerate();
    let embedded =
        vectors.map(|(text, (vector, &n_tokens))| Embedded { n_tokens, n_cut_tokens: n_cut(text), embedding: vector });
    Report { embeddings: embedded.collect() }
}
