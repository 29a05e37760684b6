//! Filters and tests that behave as Jinja2's do, where the engine's own do not.

use minijinja::{
    Error, State, Value,
    value::{Kwargs, ValueKind},
};

use super::{
    generator::is_generator,
    python::{self, JsonStyle},
};

/// The widest indentation, in characters.
const MAX_INDENT: usize = 256;

/// Python's: anything with a length that can be gone through.
pub(super) fn is_sequence(value: &Value) -> bool {
    is_iterable(value) && !is_generator(value)
}

/// Python's: anything that can be gone through, which text, mappings and even what is undefined can.
pub(super) fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable | ValueKind::Undefined
    )
}

/// `indent(s, width=4, first=False, blank=False)`. A line end at the end stays, unlike in the engine's own filter.
pub(super) fn indent(state: &State, value: &Value, positional: &[Value], keywords: Kwargs) -> Result<String, Error> {
    let argument = |nth: usize, name: &str| match positional.get(nth) {
        Some(value) => Ok(Some(value.clone())),
        None => keywords.get::<Option<Value>>(name),
    };
    let width = match argument(0, "width")? {
        None => " ".repeat(4),
        Some(text) if text.kind() == ValueKind::String => python::str(&text)?,
        Some(width) => " ".repeat(usize::try_from(width)?.min(MAX_INDENT)),
    };
    let first = argument(1, "first")?.is_some_and(|value| value.is_true());
    let blank = argument(2, "blank")?.is_some_and(|value| value.is_true());
    keywords.assert_all_used()?;

    let text = python::str(value)?;
    state.consume_fuel((text.lines().count().saturating_mul(width.len()) / 64) as u64)?;
    let mut out = String::with_capacity(text.len());
    for (nth, line) in text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).enumerate() {
        if nth > 0 {
            out.push('\n');
        }
        if if nth == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&width);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(state: &State, value: &Value, positional: &[Value], keywords: Kwargs) -> Result<Value, Error> {
    let argument = |nth: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(nth) {
            Some(value) => Some(value.clone()),
            None => keywords.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument(1, "indent")? {
        None => None,
        Some(text) if text.kind() == ValueKind::String => text.as_str().map(str::to_owned),
        Some(width) => Some(" ".repeat(usize::try_from(width)?.min(MAX_INDENT))),
    };
    let (item_separator, key_separator) = match argument(2, "separators")? {
        Some(pair) => (python::str(&pair.get_item_by_index(0)?)?, python::str(&pair.get_item_by_index(1)?)?),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    keywords.assert_all_used()?;

    let json = python::json(value, &JsonStyle { indent, item_separator, key_separator, ensure_ascii, sort_keys })?;
    state.consume_fuel((json.len() / 64) as u64)?;
    Ok(Value::from(json))
}

/// `default(value, default_value='', boolean=False)`.
pub(super) fn default(value: &Value, positional: &[Value], keywords: Kwargs) -> Result<Value, Error> {
    let argument = |nth: usize, name: &str| match positional.get(nth) {
        Some(value) => Ok(Some(value.clone())),
        None => keywords.get::<Option<Value>>(name),
    };
    let other = argument(0, "default_value")?.unwrap_or_else(|| Value::from(""));
    let falsy_too = argument(1, "boolean")?.is_some_and(|value| value.is_true());
    keywords.assert_all_used()?;
    let is_missing = value.is_undefined() || (falsy_too && !value.is_true());
    Ok(if is_missing { other } else { value.clone() })
}

/// `int(value, default=0)`: the whole part of a number or of text that spells one.
pub(super) fn int(value: &Value, default: Option<Value>) -> Value {
    let whole = i64::try_from(value.clone()).ok().or_else(|| {
        let text = value.as_str().map(str::trim);
        text.and_then(|text| text.parse().ok()).or_else(|| number(value).map(|number| number as i64))
    });
    whole.map(Value::from).or(default).unwrap_or_else(|| Value::from(0))
}

/// `float(value, default=0.0)`.
pub(super) fn float(value: &Value, default: Option<Value>) -> Value {
    number(value).map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0))
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    }
}

/// `escape`, with the entities of MarkupSafe.
pub(super) fn escape(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for c in python::str(value)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(out)
}
