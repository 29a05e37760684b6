//! Messages in the one form templates agree on.

use serde_json::{Map, Value as Json, json};

use crate::{Result, TextError};

/// What a template can take, found by trying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// Content in parts, instead of text.
    parts: bool,
    /// How it wants a message that calls tools.
    call: CallForm,
}

/// How a template wants a message that calls tools and says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallForm {
    /// Arguments as an object, instead of text.
    object_arguments: bool,
    /// The content as null, instead of empty.
    null_content: bool,
}

/// From what most templates take to what few do.
const CALL_FORMS: [CallForm; 4] = [
    CallForm { object_arguments: true, null_content: false },
    CallForm { object_arguments: false, null_content: false },
    CallForm { object_arguments: true, null_content: true },
    CallForm { object_arguments: false, null_content: true },
];

impl Abilities {
    /// Tries a template. `render` takes messages and tools and answers `None` where the template fails.
    pub(super) fn probe(render: impl Fn(Vec<Json>, Option<Vec<Json>>) -> Option<String>) -> Abilities {
        const TEXT: &str = "kinfolk probes";
        let user = |content: Json| json!({"role": "user", "content": content});
        let text = render(vec![user(json!(TEXT))], None);
        let parts = text.is_some() && render(vec![user(json!([{"type": "text", "text": TEXT}]))], None) == text;

        let content = |text: &str| if parts { json!([{"type": "text", "text": text}]) } else { json!(text) };
        let conversation = |form: CallForm| {
            let arguments =
                if form.object_arguments { json!({PROBED_KEY: 1}) } else { json!(format!("{{\"{PROBED_KEY}\": 1}}")) };
            let silent = if form.null_content { Json::Null } else { json!("") };
            vec![
                user(content(TEXT)),
                json!({"role": "assistant", "content": silent, "tool_calls":
                    [{"id": "aaaaaaaaa", "type": "function", "function": {"name": "probe", "arguments": arguments}}]}),
                json!({"role": "tool", "tool_call_id": "aaaaaaaaa", "name": "probe", "content": content("x")}),
            ]
        };
        let tool = json!({"type": "function", "function":
            {"name": "probe", "description": "probes", "parameters": {"type": "object",
            "properties": {"x": {"type": "string", "description": "probed"}}, "required": ["x"]}}});
        let takes = |form: &CallForm| {
            render(conversation(*form), Some(vec![tool.clone()])).is_some_and(|rendered| writes_the_key(&rendered))
        };
        let call = CALL_FORMS.into_iter().find(takes).unwrap_or(CALL_FORMS[0]);
        Abilities { parts, call }
    }
}

/// An argument no tool has.
const PROBED_KEY: &str = "kinfolk_key";

/// Whether the arguments of a call were written as a model writes them: not left out, not printed as Python prints a mapping
/// (the template took an object for text), and not as text inside JSON (it took text for an object).
fn writes_the_key(rendered: &str) -> bool {
    rendered.contains(PROBED_KEY)
        && !rendered.contains(&format!("'{PROBED_KEY}'"))
        && !rendered.contains(&format!("\\\"{PROBED_KEY}"))
}

/// Brings messages into form; what that means is told at [`ChatTemplate::render`](super::ChatTemplate::render).
///
/// # Errors
/// `Conversation` if a message is not an object, or holds parts that are not text and the template takes only text.
pub(super) fn normalise(messages: &[Json], abilities: &Abilities) -> Result<Vec<Json>> {
    messages
        .iter()
        .map(|message| match message {
            Json::Object(message) => normalise_message(message, abilities).map(Json::Object),
            other => Err(TextError::Conversation { reason: format!("expected messages as objects, found {other}") }),
        })
        .collect()
}

fn normalise_message(message: &Map<String, Json>, abilities: &Abilities) -> Result<Map<String, Json>> {
    let calls_tools = message.get("tool_calls").and_then(Json::as_array).is_some_and(|calls| !calls.is_empty());
    let mut normal = Map::new();
    for (key, value) in message {
        match (key.as_str(), value) {
            ("content", content) if calls_tools && is_silent(content) => {
                normal.insert(key.clone(), abilities.call.silence());
            }
            (_, Json::Null) => {}
            ("content", Json::Array(parts)) if !abilities.parts => {
                normal.insert(key.clone(), Json::String(joined(parts)?));
            }
            ("tool_calls", Json::Array(calls)) => {
                let calls = calls.iter().map(|call| normalise_call(call, abilities)).collect();
                normal.insert(key.clone(), Json::Array(calls));
            }
            (_, value) => {
                normal.insert(key.clone(), value.clone());
            }
        }
    }
    if calls_tools && !normal.contains_key("content") {
        normal.insert("content".to_owned(), abilities.call.silence());
    }
    let reasoning = ["reasoning_content", "reasoning", "thinking"].iter().find_map(|key| normal.get(*key)).cloned();
    if let Some(reasoning) = reasoning.filter(Json::is_string) {
        for key in ["thinking", "reasoning_content"] {
            normal.entry(key).or_insert_with(|| reasoning.clone());
        }
    }
    Ok(normal)
}

fn is_silent(content: &Json) -> bool {
    content.is_null() || content.as_str() == Some("")
}

impl CallForm {
    fn silence(self) -> Json {
        if self.null_content { Json::Null } else { json!("") }
    }
}

/// Text parts as one text.
fn joined(parts: &[Json]) -> Result<String> {
    let text = |part: &Json| -> Result<String> {
        let text = part.as_str().or_else(|| part.get("text")?.as_str());
        text.map(str::to_owned).ok_or_else(|| TextError::Conversation {
            reason: format!(
                "the model takes text only: expected text parts, found one of type {}",
                part.get("type").unwrap_or(&Json::Null)
            ),
        })
    };
    Ok(parts.iter().map(text).collect::<Result<Vec<_>>>()?.join("\n"))
}

fn normalise_call(call: &Json, abilities: &Abilities) -> Json {
    let mut call = call.clone();
    let arguments = match call.get_mut("function") {
        Some(function) => function.get_mut("arguments"),
        None => call.get_mut("arguments"),
    };
    if let Some(arguments) = arguments {
        let replaced = match &*arguments {
            Json::String(text) if abilities.call.object_arguments => {
                serde_json::from_str::<Map<String, Json>>(text).ok().map(Json::Object)
            }
            object @ Json::Object(_) if !abilities.call.object_arguments => {
                Some(Json::String(super::to_python_json(object)))
            }
            _ => None,
        };
        if let Some(replaced) = replaced {
            *arguments = replaced;
        }
    }
    call
}
