//! Reading `config.json`: JSON, plus what Python's writer leaves in it.

use serde_json::{Map, Value};

use crate::quote::{one_line, quoted};

/// Reads the text of an object. Bare `NaN`, `Infinity` and `-Infinity` are accepted, since Python writes them.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.trim_start_matches('\u{feff}');
    // Nearly every file is plain JSON, so the copy is made only when that fails.
    let parsed = serde_json::from_str(text).or_else(|e| match quote_non_finite(text) {
        Some(quoted) => serde_json::from_str(&quoted),
        None => Err(e),
    });
    match parsed {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(describe(&other)),
        Err(e) => Err(format!("text that is not JSON: {}", one_line(&e.to_string()))),
    }
}

/// Writes bare non-finite numbers the way transformers 5 does, as `{"__float__": "Infinity"}`. `None` if there are none.
fn quote_non_finite(text: &str) -> Option<String> {
    let mut quoted = String::new();
    let mut done = 0;
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if in_string {
            (in_string, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        in_string = c == '"';
        let literal = ["-Infinity", "Infinity", "NaN"].into_iter().find(|literal| text[at..].starts_with(literal));
        if let Some(literal) = literal.filter(|_| at >= done) {
            quoted.push_str(&text[done..at]);
            quoted.push_str(&format!(r#"{{"__float__":"{literal}"}}"#));
            done = at + literal.len();
        }
    }
    (done > 0).then(|| quoted + &text[done..])
}

/// The number in `{"__float__": "Infinity"}`, as transformers 5 writes what JSON cannot.
pub(super) fn saved_float(object: &Map<String, Value>) -> Option<f64> {
    match object.get("__float__")?.as_str()? {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ => None,
    }
}

/// Follows a dotted path of object keys. `None` if a step is absent; a null at the end is found.
pub(super) fn lookup<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => object.get(path),
        Some((first, rest)) => lookup(object.get(first)?.as_object()?, rest),
    }
}

/// Words for a value in a message.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(text) => format!("the text {}", quoted(text)),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".into(),
    }
}
