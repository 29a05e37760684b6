//! Scores of whole models are those of the reference's logits.

use std::{path::Path, sync::Arc};

use kinfolk::{
    LmRunner, LoadOptions, LoadRequest, Registry,
    decoder::Source,
    scoring::{PerplexityOptions, ScoreOptions, ScorePair, perplexity, score, score_all, text_perplexity},
    text::Text,
    verify::Reference,
};
use kinfolk_registry_tests::{in_repository, report_not_run};

fn load(path: &Path) -> Box<dyn LmRunner> {
    let source = Arc::new(Source::open(path).unwrap());
    let family = Registry::linked().claim(&source).unwrap().family;
    (family.load)(LoadRequest::new(source, LoadOptions::default())).unwrap()
}

/// The logarithm of the softmax, as a textbook has it.
fn log_softmax(logits: &[f32], token: u32) -> f64 {
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    f64::from(logits[token as usize]) - sum.ln()
}

#[track_caller]
fn check(fixture: &str, weights: &str) {
    let folder = in_repository("fixtures").join(fixture);
    let mut runner = load(&folder.join(weights));
    let reference = Reference::open(folder.join("reference.safetensors")).unwrap();
    let ids = &reference.prompt;
    let expected: Vec<f64> = (1..ids.len()).map(|i| log_softmax(&reference.prompt_rows[i - 1], ids[i])).collect();
    for n_context in [1, 17, ids.len() - 1] {
        let found = score(&mut runner, &ids[..n_context], &ids[n_context..]).unwrap();
        let expected = &expected[n_context - 1..];
        assert_eq!(found.log_probs.len(), expected.len());
        for (found, expected) in found.log_probs.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{fixture}/{weights}: {found} {expected}");
        }
        assert!((found.total - expected.iter().sum::<f64>()).abs() < 1e-3, "{fixture}/{weights}");
    }
    let found = perplexity(&mut runner, ids, &PerplexityOptions::default(), &mut |_, _| {}).unwrap();
    let mean_nll = -expected.iter().sum::<f64>() / expected.len() as f64;
    assert!((found.mean_nll - mean_nll).abs() < 1e-4, "{fixture}/{weights}");
}

#[test]
fn scores_are_the_log_softmax_of_the_reference_logits() {
    check("llama", "model.safetensors");
    check("llama", "model.gguf");
    check("qwen3", "model.safetensors");
    check("qwen3", "model.gguf");
}

#[test]
fn the_perplexity_of_smollm2_is_e_to_the_mean_of_its_scores() {
    let path = std::env::home_dir().unwrap().join(".cache/kinfolk-test-models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        assert!(std::env::var_os("KINFOLK_REQUIRE_MODELS").is_none(), "`{}` must be there", path.display());
        return report_not_run("perplexity", &path.display().to_string());
    }
    let text = Text::from_source(&Source::open(&path).unwrap(), &[]).unwrap();
    let mut runner = load(&path);
    let content = "The capital of France is Paris, and the capital of Italy is Rome.";
    let whole = text_perplexity(&mut runner, &text, content, &PerplexityOptions::default(), &mut |_, _| {}).unwrap();

    let tokens = text.tokenizer.encode(content, Default::default()).unwrap();
    let prefix = text.tokenizer.prefix();
    let all = [prefix, &tokens].concat();
    let n_context = prefix.len().max(1);
    let sum = score(&mut runner, &all[..n_context], &all[n_context..]).unwrap().total;
    assert_eq!(whole.n_tokens, all.len() - n_context);
    assert!((whole.perplexity - (-sum / whole.n_tokens as f64).exp()).abs() < 1e-6 * whole.perplexity);
    // A model of English.
    assert!((2.0..40.0).contains(&whole.perplexity), "{whole:?}");

    let pairs = [" Paris", " Rome"].map(|city| ScorePair::of_text(&text, "The capital of France is", city).unwrap());
    let scores = score_all(&mut runner, &pairs, &ScoreOptions::default()).unwrap();
    assert!(scores[0].greedy && !scores[1].greedy && scores[0].total > scores[1].total + 1.0, "{scores:?}");
}
