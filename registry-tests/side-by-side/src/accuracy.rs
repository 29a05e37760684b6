//! How far each engine's logits are from those of exact products with the same weights.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    args::{AccuracyArgs, EngineArgs},
    contender::{Contender, Worker, contenders, settings},
    distance::{Distance, Sums},
    engine::EngineKind,
    protocol::Settings,
    report::aligned,
};

/// Tokens of a pass of the reference. From 32 on kinfolk's attention and its products with halves may not be exact.
const REFERENCE_PASS_TOKENS: usize = 8;

/// What was found with one file.
#[derive(Serialize)]
struct Accuracy {
    model: PathBuf,
    file_bytes: u64,
    threads: usize,
    n_tokens: usize,
    /// Standard deviation of the reference's logits within a position, to measure distances by.
    deviation: f64,
    /// What each engine says about itself.
    about: Vec<String>,
    /// By pass, and in it by engine, the one to compare with the others first.
    found: Vec<Vec<Found>>,
}

#[derive(Serialize)]
struct Found {
    engine: String,
    pass_tokens: usize,
    distance: Option<Distance>,
    failure: Option<String>,
}

pub fn run(args: &AccuracyArgs) -> Result<()> {
    ensure!(args.n_tokens > 1, "tokens: expected two at least, found one");
    let contenders = contenders(&args.engines)?;
    let mut all = Vec::new();
    for model in &args.models {
        let accuracy = measure(args, model, &contenders).with_context(|| model.display().to_string())?;
        if !args.json {
            println!("{}", accuracy.in_words());
        }
        all.push(accuracy);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(())
}

fn measure(args: &AccuracyArgs, model: &Path, contenders: &[Contender]) -> Result<Accuracy> {
    let (n_tokens, threads) = (args.n_tokens, args.engines.threads);
    let settings = settings(model, threads, n_tokens)?;
    let reference = reference(&args.engines, model, settings, n_tokens)?;
    let mut about = Vec::new();
    let mut found: Vec<Vec<Found>> = vec![Vec::new(), Vec::new()];
    for contender in contenders {
        let mut worker = Worker::start(contender, threads)?;
        let loaded = worker.load(model, settings);
        about.extend(loaded.as_ref().ok().and_then(|done| done.about.clone()));
        let refused = loaded.err();
        for (pass_tokens, found) in [1, n_tokens].into_iter().zip(&mut found) {
            let distance = match &refused {
                None => distance(&mut worker, &reference, n_tokens, pass_tokens),
                Some(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            found.push(Found::new(&contender.name, pass_tokens, distance));
        }
    }
    let deviations: f64 = reference.iter().map(|logits| variance(logits)).sum();
    Ok(Accuracy {
        model: model.to_owned(),
        file_bytes: model.metadata()?.len(),
        threads,
        n_tokens,
        deviation: (deviations / n_tokens as f64).sqrt(),
        about,
        found,
    })
}

/// The exact logits of every position.
fn reference(args: &EngineArgs, model: &Path, settings: Settings, n_tokens: usize) -> Result<Vec<Vec<f32>>> {
    let kinfolk = contenders(&EngineArgs { engines: vec![EngineKind::Kinfolk], worker: Vec::new(), ..*args })?;
    let mut worker = Worker::start(&kinfolk[0], args.threads)?;
    worker.load(model, Settings { exact: true, ..settings })?;
    let mut reference = Vec::new();
    worker.logits(n_tokens, REFERENCE_PASS_TOKENS, |_, logits| {
        reference.push(logits.to_vec());
        Ok(())
    })?;
    Ok(reference)
}

fn distance(worker: &mut Worker, reference: &[Vec<f32>], n_tokens: usize, pass_tokens: usize) -> Result<Distance> {
    let mut sums = Sums::default();
    worker.logits(n_tokens, pass_tokens, |position, logits| {
        let reference = reference.get(position).context("more positions than tokens")?;
        ensure!(reference.len() == logits.len(), "expected {} logits, found {}", reference.len(), logits.len());
        sums.add(reference, logits);
        Ok(())
    })?;
    Ok(sums.distance())
}

fn variance(logits: &[f32]) -> f64 {
    let n = logits.len() as f64;
    let mean = logits.iter().map(|logit| f64::from(*logit)).sum::<f64>() / n;
    logits.iter().map(|logit| (f64::from(*logit) - mean).powi(2)).sum::<f64>() / n
}

impl Accuracy {
    fn in_words(&self) -> String {
        let mut text: String = self.about.iter().map(|line| format!("{line}\n")).collect();
        let megabytes = self.file_bytes as f64 / 1e6;
        text += &format!(
            "\n{}, {megabytes:.0} MB, {} threads, {} tokens, exact logits spread by {:.3}\n\n",
            self.model.display(),
            self.threads,
            self.n_tokens,
            self.deviation
        );
        let heading = ["", "largest", "root mean square", "KL", "same token"].map(str::to_owned);
        let found = || self.found.iter().flatten();
        let rows: Vec<_> = std::iter::once(heading.to_vec()).chain(found().map(Found::row)).collect();
        text += &aligned(&rows);
        for found in found() {
            if let Some(failure) = &found.failure {
                text += &format!("\n{}: {failure}", found.name());
            }
        }
        text.push('\n');
        for found in &self.found {
            let verdicts = found.iter().skip(1).filter_map(|other| verdict(&found[0], other));
            verdicts.for_each(|verdict| text += &(verdict + "\n"));
        }
        text
    }
}

impl Found {
    fn new(engine: &str, pass_tokens: usize, distance: Result<Distance>) -> Found {
        let failure = distance.as_ref().err().map(|error| format!("{error:#}"));
        Found { engine: engine.to_owned(), pass_tokens, distance: distance.ok(), failure }
    }

    fn name(&self) -> String {
        format!("{}, {}", pass(self.pass_tokens), self.engine)
    }

    fn row(&self) -> Vec<String> {
        let cells = match &self.distance {
            Some(Distance { largest, root_mean_square, kl, same_token }) => [
                format!("{largest:.4}"),
                format!("{root_mean_square:.5}"),
                format!("{kl:.1e}"),
                format!("{:.1} %", same_token * 100.0),
            ],
            None => ["–"; 4].map(str::to_owned),
        };
        std::iter::once(self.name()).chain(cells).collect()
    }
}

fn pass(n_tokens: usize) -> String {
    if n_tokens == 1 { "token by token".to_owned() } else { format!("{n_tokens} at once") }
}

/// Whether the first engine is as near as another, or nearer.
fn verdict(first: &Found, other: &Found) -> Option<String> {
    let (nearer, farther) = (first.distance?, other.distance?);
    let distances = [
        ("largest difference", nearer.largest, farther.largest),
        ("root mean square", nearer.root_mean_square, farther.root_mean_square),
        ("KL", nearer.kl, farther.kl),
        ("other tokens", 1.0 - nearer.same_token, 1.0 - farther.same_token),
    ];
    let worse: Vec<_> =
        distances.iter().filter(|(_, near, far)| near > far || near.is_nan()).map(|(name, ..)| *name).collect();
    let found = if worse.is_empty() { "nearer".to_owned() } else { format!("NOT nearer in {}", worse.join(", ")) };
    let times: Vec<_> = distances[..3].iter().map(|(name, near, far)| format!("{name} {:.1}", far / near)).collect();
    let [pass, first, other] = [pass(first.pass_tokens), first.engine.clone(), other.engine.clone()];
    Some(format!("{pass}: {first} is {found}; {other} ÷ {first}: {}", times.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(engine: &str, largest: f64, same_token: f64) -> Found {
        let distance = Distance { largest, root_mean_square: 0.01, kl: 1e-6, same_token };
        Found::new(engine, 1, Ok(distance))
    }

    #[test]
    fn a_verdict_names_whatever_is_worse() {
        let of = |first, other| verdict(&first, &other).unwrap();
        let same = of(found("a", 0.5, 1.0), found("b", 0.5, 1.0));
        assert!(same.starts_with("token by token: a is nearer; b ÷ a: largest difference 1.0,"), "{same}");
        let worse = of(found("a", 2.0, 0.9), found("b", 0.5, 1.0));
        assert!(worse.contains("a is NOT nearer in largest difference, other tokens;"), "{worse}");
        let no_number = of(found("a", f64::NAN, 1.0), found("b", 0.5, 1.0));
        assert!(no_number.contains("NOT nearer in largest difference;"), "{no_number}");
    }

    #[test]
    fn there_is_no_verdict_about_an_engine_that_failed() {
        let failed = Found::new("b", 1, Err(anyhow::anyhow!("why")));
        assert!(verdict(&found("a", 0.5, 1.0), &failed).is_none());
        assert_eq!(failed.row(), ["token by token, b", "–", "–", "–", "–"]);
    }
}
