//! The environment transformers gives chat templates, in minijinja.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, Tuple, ValueKind, from_args},
};

use super::{
    Clock,
    python::{self, JsonStyle},
};

/// Steps a template may take, of which one also pays for 64 bytes it makes. Templates are files from strangers.
const FUEL: u64 = 1 << 22;

/// Steps it may take on top of that for each message and tool. The longest of the known templates takes some hundreds.
const FUEL_PER_ITEM: u64 = 1 << 12;

/// The widest indentation, in characters.
const MAX_INDENT: usize = 256;

/// What a template passed to `raise_exception`, as the cause of the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// Builds the environment. Templates are added to it; the clock is per rendering ([`prepare`]).
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("Jinja's own delimiters are valid"));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, _, value| python::write_str(out, value));
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| python::str(value));
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    for name in ["e", "escape", "forceescape"] {
        environment.add_filter(name, escape);
    }
    environment.add_filter("indent", indent);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// Sets what is particular to one rendering: the clock that `strftime_now` reads, and how long it may take.
pub(super) fn prepare(environment: &mut Environment<'static>, clock: Clock, n_items: usize) {
    environment.set_fuel(Some(FUEL.saturating_add(FUEL_PER_ITEM.saturating_mul(n_items as u64))));
    environment.add_function("strftime_now", move |format: &str| strftime(&clock, format));
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime(clock: &Clock, format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let mut out = String::new();
    write!(out, "{}", clock.now().format(format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("`{format}` is no format of dates and times")))?;
    Ok(out)
}

/// Python's: anything that can be gone through, which text, mappings and even what is undefined can.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable | ValueKind::Undefined
    )
}

/// `indent(s, width=4, first=False, blank=False)`. A line end at the end stays, unlike in the engine's own filter.
fn indent(state: &State, value: &Value, positional: &[Value], keywords: Kwargs) -> Result<String, Error> {
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
fn tojson(state: &State, value: &Value, positional: &[Value], keywords: Kwargs) -> Result<Value, Error> {
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
fn default(value: &Value, positional: &[Value], keywords: Kwargs) -> Result<Value, Error> {
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
fn int(value: &Value, default: Option<Value>) -> Value {
    let whole = i64::try_from(value.clone()).ok().or_else(|| {
        let text = value.as_str().map(str::trim);
        text.and_then(|text| text.parse().ok()).or_else(|| number(value).map(|number| number as i64))
    });
    whole.map(Value::from).or(default).unwrap_or_else(|| Value::from(0))
}

/// `float(value, default=0.0)`.
fn float(value: &Value, default: Option<Value>) -> Value {
    number(value).map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0))
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    }
}

/// `escape`, with the entities of MarkupSafe.
fn escape(value: &Value) -> Result<String, Error> {
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

/// Methods of Python's text, lists and mappings.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments);
    };
    match name {
        "split" | "rsplit" => split(text, name == "rsplit", arguments),
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "index" => {
            let (part,): (&str,) = from_args(arguments)?;
            let at = text.find(part).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            Ok(Value::from(text[..at].chars().count()))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let sign = if text.starts_with(['-', '+']) { 1 } else { 0 };
            let zeros = width.min(MAX_INDENT).saturating_sub(text.chars().count());
            Ok(Value::from(format!("{}{}{}", &text[..sign], "0".repeat(zeros), &text[sign..])))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            let (before, after) = text.split_once(separator).unwrap_or((text, ""));
            let found = if before.len() < text.len() { separator } else { "" };
            Ok(Value::from(Tuple::from([before, found, after].map(Value::from))))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            let (before, after) = text.rsplit_once(separator).unwrap_or(("", text));
            let found = if after.len() < text.len() { separator } else { "" };
            Ok(Value::from(Tuple::from([before, found, after].map(Value::from))))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

/// `split(sep=None, maxsplit=-1)`, from either end.
fn split(text: &str, from_the_end: bool, arguments: &[Value]) -> Result<Value, Error> {
    let (separator, max_splits, keywords): (Option<Value>, Option<Value>, Kwargs) = from_args(arguments)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => keywords.get::<Option<Value>>("sep")?,
    };
    let max_splits = match max_splits {
        Some(max_splits) => Some(max_splits),
        None => keywords.get::<Option<Value>>("maxsplit")?,
    };
    keywords.assert_all_used()?;
    let max_parts = match max_splits.map(i64::try_from).transpose()? {
        Some(n) if n >= 0 => usize::try_from(n).unwrap_or(usize::MAX).saturating_add(1),
        _ => usize::MAX,
    };
    let parts: Vec<&str> = match separator.filter(|separator| !separator.is_none()) {
        Some(separator) => {
            let Some(separator) = separator.as_str().filter(|separator| !separator.is_empty()) else {
                return Err(Error::new(ErrorKind::InvalidOperation, "a separator must be text and not empty"));
            };
            if from_the_end {
                let mut parts: Vec<&str> = text.rsplitn(max_parts, separator).collect();
                parts.reverse();
                parts
            } else {
                text.splitn(max_parts, separator).collect()
            }
        }
        None => split_at_white_space(text, max_parts, from_the_end),
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn split_at_white_space(text: &str, max_parts: usize, from_the_end: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let cut =
            if from_the_end { rest.rsplit_once(char::is_whitespace) } else { rest.split_once(char::is_whitespace) };
        match cut {
            Some((before, after)) if parts.len() + 1 < max_parts => {
                let (part, others) = if from_the_end { (after, before) } else { (before, after) };
                parts.push(part);
                rest = others.trim();
            }
            _ => {
                parts.push(rest);
                break;
            }
        }
    }
    if from_the_end {
        parts.reverse();
    }
    parts
}

/// `{% generation %}` marks what the assistant wrote, for training; here it only passes its body through. The engine does
/// not know the tag, so it becomes a block that does nothing else.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%").into_iter().chain(rest.find("{#")).chain(rest.find("{{")).min() {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let ending = match &tag[..2] {
            "{%" => "%}",
            "{#" => "#}",
            _ => "}}",
        };
        let len = tag_len(tag, ending);
        let (tag, after) = tag.split_at(len);
        match renamed(tag) {
            Some(renamed) => out.push_str(&renamed),
            None => out.push_str(tag),
        }
        rest = after;
        if tag_word(tag) == Some("raw") {
            let end = end_of_raw(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// Length of the tag at the start of `tag`, its end not looked for inside quoted text (comments have none).
fn tag_len(tag: &str, ending: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in tag.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if tag[at..].starts_with(ending) => return at + ending.len(),
            None if ending != "#}" && (c == '"' || c == '\'') => quote = Some(c),
            None => {}
        }
    }
    tag.len()
}

/// The first word of a block tag.
fn tag_word(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start();
    Some(inside.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default())
}

fn renamed(tag: &str) -> Option<String> {
    match tag_word(tag)? {
        "generation" => Some(tag.replacen("generation", "if true", 1)),
        "endgeneration" => Some(tag.replacen("endgeneration", "endif", 1)),
        _ => None,
    }
}

/// Where the tag that ends a raw block starts.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        if tag_word(&text[from + at..]) == Some("endraw") {
            return from + at;
        }
        from += at + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    // D7
    #[test]
    fn generation_tags_become_blocks_that_do_nothing() {
        for (source, expected) in [
            ("a{% generation %}b{%- endgeneration -%}c", "a{% if true %}b{%- endif -%}c"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{% raw %}{% generation %}{% endraw %}", "{% raw %}{% generation %}{% endraw %}"),
            ("{% if generation %}{% endif %}", "{% if generation %}{% endif %}"),
            ("{{ 'it\\'s %}' }}{% generation", "{{ 'it\\'s %}' }}{% if true"),
        ] {
            assert_eq!(without_generation_tags(source), expected);
        }
    }

    #[test]
    fn white_space_splits_as_in_python() {
        assert_eq!(split_at_white_space("  a  b c ", usize::MAX, false), ["a", "b", "c"]);
        assert_eq!(split_at_white_space(" a  b c ", 2, false), ["a", "b c"]);
        assert_eq!(split_at_white_space(" a  b c ", 2, true), ["a  b", "c"]);
        assert!(split_at_white_space("  ", 2, true).is_empty());
    }
}
