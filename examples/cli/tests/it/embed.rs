//! Vectors of texts.

use std::{io::Write, process::Stdio};

use crate::kinfolk::{Scratch, command, fixture, kinfolk, tinytales};

fn vectors(shown: &str) -> Vec<Vec<f32>> {
    shown.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect()
}

fn length(vector: &[f32]) -> f32 {
    vector.iter().map(|x| x * x).sum::<f32>().sqrt()
}

#[test]
fn each_text_is_a_line_of_numbers_at_length_one() {
    let shown = vectors(&kinfolk(&["embed", &tinytales(), "A fox.", "A lantern."]).ok());
    assert_eq!(shown.len(), 2);
    assert!(shown.iter().all(|vector| vector.len() == 192 && (length(vector) - 1.0).abs() < 1e-5));
    assert_ne!(shown[0], shown[1]);
    let raw = vectors(&kinfolk(&["embed", &tinytales(), "A fox.", "--no-normalize"]).ok());
    assert!((length(&raw[0]) - 1.0).abs() > 0.1);
    let few = vectors(&kinfolk(&["embed", &tinytales(), "A fox.", "--dimensions", "16"]).ok());
    assert!(few[0].len() == 16 && (length(&few[0]) - 1.0).abs() < 1e-5);
    let mean = vectors(&kinfolk(&["embed", &tinytales(), "A fox.", "--pooling", "mean+last"]).ok());
    assert_eq!(mean[0].len(), 2 * 192);
}

#[test]
fn texts_may_come_one_per_line_from_standard_input() {
    let model = tinytales();
    let mut child = command()
        .args(["embed", &model, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"A fox.\nA lantern.\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let typed = kinfolk(&["embed", &model, "A fox.", "A lantern."]).ok();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), typed);
}

#[test]
fn json_has_the_vectors_and_how_many_tokens_each_is_of() {
    let found = kinfolk(&["embed", &tinytales(), "Once upon a time", "--json"]).json();
    let [entry] = found["embeddings"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!((&entry["n_tokens"], &entry["n_cut_tokens"]), (&5.into(), &0.into()));
    assert_eq!(entry["embedding"].as_array().unwrap().len(), 192);
}

#[test]
fn a_text_that_is_too_long_is_refused_or_cut_with_a_warning() {
    let model = tinytales();
    let line = kinfolk(&["embed", &model, "Once upon a time", "--ctx", "3"]).refusal();
    assert!(line.contains(&format!("`{model}`: text 0: expected at most 3 tokens, found 5")), "{line}");
    let cut = kinfolk(&["embed", &model, "Once upon a time", "--ctx", "3", "--truncate"]);
    assert_eq!(vectors(&cut.ok()), vectors(&kinfolk(&["embed", &model, "Once upon"]).ok()));
    assert!(cut.stderr().contains("warning: text 0: cut at the end by 2 tokens"), "{}", cut.stderr());
}

/// The model inside the command with the files of an embedding model beside its weights.
fn embedding_model(scratch: &Scratch, modules_end: &str) -> String {
    let model = std::path::Path::new(&fixture("llama")).join("../../models/tinytales");
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        scratch.file(&format!("m/{name}"), std::fs::read(model.join(name)).unwrap());
    }
    let modules = format!(
        r#"[{{"path": "", "type": "sentence_transformers.models.Transformer"}},
            {{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}}{modules_end}]"#
    );
    scratch.file("m/modules.json", modules);
    scratch.file("m/1_Pooling/config.json", r#"{"word_embedding_dimension": 192, "pooling_mode_mean_tokens": true}"#);
    scratch.file("m/config_sentence_transformers.json", r#"{"prompts": {"query": "find: ", "title": "title: "}}"#);
    format!("{}/m", scratch.path())
}

#[test]
fn the_checkpoint_s_own_files_say_how_and_options_say_otherwise() {
    let scratch = Scratch::new();
    let model = embedding_model(&scratch, "");
    let of = |args: &[&str]| vectors(&kinfolk(&[&["embed", &model], args].concat()).ok()).remove(0);
    let plain = of(&["a fox"]);
    assert!((length(&plain) - 1.0).abs() > 0.1, "no module normalises");
    assert!((length(&of(&["a fox", "--normalize"])) - 1.0).abs() < 1e-5);
    assert_eq!(of(&["a fox", "--pooling", "mean"]), plain);
    assert_ne!(of(&["a fox", "--pooling", "last"]), plain);
    assert_eq!(of(&["a fox", "--query"]), of(&["find: a fox"]));
    assert_eq!(of(&["a fox", "--prompt", "title"]), of(&["title: a fox"]));
    assert_eq!(of(&["a fox", "--document"]), plain);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let scratch = Scratch::new();
    let model = embedding_model(&scratch, r#", {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}"#);
    let line = kinfolk(&["embed", &model, "a fox"]).refusal();
    assert!(
        line.contains(&model) && line.contains("`modules.json`: module `sentence_transformers.models.Dense`"),
        "{line}"
    );
    let model = embedding_model(&scratch, "");
    let line = kinfolk(&["embed", &model, "a fox", "--prompt", "haiku"]).refusal();
    assert!(line.contains("expected one of [`query`, `title`], found `haiku`"), "{line}");
    let line = kinfolk(&["embed", &model, "a fox", "--dimensions", "193"]).refusal();
    assert!(line.contains("dimensions: expected 1 to 192, found 193"), "{line}");
    for wrong in [
        vec!["--pooling", "median"],
        vec!["--query", "--document"],
        vec!["--normalize", "--no-normalize"],
        vec!["--dimensions", "0"],
    ] {
        assert_eq!(kinfolk(&[&["embed", &model, "a fox"], wrong.as_slice()].concat()).code(), Some(2), "{wrong:?}");
    }
    assert_eq!(kinfolk(&["embed", &model]).code(), Some(2), "no text");
}
