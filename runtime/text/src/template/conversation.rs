//! Messages in the one form templates agree on.

use serde_json::{Map, Value as Json, json};

use crate::{Result, TextError};

/// What a template can take, found by trying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// Content in parts, instead of text.
    pub(super) parts: bool,
    /// Arguments of a tool call as an object, instead of text.
    pub(super) object_arguments: bool,
}

impl Abilities {
    /// Tries a template. `render` answers `None` where the template fails.
    pub(super) fn probe(render: impl Fn(Vec<Json>) -> Option<String>) -> Abilities {
        const TEXT: &str = "kinfolk probes";
        let user = |content: Json| json!({"role": "user", "content": content});
        let text = render(vec![user(json!(TEXT))]);
        let parts = text.is_some() && render(vec![user(json!([{"type": "text", "text": TEXT}]))]) == text;

        let call = |arguments: Json| {
            json!({"role": "assistant", "content": "", "tool_calls":
                [{"id": "aaaaaaaaa", "type": "function", "function": {"name": "probe", "arguments": arguments}}]})
        };
        let content = |text: &str| if parts { json!([{"type": "text", "text": text}]) } else { json!(text) };
        let reply = json!({"role": "tool", "tool_call_id": "aaaaaaaaa", "name": "probe", "content": content("x")});
        let with = |arguments: Json| render(vec![user(content(TEXT)), call(arguments), reply.clone()]);
        let object_arguments = match with(json!({"kinfolk_key": "x"})) {
            // A mapping printed as Python prints it means that the template took it for text.
            Some(rendered) => !rendered.contains("'kinfolk_key'"),
            None => with(json!("{\"kinfolk_key\": \"x\"}")).is_none(),
        };
        Abilities { parts, object_arguments }
    }
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
            ("content", Json::Null) if calls_tools => {
                normal.insert(key.clone(), json!(""));
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
        normal.insert("content".to_owned(), json!(""));
    }
    let reasoning = ["reasoning_content", "reasoning", "thinking"].iter().find_map(|key| normal.get(*key)).cloned();
    if let Some(reasoning) = reasoning.filter(Json::is_string) {
        for key in ["thinking", "reasoning_content"] {
            normal.entry(key).or_insert_with(|| reasoning.clone());
        }
    }
    Ok(normal)
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
            Json::String(text) if abilities.object_arguments => {
                serde_json::from_str::<Map<String, Json>>(text).ok().map(Json::Object)
            }
            object @ Json::Object(_) if !abilities.object_arguments => {
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
