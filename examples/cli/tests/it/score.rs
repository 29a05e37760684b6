//! How likely texts are.

use crate::kinfolk::{Scratch, fixture, kinfolk, tinytales};

#[test]
fn a_score_is_the_sum_over_the_continuation_s_tokens() {
    let args = ["score", &tinytales(), "--context", "Once upon a", "--continuation", " time", "--json"];
    let found = kinfolk(&args).json();
    let [token] = found["tokens"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!((&token["piece"], &found["greedy"]), (&" time".into(), &true.into()));
    let (total, log_prob) = (found["total"].as_f64().unwrap(), token["log_prob"].as_f64().unwrap());
    assert!((total - log_prob).abs() < 1e-6 && total < 0.0 && total > -0.7, "{found}");

    let shown = kinfolk(&["score", &tinytales(), "--continuation", "Once upon a time"]).ok();
    assert_eq!(shown.lines().count(), 1 + 4 + 1, "{shown}");
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("log-probability -") && last.contains("| tokens 4 |"), "{last}");
}

#[test]
fn the_perplexity_of_a_file_is_e_to_the_mean_of_its_scores() {
    let scratch = Scratch::new();
    let story = "Once upon a time, there was a fox who had a lantern.";
    let file = scratch.file("story.txt", story);
    let found = kinfolk(&["score", &tinytales(), "--file", &file, "--json"]).json();
    let score = kinfolk(&["score", &tinytales(), "--continuation", story, "--json"]).json();
    let n_tokens = score["tokens"].as_array().unwrap().len();
    assert_eq!((&found["n_tokens"], &found["n_windows"]), (&n_tokens.into(), &1.into()));
    let expected = (-score["total"].as_f64().unwrap() / n_tokens as f64).exp();
    let perplexity = found["perplexity"].as_f64().unwrap();
    assert!((perplexity / expected - 1.0).abs() < 1e-6, "{found}");
    let shown = kinfolk(&["score", &tinytales(), "--file", &file]).ok();
    assert!(shown.starts_with(&format!("perplexity {perplexity:.4} ± ")), "{shown}");
    let windows = kinfolk(&["score", &tinytales(), "--file", &file, "--window", "8", "--stride", "4", "--json"]).json();
    assert_eq!(windows["n_tokens"], found["n_tokens"]);
    assert!(windows["n_windows"].as_u64().unwrap() > 1);
    assert_ne!(windows["perplexity"], found["perplexity"], "later tokens see less of the text");
}

#[test]
fn what_cannot_be_scored_is_refused_with_what_was_expected() {
    let model = tinytales();
    let scratch = Scratch::new();
    let file = scratch.file("story.txt", "Once upon a time");
    for (args, part) in [
        (vec!["--continuation", ""], "expected at least one token of continuation, found none"),
        (
            vec!["--context", "Once upon a time", "--continuation", " a fox", "--ctx", "3"],
            "expected at most 4 tokens, found 8",
        ),
        (vec!["--file", "/no/such/story.txt"], "`/no/such/story.txt`"),
        (vec!["--file", &scratch.file("empty.txt", "")], "expected at least 1 tokens, found 0"),
        (vec!["--file", &file, "--window", "1"], "window: expected 2 to 1024 tokens, found 1"),
        (vec!["--file", &file, "--window", "8", "--stride", "8"], "stride: expected 1 to 7 tokens, found 8"),
    ] {
        let line = kinfolk(&[&["score", &model], args.as_slice()].concat()).refusal();
        assert!(line.contains(part), "`{part}` in: {line}");
    }
    for wrong in [
        vec![],
        vec!["--context", "a"],
        vec!["--continuation", "a", "--file", &file],
        vec!["--continuation", "a", "--window", "8"],
        vec!["--continuation", "a", "--stride", "8"],
        vec!["--window", "8"],
        vec!["--file", &file, "--context", "a"],
    ] {
        assert_eq!(kinfolk(&[&["score", &model], wrong.as_slice()].concat()).code(), Some(2), "{wrong:?}");
    }
    let line = kinfolk(&["score", &fixture("llama"), "--continuation", "a"]).refusal();
    assert!(line.contains("has no tokenizer"), "{line}");
}
