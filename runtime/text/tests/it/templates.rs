//! Chat templates against transformers.

use chrono::NaiveDateTime;
use kinfolk_text::{ChatTemplate, Clock, RenderOptions, TextError, TokenizerConfig};
use serde_json::{Map, Value};

use crate::shared;

/// Cases rendered as transformers renders them. May only go up.
const FLOOR: usize = 2026;

/// Cases that render here and fail in the reference. Going through null is an error in Python and nothing in minijinja.
const GO_THROUGH_NULL: &[&str] = &[
    "CohereForAI-c4ai-command-r-plus-tool_use/single_user",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use/documents",
    "LFM2.5-8B-A1B/call_content_null",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use/single_user",
];

/// The template writes `tools | map(…) | tojson`. `map` makes a generator in Python, which is no JSON, and a list here: all
/// its cases with tools fail in the reference, and render here as llama.cpp renders them.
const WRITES_A_GENERATOR: &str = "llama-cpp-deepseek-r1/";

fn is_known_to_differ(id: &str, case: &Value) -> bool {
    GO_THROUGH_NULL.contains(&id)
        || id.starts_with(WRITES_A_GENERATOR)
            && case["error"]["message"].as_str().is_some_and(|message| message.contains("generator"))
}

/// What a case gives, and what it should.
fn outcome(template: &ChatTemplate, case: &Value, clock: Clock) -> Result<(), String> {
    let variables = case["vars"].as_object().unwrap();
    let rendered = if case["continue_final_message"] == true {
        render_by_options(template, variables, true, clock)
    } else {
        template.render_variables("default", variables, clock)
    };
    match (rendered, case["expected"].as_str(), &case["error"]) {
        (Ok(found), Some(expected), _) if found == expected => Ok(()),
        (Ok(found), Some(expected), _) => Err(format!("expected {expected:?}\n   found {found:?}")),
        (Err(error), Some(_), _) => Err(format!("fails: {error}")),
        (Err(TextError::TemplateRaised { message }), None, error) if error["kind"] == "raise_exception" => {
            if error["message"].as_str() == Some(&message) {
                Ok(())
            } else {
                Err(format!("expected {error}, found {message:?}"))
            }
        }
        (Err(_), None, error) if error["kind"] != "raise_exception" => Ok(()),
        (Ok(found), None, error) if error["kind"] == "security" => match case["lenient_expected"].as_str() {
            Some(expected) if expected == found => Ok(()),
            _ => Err(format!("expected the error {error} or leniency, found {found:?}")),
        },
        (found, None, error) => Err(format!("expected the error {error}, found {found:?}")),
    }
}

/// Renders the way a host does.
fn render_by_options(
    template: &ChatTemplate,
    variables: &Map<String, Value>,
    continue_final_message: bool,
    clock: Clock,
) -> Result<String, TextError> {
    let mut options = RenderOptions::default();
    options.continue_final_message = continue_final_message;
    options.clock = clock;
    for (name, value) in variables {
        match (name.as_str(), value) {
            ("messages", _) | ("tools" | "documents", Value::Null) => {}
            ("add_generation_prompt", value) => options.add_generation_prompt = value == true,
            ("tools", Value::Array(tools)) => options.tools = Some(tools.clone()),
            ("documents", Value::Array(documents)) => options.documents = Some(documents.clone()),
            (name, value) => {
                options.variables.insert(name.to_owned(), value.clone());
            }
        }
    }
    template.render(variables["messages"].as_array().unwrap(), &options)
}

#[test]
fn templates_render_as_in_transformers() {
    let Some(folder) = shared::folder("textref/chat/public") else { return };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut equal, mut n_different, mut unexpected) = (0, 0, Vec::new());
    for file in files {
        let reference = shared::json(&file);
        let now = NaiveDateTime::parse_from_str(reference["now"].as_str().unwrap(), "%Y-%m-%dT%H:%M:%S").unwrap();
        let template = ChatTemplate::new(reference["template"].as_str().unwrap(), &TokenizerConfig::default());
        for case in reference["cases"].as_array().unwrap() {
            let result = match &template {
                Ok(template) => outcome(template, case, Clock::At(now)),
                Err(error) => Err(error.to_string()),
            };
            match result {
                Ok(()) => equal += 1,
                Err(difference) => {
                    let id = case["id"].as_str().unwrap();
                    n_different += 1;
                    if !is_known_to_differ(id, case) {
                        unexpected.push(format!("{id}: {difference}"));
                    }
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{equal} equal, {n_different} different:\n{}", unexpected.join("\n"));
    assert!(equal >= FLOOR, "{equal} cases are equal, {FLOOR} were");
}
