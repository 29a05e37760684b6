//! Scores against probabilities by hand, over a whole small model and over a runner that has none.

use std::{ops::ControlFlow, path::Path};

use kinfolk_decoder::{Cancel, LoadRole, Model, Sequence, Source, Want};
use kinfolk_text::Text;

use super::{
    Perplexity, PerplexityOptions, Score, ScoreError, ScoreOptions, ScorePair, perplexity, score, score_all,
    text_perplexity,
};
use crate::{
    GenerateOptions, LmRunner, RunnerError,
    fixture::{LLAMA, VOCAB, WINDOWED, load, request, source, tokens},
    sampling::SampleOpts,
    toy_runner::{Abilities, Flaw, ToyRunner},
};

fn runner(file: &str) -> Box<dyn LmRunner> {
    load(request(source(file), |_| {})).unwrap()
}

fn pair(context: &[u32], continuation: &[u32]) -> ScorePair {
    ScorePair { context: context.to_vec(), continuation: continuation.to_vec() }
}

/// The softmax, written down.
fn probability(logits: &[f32], token: u32) -> f64 {
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    f64::from(logits[token as usize]).exp() / sum
}

fn all_logits(model: &dyn Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut cache = model.new_cache();
    let sequence = Sequence { cache: &mut *cache, tokens, want: Want::AllLogits };
    let output = model.forward(&mut [sequence], &Cancel::new()).unwrap().remove(0);
    output.rows().map(<[f32]>::to_vec).collect()
}

#[track_caller]
fn close(found: &Score, expected: &[f64]) {
    assert_eq!(found.log_probs.len(), expected.len());
    for (found, expected) in found.log_probs.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
    }
    assert!((found.total - expected.iter().sum::<f64>()).abs() < 1e-4);
}

#[track_caller]
fn refused(runner: &mut dyn LmRunner, pairs: &[ScorePair]) -> ScoreError {
    score_all(runner, pairs, &ScoreOptions::default()).unwrap_err().downcast().unwrap()
}

#[test]
fn a_score_is_the_sum_of_log_probabilities_of_the_raw_logits() {
    for file in [LLAMA, WINDOWED] {
        let mut runner = runner(file);
        let all = tokens(31);
        let logits = all_logits(&*runner.model().unwrap(), &all);
        for n_context in [1, 20, 30] {
            let expected: Vec<f64> = (n_context..31).map(|i| probability(&logits[i - 1], all[i]).ln()).collect();
            let found = score(&mut runner, &all[..n_context], &all[n_context..]).unwrap();
            close(&found, &expected);
        }
    }
}

#[test]
fn pairs_together_score_as_each_alone_and_the_runner_s_context_stays() {
    let mut runner = runner(LLAMA);
    runner.prefill_logits(&tokens(9)).unwrap();
    let before = runner.export_session().unwrap();
    let all = tokens(31);
    let pairs: Vec<ScorePair> =
        [(1, 1), (20, 5), (5, 20), (1, 30), (30, 1), (15, 15)].map(|(a, b)| pair(&all[..a], &all[a..a + b])).into();
    let alone: Vec<Score> = pairs.iter().map(|p| score(&mut runner, &p.context, &p.continuation).unwrap()).collect();
    for batch_tokens in [0, 1, 10, 100, 10_000] {
        let options = ScoreOptions { batch_tokens, ..ScoreOptions::default() };
        assert_eq!(score_all(&mut runner, &pairs, &options).unwrap(), alone, "{batch_tokens}");
    }
    assert_eq!(score_all(&mut runner, &[], &ScoreOptions::default()).unwrap(), []);
    assert_eq!(runner.export_session().unwrap(), before);
}

#[test]
fn what_greedy_decoding_gives_is_greedy_and_nothing_else() {
    let mut runner = runner(LLAMA);
    let context = tokens(12);
    let mut options = GenerateOptions::default();
    (options.max_new_tokens, options.sample) = (8, SampleOpts::greedy());
    let mut reply = runner.generate(&context, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(score(&mut runner, &context, &reply).unwrap().greedy);
    reply[3] = (reply[3] + 1) % VOCAB as u32;
    assert!(!score(&mut runner, &context, &reply).unwrap().greedy);
}

#[test]
fn a_runner_without_a_model_scores_the_same_token_by_token() {
    for abilities in [Abilities::NONE, Abilities::ALL] {
        let mut runner = ToyRunner::new(abilities);
        let all = [3, 1, 4, 1, 5, 9, 2, 6];
        let expected: Vec<f64> = (3..8).map(|i| probability(&runner.logits(&all[..i]), all[i]).ln()).collect();
        close(&score(&mut runner, &all[..3], &all[3..]).unwrap(), &expected);
    }
    let mut runner = ToyRunner::new(Abilities::ALL);
    let best = |runner: &ToyRunner, tokens: &[u32]| {
        let logits = runner.logits(tokens);
        (0..16u32).max_by(|a, b| logits[*a as usize].total_cmp(&logits[*b as usize])).unwrap()
    };
    let first = best(&runner, &[7]);
    let second = best(&runner, &[7, first]);
    assert!(score(&mut runner, &[7], &[first, second]).unwrap().greedy);
    assert!(!score(&mut runner, &[7], &[first, (second + 1) % 16]).unwrap().greedy);
    let options = ScoreOptions::default();
    options.cancel.cancel();
    let error = score_all(&mut runner, &[pair(&[1], &[2])], &options).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::Cancelled));
}

#[test]
fn pairs_that_cannot_be_scored_are_refused_before_anything_is_computed() {
    let mut toy = ToyRunner::new(Abilities::ALL);
    let good = pair(&[1], &[2]);
    let long = vec![1; 33];
    for (bad, expected) in [
        (pair(&[], &[1]), ScoreError::EmptyContext { pair: 1 }),
        (pair(&[1], &[]), ScoreError::EmptyContinuation { pair: 1 }),
        (pair(&[1], &long), ScoreError::TooLong { pair: 1, limit: 33, found: 34 }),
        (pair(&[16], &[1]), ScoreError::TokenOutOfRange { pair: 1, token: 16, vocab_size: 16 }),
        (pair(&[1], &[u32::MAX]), ScoreError::TokenOutOfRange { pair: 1, token: u32::MAX, vocab_size: 16 }),
    ] {
        assert_eq!(refused(&mut toy, &[good.clone(), bad.clone()]), expected);
        assert_eq!(refused(&mut runner(LLAMA), &[good.clone(), long_or(bad)]).to_string().get(..6), Some("pair 1"));
    }
    assert_eq!(toy.n_calls, 0);
    // The last token is not run, and so takes no room.
    score(&mut toy, &[1], &long[1..]).unwrap();
}

/// The same mistake for a model of more tokens and a longer context.
fn long_or(mut pair: ScorePair) -> ScorePair {
    if pair.continuation.len() > 2 {
        pair.continuation = vec![1; 300];
    }
    for token in pair.context.iter_mut().filter(|token| **token == 16) {
        *token = 320;
    }
    pair
}

#[test]
fn logits_that_are_no_numbers_give_no_score() {
    for flaw in [Flaw::NotANumber, Flaw::ShortLogits] {
        let mut toy = ToyRunner::new(Abilities::ALL);
        toy.flaw = Some(flaw);
        assert_eq!(refused(&mut toy, &[pair(&[1], &[2, 1])]), ScoreError::NotANumber { pair: 0 });
    }
}

#[test]
fn a_model_for_embeddings_scores_nothing() {
    let mut runner = load(request(source(LLAMA), |options| options.role = LoadRole::Embedding)).unwrap();
    let error = score(&mut runner, &[1, 2], &[3]).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&RunnerError::NoHead));
}

fn text(edit: impl FnOnce(String) -> String) -> Text {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry-tests/models/tinytales");
    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(model.join(name), copy.path().join(name)).unwrap();
    }
    let config = edit(std::fs::read_to_string(model.join("tokenizer_config.json")).unwrap());
    std::fs::write(copy.path().join("tokenizer_config.json"), config).unwrap();
    Text::from_source(&Source::open(copy.path()).unwrap(), &[]).unwrap()
}

fn without_bos(config: String) -> String {
    config.replace("\"add_bos_token\": true", "\"add_bos_token\": false")
}

#[test]
fn texts_are_divided_where_the_context_s_own_tokens_end() {
    let text = text(|config| config);
    let encode = |content: &str| text.tokenizer.encode(content, kinfolk_text::EncodeOptions::default()).unwrap();
    let of = |context, continuation| ScorePair::of_text(&text, context, continuation).unwrap();
    let found = of("Once upon", " a time");
    assert_eq!(found, pair(&[&[0], &encode("Once upon")[..]].concat(), &encode(" a time")));
    assert_eq!(of("Once upon ", "a time"), found, "the space goes with the word after it");
    assert_eq!(of("Once upon \n", " a time").continuation, encode(" \n a time"));
    assert_eq!(of("", "Once"), pair(&[0], &encode("Once")));
    assert_eq!(of(" ", "Once"), pair(&[0], &encode(" Once")));
    // A word that is cut in two is encoded as the whole, and divided after as many tokens as its first half has.
    let whole = encode("Once upon");
    let cut = of("Once up", "on");
    assert_eq!([&cut.context[1..], &cut.continuation].concat(), whole);
    // A control token that was typed is text.
    assert!(!of("Once", "<|im_end|>").continuation.contains(&2));
}

#[test]
fn an_empty_context_is_bos_even_of_a_model_that_puts_none_before_texts() {
    let text = text(without_bos);
    assert_eq!(ScorePair::of_text(&text, "", "Once").unwrap().context, [0]);
    let found = ScorePair::of_text(&text, "Once", " upon").unwrap();
    assert_eq!(found.context, text.tokenizer.encode("Once", kinfolk_text::EncodeOptions::default()).unwrap());
}

fn of_windows(runner: &mut dyn LmRunner, tokens: &[u32], window: usize, stride: usize, prefix: &[u32]) -> Perplexity {
    let options = PerplexityOptions {
        window: Some(window),
        stride: Some(stride),
        prefix: Some(prefix.to_vec()),
        ..PerplexityOptions::default()
    };
    let mut seen = Vec::new();
    let found = perplexity(runner, tokens, &options, &mut |done, all| seen.push((done, all))).unwrap();
    assert_eq!(seen.last(), Some(&(found.n_tokens, found.n_tokens)));
    assert_eq!(seen.len(), found.n_windows);
    assert!(seen.is_sorted() && seen.iter().all(|(_, all)| *all == found.n_tokens));
    found
}

#[test]
fn perplexity_is_e_to_the_mean_negative_log_likelihood_with_its_standard_error() {
    let mut runner = runner(LLAMA);
    let all = tokens(50);
    let log_probs = score(&mut runner, &all[..1], &all[1..]).unwrap().log_probs;
    let nll: Vec<f64> = log_probs.iter().map(|p| -f64::from(*p)).collect();
    let mean = nll.iter().sum::<f64>() / 49.0;
    let variance = nll.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 49.0;
    let found = of_windows(&mut runner, &all, 64, 32, &[]);
    assert_eq!((found.n_tokens, found.n_windows), (49, 1));
    assert!((found.mean_nll - mean).abs() < 1e-6 && (found.perplexity - mean.exp()).abs() < 1e-3);
    let expected = mean.exp() * (variance / 48.0).sqrt();
    assert!((found.std_error.unwrap() / expected - 1.0).abs() < 1e-4, "{:?} {expected}", found.std_error);

    let one = of_windows(&mut runner, &all[..2], 64, 32, &[]);
    assert_eq!((one.n_tokens, one.std_error), (1, None));
}

#[test]
fn windows_score_each_token_after_the_context_they_hold() {
    let mut toy = ToyRunner::new(Abilities::ALL);
    let all: Vec<u32> = (0..23).map(|i| i * 7 % 16).collect();
    let prefix = [9];
    let mut nll = 0.0;
    // Windows of 6, the prefix and 5 tokens, every 3.
    for i in 0..23usize {
        let start = if i < 5 { 0 } else { (i - 2) / 3 * 3 };
        let context = [&prefix, &all[start..i]].concat();
        assert!(context.len() < 6);
        nll -= probability(&toy.logits(&context), all[i]).ln();
    }
    let found = of_windows(&mut toy, &all, 6, 3, &prefix);
    assert_eq!((found.n_tokens, found.n_windows), (23, 7));
    assert!((found.mean_nll - nll / 23.0).abs() < 1e-6, "{} {}", found.mean_nll, nll / 23.0);
}

#[test]
fn a_text_s_windows_begin_with_bos() {
    let source = Source::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry-tests/models/tinytales"));
    let mut runner = load(request(source.unwrap(), |_| {})).unwrap();
    let text = text(|config| config);
    let story = "Once upon a time, there was a little fox who had a lantern.";
    let pair = ScorePair::of_text(&text, "", story).unwrap();
    let whole = score(&mut runner, &pair.context, &pair.continuation).unwrap();
    let found = text_perplexity(&mut runner, &text, story, &PerplexityOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(found.n_tokens, pair.continuation.len());
    assert!((found.mean_nll + whole.total / found.n_tokens as f64).abs() < 1e-9);
    let nonsense = "lantern fox a had who little. there, a was time upon Once";
    let other = text_perplexity(&mut runner, &text, nonsense, &PerplexityOptions::default(), &mut |_, _| {}).unwrap();
    assert!(found.perplexity < 100.0 && other.perplexity > 10.0 * found.perplexity, "{found:?} {other:?}");
}
