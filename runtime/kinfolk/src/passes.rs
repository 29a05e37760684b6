//! Many token sequences through a model, in forward passes of bounded size.

use std::collections::VecDeque;

use anyhow::Result;
use kinfolk_decoder::{Cache, Cancel, Model, Sequence, Want};

use crate::{RunnerError, decoder_runner::for_host};

/// Most numbers a pass brings back, 32 MiB of them: logits of all tokens of a pass would be gigabytes.
const MAX_VALUES: usize = 8 << 20;

/// One sequence to run, from nothing.
pub(crate) struct Job<'a> {
    /// At least one.
    pub tokens: &'a [u32],
    /// Of this many tokens at the start no row is wanted.
    pub n_silent: usize,
}

/// A job whose first tokens are in a cache.
struct Begun<'a> {
    idx: usize,
    job: &'a Job<'a>,
    cache: Box<dyn Cache>,
    n_done: usize,
}

/// What a pass takes of a job.
struct Part<'a> {
    of: Begun<'a>,
    n_tokens: usize,
    want: Want,
}

/// Runs every job, with at most `batch_tokens` tokens in a pass, and gives each row that is wanted to `on_row` with the job's
/// index and the token's position. `want` is `Hidden` or `AllLogits`. Rows of a job come in order, and do not depend on what else is
/// run.
///
/// # Errors
/// Whatever the model refuses, in the waist's own words. Rows given before stay given.
///
/// # Cost
/// Caches of the jobs in work alone: none is begun while one that was begun waits.
pub(crate) fn run(
    model: &dyn Model,
    jobs: &[Job<'_>],
    want: Want,
    batch_tokens: usize,
    cancel: &Cancel,
    on_row: &mut dyn FnMut(usize, usize, &[f32]),
) -> Result<()> {
    if jobs.iter().any(|job| job.tokens.is_empty()) {
        return Err(RunnerError::EmptyPrompt.into());
    }
    let embedding = &model.decoder().embedding;
    let width = if want == Want::Hidden { embedding.hidden_size } else { embedding.vocab_size };
    let max_rows = (MAX_VALUES / width.max(1)).max(1);
    let mut fresh = jobs.iter().enumerate();
    let mut waiting = VecDeque::new();
    loop {
        let (mut tokens_left, mut rows_left) = (batch_tokens.max(1), max_rows);
        let mut parts: Vec<Part<'_>> = Vec::new();
        while tokens_left > 0 {
            let begin = |(idx, job)| Begun { idx, job, cache: model.new_cache(), n_done: 0 };
            let Some(of) = waiting.pop_front().or_else(|| fresh.next().map(begin)) else { break };
            let part = of.next_part(want, tokens_left, rows_left);
            if part.n_tokens == 0 {
                waiting.push_front(part.of);
                break;
            }
            tokens_left -= part.n_tokens;
            rows_left -= if part.want == want { part.n_tokens } else { 0 };
            parts.push(part);
        }
        if parts.is_empty() {
            return Ok(());
        }
        let mut batch: Vec<Sequence<'_>> = parts.iter_mut().map(Part::sequence).collect();
        let outputs = model.forward(&mut batch, cancel).map_err(for_host)?;
        for (part, output) in parts.into_iter().zip(outputs) {
            let Part { mut of, n_tokens, .. } = part;
            output.rows().enumerate().for_each(|(i, row)| on_row(of.idx, of.n_done + i, row));
            of.n_done += n_tokens;
            if of.n_done < of.job.tokens.len() {
                waiting.push_back(of);
            }
        }
    }
}

impl<'a> Begun<'a> {
    /// As much as there is room for. Tokens whose rows are wanted and those whose are not do not share a pass.
    fn next_part(self, want: Want, tokens_left: usize, rows_left: usize) -> Part<'a> {
        match self.job.n_silent.min(self.job.tokens.len()).saturating_sub(self.n_done) {
            0 => {
                let n_left = self.job.tokens.len() - self.n_done;
                Part { n_tokens: n_left.min(tokens_left).min(rows_left), want, of: self }
            }
            n_silent => Part { n_tokens: n_silent.min(tokens_left), want: Want::Nothing, of: self },
        }
    }
}

impl Part<'_> {
    fn sequence(&mut self) -> Sequence<'_> {
        let Begun { job, cache, n_done, .. } = &mut self.of;
        Sequence { cache: &mut **cache, tokens: &job.tokens[*n_done..*n_done + self.n_tokens], want: self.want }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{LLAMA, WINDOWED, assert_near, load, request, source, tokens},
        watched_model::Watched,
    };

    fn watched(file: &str) -> Watched {
        let inside = load(request(source(file), |_| {})).unwrap().model().unwrap();
        Watched::new(inside)
    }

    type Rows = Vec<Vec<(usize, Vec<f32>)>>;

    fn rows(model: &dyn Model, jobs: &[Job<'_>], want: Want, batch_tokens: usize) -> Rows {
        let mut rows: Rows = jobs.iter().map(|_| Vec::new()).collect();
        run(model, jobs, want, batch_tokens, &Cancel::new(), &mut |job, position, row| {
            rows[job].push((position, row.to_vec()));
        })
        .unwrap();
        rows
    }

    #[test]
    fn every_row_that_is_wanted_comes_once_and_in_order_whatever_the_size_of_a_pass() {
        let lengths = [(3, 0), (40, 30), (1, 0), (100, 99), (7, 7), (5, 9), (60, 1)];
        let all = tokens(100);
        let jobs: Vec<Job<'_>> =
            lengths.iter().map(|&(len, n_silent)| Job { tokens: &all[100 - len..], n_silent }).collect();
        for file in [LLAMA, WINDOWED] {
            for want in [Want::Hidden, Want::AllLogits] {
                let model = watched(file);
                let expected = rows(&model, &jobs, want, 10_000);
                for (job, (len, n_silent)) in expected.iter().zip(lengths) {
                    assert!(job.iter().map(|(position, _)| *position).eq(n_silent.min(len)..len), "{want:?}");
                }
                for batch_tokens in [1, 3, 32, 101] {
                    model.passes.lock().unwrap().clear();
                    let found = rows(&model, &jobs, want, batch_tokens);
                    for (found, expected) in found.iter().zip(&expected) {
                        let positions = |rows: &[(usize, Vec<f32>)]| rows.iter().map(|row| row.0).collect::<Vec<_>>();
                        assert_eq!(positions(found), positions(expected), "{file} {batch_tokens}");
                        for ((position, found), (_, expected)) in found.iter().zip(expected) {
                            assert_near(found, expected, format_args!("{file} {batch_tokens}, {position}"));
                        }
                    }
                    let passes = model.passes.lock().unwrap();
                    assert!(passes.iter().all(|pass| pass.iter().sum::<usize>() <= batch_tokens), "{passes:?}");
                    assert!(batch_tokens == 1 || passes.iter().any(|pass| pass.len() > 1), "{passes:?}");
                    let n_tokens: usize = passes.iter().flatten().sum();
                    assert_eq!(n_tokens, lengths.iter().map(|(len, _)| len).sum::<usize>(), "nothing is run twice");
                }
            }
        }
    }

    #[test]
    fn a_job_without_tokens_is_refused_before_anything_is_run() {
        let model = watched(LLAMA);
        let jobs = [Job { tokens: &[1, 2], n_silent: 0 }, Job { tokens: &[], n_silent: 0 }];
        let error = run(&model, &jobs, Want::Hidden, 8, &Cancel::new(), &mut |_, _, _| {}).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&RunnerError::EmptyPrompt));
        assert_eq!(*model.passes.lock().unwrap(), Vec::<Vec<usize>>::new());
        run(&model, &[], Want::Hidden, 8, &Cancel::new(), &mut |_, _, _| {}).unwrap();
    }
}
