//! Chat templates against transformers.

use chrono::NaiveDateTime;
use kinfolk_text::{ChatTemplate, Clock, RenderOptions, TextError, TokenizerConfig};
use serde_json::{Map, Value, json};

use crate::shared;

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

/// Runs the cases of one file; returns how many are equal, and what is wrong with the others.
fn run(reference: &Value) -> (usize, Vec<String>) {
    let now = NaiveDateTime::parse_from_str(reference["now"].as_str().unwrap(), "%Y-%m-%dT%H:%M:%S").unwrap();
    let template = ChatTemplate::new(reference["template"].as_str().unwrap(), &TokenizerConfig::default()).unwrap();
    let (mut equal, mut wrong) = (0, Vec::new());
    for case in reference["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        match outcome(&template, case, Clock::At(now)) {
            Ok(()) => equal += 1,
            Err(difference) => wrong.push(format!("{id}: {difference}")),
        }
    }
    (equal, wrong)
}

#[test]
fn copied_templates_render_as_in_transformers() {
    for name in ["Qwen-Qwen3-0.6B", "google-gemma-2-2b-it"] {
        let (equal, wrong) = run(&shared::json(shared::data(&format!("{name}.chat.json"))));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(equal > 40, "{name}: {equal} equal");
    }
}

#[test]
fn templates_render_as_in_transformers() {
    let Some(folder) = shared::folder("textref/chat/public") else { return };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut equal, mut wrong) = (0, Vec::new());
    for file in files {
        let (equal_here, wrong_here) = run(&shared::json(&file));
        equal += equal_here;
        wrong.extend(wrong_here);
    }
    assert!(wrong.is_empty(), "{equal} equal, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(equal > 2000, "{equal} equal");
}

/// The conversation of a case without the differences that rendering evens out: arguments as text or as an object, silence as
/// null, empty or nothing, and the names of reasoning.
fn evened_out(variables: &Map<String, Value>) -> Value {
    let mut variables = variables.clone();
    for message in variables["messages"].as_array_mut().unwrap() {
        let message = message.as_object_mut().unwrap();
        let silent = message.get("content").is_none_or(|content| content.is_null() || content == "");
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(arguments) = call.get_mut("function").and_then(|function| function.get_mut("arguments"))
                && let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
            {
                *arguments = object;
            }
        }
        if silent && message.contains_key("tool_calls") {
            message.remove("content");
        }
        message.remove("thinking");
    }
    Value::Object(variables)
}

/// Whether a host's rendering mends what the reference spoils: parts printed as Python prints a list or left out, arguments as
/// text inside JSON, null printed as a word, calls left out.
fn is_better(case: &Value, expected: &str, found: &str) -> bool {
    let scenario = case["scenario"].as_str().unwrap();
    let calls =
        || case["vars"]["messages"].as_array().unwrap().iter().filter_map(|message| message["tool_calls"].as_array());
    let writes_calls =
        |text: &str| calls().flatten().all(|call| text.contains(call["function"]["name"].as_str().unwrap()));
    let spoils = |text: &str| {
        let parts = scenario.starts_with("parts_") && (text.contains("'text'") || !text.contains("part"));
        let parts = parts || scenario.starts_with("parts_") && text.contains("\"type\": \"text\"");
        let null = scenario.starts_with("call_content_null") && ["None", "null"].iter().any(|word| text.contains(word));
        let arguments = scenario.ends_with("_string")
            && (text.contains("\"{\\\"") || text.contains("{{\"") || text.contains(">json "));
        parts || null || arguments || !writes_calls(text)
    };
    // Reka writes objects in ASCII and text as it is.
    let escapes = case["id"] == "Reka-Edge/args_all_types_string" && found.contains("\\u2014");
    escapes || spoils(expected) && !spoils(found)
}

/// Whether a prompt tells the model of the tools: their descriptions are nowhere else in a conversation.
fn describes_a_tool(variables: &Map<String, Value>, prompt: &str) -> bool {
    let tools = variables["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["description"].as_str()).any(|text| prompt.contains(text))
}

/// Messages in the form templates agree on render as the reference renders them. In another form they render as the reference
/// renders one of those that mean the same, and parts, where a template prints them as Python prints a list, are text.
#[test]
fn rendering_as_a_host_does_equals_the_reference() {
    let Some(folder) = shared::folder("textref/chat/public") else { return };
    let (mut equal, mut wrong) = (0, Vec::new());
    for file in std::fs::read_dir(folder).unwrap() {
        let reference = shared::json(file.unwrap().path());
        let now = NaiveDateTime::parse_from_str(reference["now"].as_str().unwrap(), "%Y-%m-%dT%H:%M:%S").unwrap();
        let template = ChatTemplate::new(reference["template"].as_str().unwrap(), &TokenizerConfig::default()).unwrap();
        let cases = reference["cases"].as_array().unwrap();
        for case in cases {
            let variables = case["vars"].as_object().unwrap();
            let Some(expected) = case["expected"].as_str() else { continue };
            // A host always says whether there are tools.
            if !variables.contains_key("tools") {
                continue;
            }
            let prefill = case["continue_final_message"] == true;
            let found = render_by_options(&template, variables, prefill, Clock::At(now));
            let meaning = evened_out(variables);
            let same = |other: &&Value| evened_out(other["vars"].as_object().unwrap()) == meaning;
            match found {
                Ok(found) if found == expected => equal += 1,
                Ok(found) if cases.iter().filter(same).any(|other| other["expected"] == found) => {}
                Ok(found) if is_better(case, expected, &found) => {}
                Err(TextError::NoToolSupport { .. }) if !describes_a_tool(variables, expected) => {}
                found => wrong.push(format!("{}: expected {expected:?}\n   found {found:?}", case["id"])),
            }
        }
    }
    assert!(wrong.is_empty(), "{equal} equal, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(equal >= 1550, "{equal} equal");
}

/// Pieces of templates with what Jinja2 3.1 makes of them in the environment of transformers.
#[test]
fn snippets_print_as_in_python() {
    let data = shared::json(shared::data("jinja.json"));
    let mut wrong = Vec::new();
    for case in data["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let found = ChatTemplate::new(source, &TokenizerConfig::default()).and_then(|template| {
            template.render_variables("default", data["variables"].as_object().unwrap(), Clock::Local)
        });
        match (case["expected"].as_str(), found) {
            (Some(expected), Ok(found)) if found == expected => {}
            (None, Err(_)) if case["lenient_expected"].is_null() => {}
            (None, Ok(found)) if case["lenient_expected"] == found => {}
            (expected, found) => {
                let expected = expected.unwrap_or_else(|| case["error"].as_str().unwrap());
                wrong.push(format!("{source}\n  expected {expected:?}\n  found    {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[track_caller]
fn check(source: &str, messages: Value, options: &RenderOptions, expected: &str) {
    let template = ChatTemplate::new(source, &TokenizerConfig::default()).unwrap();
    assert_eq!(template.render(messages.as_array().unwrap(), options).unwrap(), expected, "{source}");
}

#[track_caller]
fn refuse(source: &str, messages: Value, options: &RenderOptions) -> TextError {
    let template = ChatTemplate::new(source, &TokenizerConfig::default()).unwrap();
    template.render(messages.as_array().unwrap(), options).expect_err(source)
}

fn with_tools(tools: Value) -> RenderOptions {
    let mut options = RenderOptions::default();
    options.tools = Some(tools.as_array().unwrap().clone());
    options
}

// D1, D2, D4: tools keep their order, are not escaped for HTML, and `tojson` is there.
#[test]
fn tools_are_written_as_json_dumps_writes_them() {
    let tools = json!([{"pattern": "a > b & c's", "include": {"z": 1, "a": "é"}}]);
    let expected = r#"[{"pattern": "a > b & c's", "include": {"z": 1, "a": "é"}}]"#;
    check("{{ tools | tojson }}", json!([]), &with_tools(tools), expected);
}

// D7
#[test]
fn generation_blocks_pass_their_body_through() {
    let source = "{% for m in messages %}\n{% generation %}\n{{ m.content }}\n{% endgeneration %}\n{% endfor %}\n";
    check(source, json!([{"role": "assistant", "content": "hi"}]), &RenderOptions::default(), "hi\n");
}

// D9: undefined stays undefined, null is defined, and a mapping is true if it has members.
#[test]
fn definedness_and_truth_survive_an_alias() {
    let source = "{% if tools is defined %}{% set t = tools %}{% endif %}{% if t %}yes{% else %}no{% endif %}\
        {% if nothing is defined %}defined{% endif %}{% if variable %}full{% endif %}";
    let mut options = with_tools(json!([{"a": 1}]));
    check(source, json!([]), &options, "yes");
    options.tools = None;
    options.variables.insert("variable".to_owned(), json!({"k": null}));
    check(source, json!([]), &options, "nofull");
}

const CALL_AND_REPLY: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content + '' }}\
    {% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}]{% endfor %}";

// D11, D12: a call without content is a message with empty content, whether the content is null or absent.
#[test]
fn a_tool_call_without_content_is_kept_with_empty_content() {
    let call = json!([{"type": "function", "function": {"name": "f", "arguments": {}}}]);
    for assistant in [
        json!({"role": "assistant", "content": null, "tool_calls": call}),
        json!({"role": "assistant", "tool_calls": call}),
    ] {
        let messages = json!([assistant, {"role": "tool", "content": "12:00"}]);
        check(CALL_AND_REPLY, messages, &RenderOptions::default(), "[assistant:(f)][tool:12:00]");
    }
}

// H16: tools that the template would leave out are refused, not dropped.
#[test]
fn tools_for_a_template_without_a_place_for_them_are_refused() {
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let messages = json!([{"role": "user", "content": "x"}]);
    let error = refuse(source, messages.clone(), &with_tools(json!([{"type": "function"}])));
    assert!(matches!(error, TextError::NoToolSupport { .. }), "{error}");
    check(source, messages, &with_tools(json!([])), "x");
}

// D14: what the template says reaches the caller as the template said it.
#[test]
fn a_template_refuses_in_its_own_words() {
    let source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}";
    let messages = json!([{"role": "system", "content": "x"}]);
    match refuse(source, messages, &RenderOptions::default()) {
        TextError::TemplateRaised { message } => assert_eq!(message, "System role not supported"),
        other => panic!("{other}"),
    }
}

// D16: arguments as text and as an object, for templates that want the one or the other.
#[test]
fn arguments_are_what_the_template_takes() {
    let takes_objects = "{% for m in messages %}{% for c in m.tool_calls or [] %}\
        {% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}";
    let takes_text = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}";
    let prints =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}{% endfor %}";
    let dumps = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    for arguments in [json!({"a": 1}), json!("{\"a\": 1}")] {
        let messages =
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]);
        let options = RenderOptions::default();
        check(takes_objects, messages.clone(), &options, "a=1");
        check(takes_text, messages.clone(), &options, r#"<{"a": 1}>"#);
        check(prints, messages.clone(), &options, r#"{"a": 1}"#);
        check(dumps, messages, &options, r#"{"a": 1}"#);
    }
}

// D17: arguments that are no JSON are passed on as they are.
#[test]
fn damaged_arguments_do_not_fail_the_request() {
    let source = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let damaged = r#"{"a": "unterminated"#;
    let messages = json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": damaged}}]}]);
    check(source, messages, &RenderOptions::default(), r#""{\"a\": \"unterminated""#);
}

#[test]
fn parts_are_joined_for_templates_that_want_text() {
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    let wants_text = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let takes_parts = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
        {% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}";
    check(wants_text, parts.clone(), &RenderOptions::default(), "a\nb");
    check(takes_parts, parts, &RenderOptions::default(), "ab");
    let image = json!([{"role": "user", "content": [{"type": "image"}]}]);
    assert!(matches!(refuse(wants_text, image, &RenderOptions::default()), TextError::Conversation { .. }));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let mut options = RenderOptions::default();
    options.continue_final_message = true;
    let source = "{% for m in messages %}{{ m.content }}!{% endfor %}";
    check(source, json!([{"role": "assistant", "content": "So "}]), &options, "So ");
    let refused = |messages: Value, options: &RenderOptions| {
        assert!(matches!(refuse(source, messages, options), TextError::Conversation { .. }));
    };
    refused(json!([]), &options);
    refused(json!([{"role": "assistant"}]), &options);
    refused(json!(["text"]), &RenderOptions::default());
    options.add_generation_prompt = true;
    refused(json!([{"role": "assistant", "content": "So "}]), &options);
    options = RenderOptions::default();
    options.template = Some("rag".to_owned());
    refused(json!([]), &options);
}

#[test]
fn a_template_that_never_ends_or_grows_without_bound_is_stopped() {
    let messages = json!([]);
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{{ 'x' * 100000000000 }}",
        "{{ 'abc' | indent(100000000000) | length }}{{ 'x\n' * 100000000 | indent(200) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=['x' * 9999]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=['x' * 9999]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | string }}",
        "{% set ns = namespace(l=['x' * 9999]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l ~ 1 }}",
        "{% set ns = namespace(l=['x' * 9999]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ '%s' % ns.l }}",
        "{% set ns = namespace(l=['x' * 9999]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
    ] {
        let error = refuse(source, messages.clone(), &RenderOptions::default());
        assert!(matches!(error, TextError::Template { .. }), "{source}: {error}");
    }
}
