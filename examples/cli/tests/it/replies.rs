//! What bounds, shapes and speeds up a reply, and conversations.

use std::{io::Write, process::Stdio};

use serde_json::Value;

use crate::kinfolk::{Run, Scratch, command, fixture, kinfolk, tinytales};

/// A greedy continuation of up to 60 tokens.
fn run(more: &[&str]) -> Run {
    let model = tinytales();
    let args = ["run", &model, "Once upon a time", "--raw", "--temperature", "0"];
    let limit = if more.contains(&"--max-tokens") { &[][..] } else { &["--max-tokens", "60"] };
    kinfolk(&[&args[..], limit, more].concat())
}

#[test]
fn a_stop_string_ends_the_reply_before_it() {
    let whole = run(&[]).ok();
    let stop: String = whole.chars().skip(20).take(5).collect();
    let before = whole.split(&stop).next().unwrap();
    assert_eq!(
        run(&["--stop", "never said", "--stop", &stop]).ok().trim_end_matches('\n'),
        before.trim_end_matches('\n')
    );
}

#[test]
fn guesses_do_not_change_the_reply() {
    let plain = run(&[]).ok();
    assert_eq!(run(&["--speculate"]).ok(), plain);
    let guided = run(&["--draft-model", &tinytales(), "--draft-tokens", "3"]);
    assert_eq!(guided.ok(), plain);
    assert!(guided.stderr().contains("100 % of"), "{}", guided.stderr());
    let model = tinytales();
    let args = ["run", &model, "Once upon a time", "--raw", "--seed", "5", "--max-tokens", "60"];
    assert_eq!(kinfolk(&[&args[..], &["--speculate"]].concat()).ok(), kinfolk(&args).ok());
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused() {
    let refusal = run(&["--draft-model", &fixture("llama")]).refusal();
    assert!(refusal.contains("draft model"), "{refusal}");
}

#[test]
fn a_reply_follows_a_schema_a_pattern_or_a_grammar() {
    let files = Scratch::new();
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "age"], "additionalProperties": false}"#;
    let schema = files.file("schema.json", schema);
    let reply: Value = serde_json::from_str(&run(&["--json-schema", &schema, "--max-tokens", "200"]).ok()).unwrap();
    assert!(reply["name"].is_string() && reply["age"].is_u64(), "{reply}");
    let date = run(&["--regex", "[0-9]{4}-[0-9]{2}"]).ok();
    assert!(date.trim().len() == 7 && date.as_bytes()[4] == b'-', "{date}");
    let grammar = files.file("yes.lark", "start: \"yes\" | \"no\"");
    assert!(["yes\n", "no\n"].contains(&run(&["--grammar", &grammar]).ok().as_str()));
    for (option, text) in [("--regex", "("), ("--json-schema", &*files.file("bad.json", "{\"type\": 7}"))] {
        let refusal = run(&[option, text]).refusal();
        assert!(refusal.contains("the reply cannot be constrained"), "{refusal}");
    }
}

#[test]
fn a_session_file_saves_the_prompt_and_belongs_to_its_model() {
    let files = Scratch::new();
    let session = format!("{}/story.session", files.path());
    let first = run(&["--session", &session]);
    let again = run(&["--session", &session]);
    assert_eq!(first.ok(), again.ok());
    assert!(
        !first.stderr().contains("reused") && again.stderr().contains("prompt tokens reused"),
        "{}",
        again.stderr()
    );
    let mut bytes = std::fs::read(&session).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = files.file("damaged.session", &bytes);
    assert!(run(&["--session", &damaged]).refusal().contains("checksum"));
    let other = ["run", &fixture("llama"), "x", "--raw", "--session", &session];
    kinfolk(&other).refusal();
}

#[test]
fn a_full_context_ends_the_reply_or_drops_its_middle() {
    let more = ["--ctx", "32", "--ignore-eos", "--max-tokens", "60"];
    let ended = run(&more);
    let shifted = run(&[&more[..], &["--shift", "4"]].concat());
    assert!(shifted.ok().starts_with(ended.ok().trim_end()), "what came before is the same");
    assert!(shifted.ok().len() > ended.ok().len());
    assert!(shifted.stderr().contains("tokens were dropped"), "{}", shifted.stderr());
}

#[test]
fn a_timeout_keeps_the_text() {
    let timed = run(&["--ignore-eos", "--max-tokens", "100000", "--timeout", "0.3", "--shift", "4"]);
    assert!(timed.ok().len() > 10);
    let wrong = kinfolk(&["run", &tinytales(), "x", "--timeout", "0"]);
    assert_eq!(wrong.code(), Some(2), "{}", wrong.stderr());
}

/// Says lines to `kinfolk chat`, greedily.
fn chat(lines: &str, more: &[&str]) -> (String, String) {
    let model = tinytales();
    let args = [&["chat", &model, "--temperature", "0", "--max-tokens", "12"], more].concat();
    let mut child =
        command().args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{stderr}");
    (stdout, stderr)
}

#[test]
fn a_conversation_goes_on_where_it_was() {
    let (answers, stderr) = chat("Tell me a story.\nAnother one.\n", &[]);
    assert!(!answers.trim().is_empty());
    assert!(stderr.contains("prompt tokens reused"), "the second turn reuses the first: {stderr}");
    let (undone, _) = chat("Tell me a story.\n/undo\nTell me a story.\n/quit\nnot read\n", &[]);
    let (once, _) = chat("Tell me a story.", &[]);
    assert_eq!(undone, once.repeat(2));
}
