//! Comparing a loaded model with logits from another implementation.
//!
//! For people who port models: the report says how far off the model is, and where it first goes wrong, in each of four ways to
//! arrive at the same logits. Which of them agree tells where to look: the maths (`prefill`), the cache (`decode`), positions
//! (`re-prefill` right while `decode` is wrong), or the batch.

use std::path::Path;

use anyhow::{Result, bail};
use kinfolk_decoder::{Cancel, Model, Output, Sequence, Source, Want};
use serde::Serialize;

use crate::runner::LmRunner;

/// Tokens and what another implementation computed for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Given at once.
    pub prompt: Vec<u32>,
    /// Rows for every prompt token.
    pub prompt_rows: Vec<Vec<f32>>,
    /// Given one by one after the prompt.
    pub decode: Vec<u32>,
    /// Rows for every decode token.
    pub decode_rows: Vec<Vec<f32>>,
    /// What a row is.
    pub kind: RowKind,
}

/// What the rows of a [`Reference`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// `[vocab]`
    Logits,
    /// Output of the final norm, `[hidden]`, as references of embedding models have it.
    Hidden,
}

impl Reference {
    /// Reads a safetensors file with `prompt_ids` i64\[n\] and `prompt_logits` f32\[n, vocab\] or `hidden` f32\[n, width\], and optionally
    /// `decode_ids` i64\[m\] and `decode_logits` f32\[m, vocab\]. Other tensors are ignored.
    ///
    /// # Errors
    /// A file that is not readable, lacks these tensors, or in which they do not fit each other.
    pub fn open(path: impl AsRef<Path>) -> Result<Reference> {
        let path = path.as_ref();
        let source = Source::open_tensors(path)?;
        let prompt = ids(&source, "prompt_ids")?;
        let Some(prompt) = prompt.filter(|ids| !ids.is_empty()) else {
            bail!("`{}`: expected tensor `prompt_ids` with at least one token, found none", path.display());
        };
        let (kind, prompt_rows) = match rows(&source, "prompt_logits", prompt.len())? {
            Some(rows) => (RowKind::Logits, rows),
            None => match rows(&source, "hidden", prompt.len())? {
                Some(rows) => (RowKind::Hidden, rows),
                None => bail!("`{}`: expected tensor `prompt_logits` or `hidden`, found neither", path.display()),
            },
        };
        let decode = ids(&source, "decode_ids")?.unwrap_or_default();
        let decode_rows = match kind {
            RowKind::Logits if !decode.is_empty() => match rows(&source, "decode_logits", decode.len())? {
                Some(rows) => rows,
                None => bail!("`{}`: expected tensor `decode_logits` beside `decode_ids`, found none", path.display()),
            },
            _ => Vec::new(),
        };
        let decode = if decode_rows.is_empty() { Vec::new() } else { decode };
        Ok(Reference { prompt, prompt_rows, decode, decode_rows, kind })
    }
}

fn ids(source: &Source, name: &str) -> Result<Option<Vec<u32>>> {
    let Some(tensor) = source.tensor(name) else { return Ok(None) };
    let (dtype, path) = (tensor.info.dtype, source.path().display());
    if dtype != kinfolk_weights::Dtype::I64 {
        bail!("`{path}`: tensor `{name}`: expected type I64, found {dtype}");
    }
    let ids = tensor.bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b));
    let ids: Result<Vec<u32>, _> = ids.map(u32::try_from).collect();
    match ids {
        Ok(ids) => Ok(Some(ids)),
        Err(_) => bail!("`{path}`: tensor `{name}`: expected token ids, found a number out of range"),
    }
}

fn rows(source: &Source, name: &str, n: usize) -> Result<Option<Vec<Vec<f32>>>> {
    let Some(tensor) = source.tensor(name) else { return Ok(None) };
    match tensor.info.shape.as_slice() {
        [found, width] if *found == n && *width > 0 => {
            Ok(Some(tensor.to_f32()?.chunks_exact(*width).map(<[f32]>::to_vec).collect()))
        }
        found => bail!("`{}`: tensor `{name}`: expected shape [{n}, width], found {found:?}", source.path().display()),
    }
}

/// How the logits were arrived at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// All prompt tokens in one pass.
    Prefill,
    /// Token by token through the cache.
    Decode,
    /// Every position by a pass of its own over everything before it.
    RePrefill,
    /// Together with sequences of other lengths.
    Batch,
}

/// How far one way is from the reference.
#[derive(Clone, Debug, Serialize)]
pub struct WayReport {
    /// Which.
    pub way: Way,
    /// Rows compared.
    pub n_rows: usize,
    /// Largest absolute difference; infinite where a value is not a number.
    pub max_abs: f32,
    /// Largest absolute difference over the largest absolute reference value of its row.
    pub max_rel: f32,
    /// Rows whose likeliest token is the reference's, of those where the reference's best two differ by more than the tolerance.
    pub top1_agree: usize,
    /// Rows where they do.
    pub top1_rows: usize,
    /// Largest Kullback-Leibler divergence of a row from the reference, in nats. 0 for hidden states.
    pub max_kl: f64,
    /// First position (0 = first prompt token) beyond the tolerance or with another likeliest token.
    pub first_wrong: Option<usize>,
}

/// The whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was compared.
    pub rows: RowKind,
    /// Allowed absolute difference.
    pub tolerance: f32,
    /// In the order of [`Way`].
    pub ways: Vec<WayReport>,
    /// Whether every way is within the tolerance with the same likeliest tokens.
    pub passed: bool,
}

/// Compares a runner with a reference in all four ways, or, where it has no shared model, in the ways the waist offers.
///
/// # Errors
/// Whatever the runner fails with, and a reference of another vocabulary.
pub fn verify(runner: &mut dyn LmRunner, reference: &Reference, tolerance: f32) -> Result<Report> {
    let n_rows = (reference.prompt_rows.len(), reference.decode_rows.len());
    if reference.prompt.is_empty() || n_rows != (reference.prompt.len(), reference.decode.len()) {
        let n_tokens = (reference.prompt.len(), reference.decode.len());
        bail!("reference: expected a prompt and a row per token, found {n_tokens:?} tokens and {n_rows:?} rows");
    }
    let width = reference.prompt_rows.first().map_or(0, Vec::len);
    if reference.kind == RowKind::Logits && width != runner.vocab_size() {
        bail!("reference: expected logits over {} tokens, found {width}", runner.vocab_size());
    }
    let ways = match runner.model() {
        Some(model) => Comparison { model: &*model, reference, tolerance }.all_ways()?,
        None => through_the_waist(runner, reference, tolerance)?,
    };
    let passed = !ways.is_empty() && ways.iter().all(|way| way.first_wrong.is_none());
    Ok(Report { rows: reference.kind, tolerance, ways, passed })
}

struct Comparison<'a> {
    model: &'a dyn Model,
    reference: &'a Reference,
    tolerance: f32,
}

impl Comparison<'_> {
    fn all_ways(&self) -> Result<Vec<WayReport>> {
        Ok(vec![self.prefill()?, self.decode()?, self.re_prefill()?, self.batch()?])
    }

    fn prefill(&self) -> Result<WayReport> {
        let mut tally = Tally::new(Way::Prefill, self.reference.kind, self.tolerance);
        let mut cache = self.model.new_cache();
        let output = self.forward(&mut [(&mut *cache, &self.reference.prompt)])?.remove(0);
        tally.add_all(0, output.rows(), &self.reference.prompt_rows);
        Ok(tally.report)
    }

    fn decode(&self) -> Result<WayReport> {
        let mut tally = Tally::new(Way::Decode, self.reference.kind, self.tolerance);
        let mut cache = self.model.new_cache();
        // With no decode tokens in the reference, the prompt itself goes token by token.
        let (held, steps, expected) = self.steps();
        if held > 0 {
            self.forward(&mut [(&mut *cache, &self.reference.prompt[..held])])?;
        }
        for (i, (token, expected)) in steps.iter().zip(expected).enumerate() {
            let output = self.forward(&mut [(&mut *cache, std::slice::from_ref(token))])?.remove(0);
            tally.add_all(held + i, output.rows(), std::slice::from_ref(expected));
        }
        Ok(tally.report)
    }

    fn re_prefill(&self) -> Result<WayReport> {
        let mut tally = Tally::new(Way::RePrefill, self.reference.kind, self.tolerance);
        let (held, steps, expected) = self.steps();
        for (i, expected) in expected.iter().enumerate() {
            let tokens = [&self.reference.prompt[..held], &steps[..=i]].concat();
            let mut cache = self.model.new_cache();
            let output = self.forward(&mut [(&mut *cache, &tokens)])?.remove(0);
            tally.add_all(held + i, output.rows().skip(held + i), std::slice::from_ref(expected));
        }
        Ok(tally.report)
    }

    /// Prefixes of three lengths together, then each of them a step further together with the rest of the others.
    fn batch(&self) -> Result<WayReport> {
        let mut tally = Tally::new(Way::Batch, self.reference.kind, self.tolerance);
        let prompt = &self.reference.prompt;
        let cuts = [prompt.len(), prompt.len().div_ceil(2), 1];
        let mut caches = cuts.map(|_| self.model.new_cache());
        let [a, b, c] = &mut caches;
        let outputs =
            self.forward(&mut [(&mut **a, prompt), (&mut **b, &prompt[..cuts[1]]), (&mut **c, &prompt[..1])])?;
        for (output, cut) in outputs.iter().zip(cuts) {
            tally.add_all(0, output.rows(), &self.reference.prompt_rows[..cut]);
        }
        for (token, expected) in self.reference.decode.iter().zip(&self.reference.decode_rows) {
            let at = a.len();
            let mut batch: Vec<(&mut dyn kinfolk_decoder::Cache, &[u32])> =
                vec![(&mut **a, std::slice::from_ref(token))];
            let mut expectations = vec![(at, std::slice::from_ref(expected))];
            // The shorter ones catch up, one a token at a time, one three at a time, until they too are at the end of the prompt.
            for (cache, stride) in [(&mut *b, 1), (&mut *c, 3)] {
                let held = cache.len();
                let end = (held + stride).min(prompt.len());
                if held < end {
                    expectations.push((held, &self.reference.prompt_rows[held..end]));
                    batch.push((&mut **cache, &prompt[held..end]));
                }
            }
            let outputs = self.forward(&mut batch)?;
            for (output, (at, expected)) in outputs.iter().zip(expectations) {
                tally.add_all(at, output.rows(), expected);
            }
        }
        Ok(tally.report)
    }

    /// How many prompt tokens come first, and the tokens and rows that follow one by one.
    fn steps(&self) -> (usize, &[u32], &[Vec<f32>]) {
        let r = self.reference;
        match r.decode.is_empty() {
            true => (0, &r.prompt, &r.prompt_rows),
            false => (r.prompt.len(), &r.decode, &r.decode_rows),
        }
    }

    fn forward(&self, batch: &mut [(&mut dyn kinfolk_decoder::Cache, &[u32])]) -> Result<Vec<Output>> {
        let want = match self.reference.kind {
            RowKind::Logits => Want::AllLogits,
            RowKind::Hidden => Want::Hidden,
        };
        let mut sequences: Vec<Sequence<'_>> =
            batch.iter_mut().map(|(cache, tokens)| Sequence { cache: &mut **cache, tokens, want }).collect();
        Ok(self.model.forward(&mut sequences, &Cancel::new())?)
    }
}

/// A runner written by hand gives one row at a time.
fn through_the_waist(runner: &mut dyn LmRunner, reference: &Reference, tolerance: f32) -> Result<Vec<WayReport>> {
    if reference.kind == RowKind::Hidden {
        bail!("family `{}` gives no hidden states to compare", runner.family());
    }
    let mut re_prefill = Tally::new(Way::RePrefill, reference.kind, tolerance);
    for (i, expected) in reference.prompt_rows.iter().enumerate() {
        let logits = runner.predict_logits(&reference.prompt[..=i])?;
        re_prefill.add(i, &logits, expected);
    }
    let mut ways = vec![re_prefill.report];
    if runner.capabilities().prefill_decode_pair && !reference.decode.is_empty() {
        let mut decode = Tally::new(Way::Decode, reference.kind, tolerance);
        runner.prefill_logits(&reference.prompt)?;
        for (i, (token, expected)) in reference.decode.iter().zip(&reference.decode_rows).enumerate() {
            let logits = runner.decode_logits(*token)?;
            decode.add(reference.prompt.len() + i, &logits, expected);
        }
        ways.insert(0, decode.report);
    }
    Ok(ways)
}

/// Adds up differences row by row.
struct Tally {
    report: WayReport,
    kind: RowKind,
    tolerance: f32,
}

impl Tally {
    fn new(way: Way, kind: RowKind, tolerance: f32) -> Tally {
        let report = WayReport {
            way,
            n_rows: 0,
            max_abs: 0.0,
            max_rel: 0.0,
            top1_agree: 0,
            top1_rows: 0,
            max_kl: 0.0,
            first_wrong: None,
        };
        Tally { report, kind, tolerance }
    }

    fn add_all<'a>(&mut self, first: usize, found: impl Iterator<Item = &'a [f32]>, expected: &[Vec<f32>]) {
        let mut n = 0;
        for (i, (found, expected)) in found.zip(expected).enumerate() {
            self.add(first + i, found, expected);
            n += 1;
        }
        debug_assert_eq!(n, expected.len(), "every expected row has been computed");
    }

    fn add(&mut self, position: usize, found: &[f32], expected: &[f32]) {
        let r = &mut self.report;
        r.n_rows += 1;
        let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
        let abs = differences.map(|d| if d.is_nan() { f32::INFINITY } else { d }).fold(0.0, f32::max);
        let scale = expected.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
        r.max_abs = r.max_abs.max(abs);
        r.max_rel = r.max_rel.max(abs / scale);
        let mut wrong = found.len() != expected.len() || abs > self.tolerance;
        if self.kind == RowKind::Logits {
            r.max_kl = r.max_kl.max(kl_divergence(expected, found));
            let (best, gap) = best_and_gap(expected);
            if gap > self.tolerance {
                r.top1_rows += 1;
                let agrees = best_and_gap(found).0 == best;
                r.top1_agree += usize::from(agrees);
                wrong |= !agrees;
            }
        }
        if wrong && r.first_wrong.is_none_or(|first| position < first) {
            r.first_wrong = Some(position);
        }
    }
}

/// Index of the largest value, and how far it is above the next.
fn best_and_gap(row: &[f32]) -> (usize, f32) {
    let (mut best, mut first, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (i, &x) in row.iter().enumerate() {
        if x > first {
            (best, second, first) = (i, first, x);
        } else if x > second {
            second = x;
        }
    }
    (best, first - second)
}

/// `Σ p ln(p / q)` of the softmaxes.
fn kl_divergence(expected: &[f32], found: &[f32]) -> f64 {
    let log_softmax = |row: &[f32]| -> Vec<f64> {
        let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = row.iter().map(|x| (f64::from(*x) - max).exp()).sum();
        row.iter().map(|x| f64::from(*x) - max - sum.ln()).collect()
    };
    let (p, q) = (log_softmax(expected), log_softmax(found));
    let kl: f64 = p.iter().zip(&q).filter(|(p, _)| p.is_finite()).map(|(p, q)| p.exp() * (p - q)).sum();
    if kl.is_nan() { f64::INFINITY } else { kl.max(0.0) }
}

#[cfg(test)]
mod tests;
