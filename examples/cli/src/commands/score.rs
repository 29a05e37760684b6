//! `kinfolk score`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use kinfolk::{
    LmRunner,
    decoder::Cancel,
    scoring::{Perplexity, PerplexityOptions, ScoreOptions, ScorePair, score_all, text_perplexity},
    text::Text,
};
use serde::Serialize;

use crate::{args::ScoreArgs, interrupt, open, print};

pub fn run(args: &ScoreArgs, cancel: &Cancel) -> Result<ExitCode> {
    let content = args.file.as_deref().map(open::text_file).transpose()?;
    interrupt::cancels(cancel);
    let text = open::text_layer(&open::source(&args.load.model, &args.load.open)?)?;
    let mut runner = open::builder(&args.load, cancel)?.build()?;
    let of_model = || format!("cannot score with `{}`", args.load.model.display());
    match content {
        Some(content) => {
            let found = of_file(args, &mut *runner, &text, &content, cancel).with_context(of_model)?;
            show(args.json, &PerplexityReport::of(&found), perplexity_in_words)?;
        }
        None => {
            let found = of_pair(args, &mut *runner, &text, cancel).with_context(of_model)?;
            show(args.json, &found, score_in_words)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show<T: Serialize>(as_json: bool, report: &T, in_words: fn(&T) -> String) -> Result<()> {
    if as_json { print::json(report) } else { print::out(&in_words(report)) }
}

#[derive(Serialize)]
struct PerplexityReport {
    perplexity: f64,
    std_error: Option<f64>,
    mean_nll: f64,
    n_tokens: usize,
    n_windows: usize,
}

#[derive(Serialize)]
struct ScoreReport {
    total: f64,
    greedy: bool,
    tokens: Vec<TokenScore>,
}

#[derive(Serialize)]
struct TokenScore {
    id: u32,
    piece: String,
    log_prob: f32,
}

fn of_file(
    args: &ScoreArgs,
    runner: &mut dyn LmRunner,
    text: &Text,
    content: &str,
    cancel: &Cancel,
) -> Result<Perplexity> {
    let mut options = PerplexityOptions::default();
    (options.window, options.stride) = (args.window, args.stride);
    options.score.cancel = cancel.clone();
    let bar = open::progress_bar("scoring {bar:30} {pos}/{len} tokens");
    text_perplexity(runner, text, content, &options, &mut |done, all| {
        if let Some(bar) = &bar {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        }
    })
}

impl PerplexityReport {
    fn of(found: &Perplexity) -> PerplexityReport {
        let &Perplexity { perplexity, std_error, mean_nll, n_tokens, n_windows } = found;
        PerplexityReport { perplexity, std_error, mean_nll, n_tokens, n_windows }
    }
}

fn perplexity_in_words(report: &PerplexityReport) -> String {
    let PerplexityReport { perplexity, std_error, n_tokens, n_windows, .. } = report;
    let error = std_error.map_or(String::new(), |error| format!(" ± {error:.4}"));
    format!("perplexity {perplexity:.4}{error} | tokens {n_tokens} | windows {n_windows}\n")
}

fn of_pair(args: &ScoreArgs, runner: &mut dyn LmRunner, text: &Text, cancel: &Cancel) -> Result<ScoreReport> {
    let typed = |typed: &Option<String>| typed.clone().unwrap_or_default();
    let pair = ScorePair::of_text(text, &typed(&args.context), &typed(&args.continuation))?;
    let mut options = ScoreOptions::default();
    options.cancel = cancel.clone();
    let scores = score_all(runner, std::slice::from_ref(&pair), &options)?;
    let score = scores.into_iter().next().context("one pair was scored and gave no score")?;
    let token = |(&id, log_prob): (&u32, f32)| {
        let bytes = text.tokenizer.token_bytes(id).unwrap_or_default();
        TokenScore { id, piece: String::from_utf8_lossy(&bytes).into_owned(), log_prob }
    };
    let tokens = pair.continuation.iter().zip(score.log_probs).map(token).collect();
    Ok(ScoreReport { total: score.total, greedy: score.greedy, tokens })
}

fn score_in_words(report: &ScoreReport) -> String {
    let heading = ["id", "log-prob", "piece"].map(str::to_owned).to_vec();
    let row = |t: &TokenScore| vec![t.id.to_string(), format!("{:.4}", t.log_prob), format!("{:?}", t.piece)];
    let rows: Vec<_> = std::iter::once(heading).chain(report.tokens.iter().map(row)).collect();
    let greedy = if report.greedy { "greedy decoding gives it" } else { "greedy decoding gives another" };
    let (total, n_tokens) = (report.total, report.tokens.len());
    print::table(&rows) + &format!("log-probability {total:.4} | tokens {n_tokens} | {greedy}\n")
}
