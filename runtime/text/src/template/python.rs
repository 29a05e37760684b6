//! Values as Python prints them: `str`, `repr` and `json.dumps`.
//!
//! Templates were written for Jinja2 in Python and models trained on what it printed, so `1e-07`, `True` and `{'a': 'b'}`
//! are part of the format.

use minijinja::{
    Error, ErrorKind, Value,
    value::{Tuple, ValueKind},
};

use super::generator::{self, is_generator};

/// Deeper values are refused: JSON that reaches a template is shallower, and printing recurses.
const MAX_DEPTH: usize = 160;

/// The longest text a value that is not text may print as, in bytes. Values can share parts, so that a small one prints
/// without end.
const MAX_TEXT_BYTES: usize = 1 << 24;

/// A text that refuses to grow beyond [`MAX_TEXT_BYTES`].
#[derive(Default)]
struct Text(String);

/// `str(value)`. Undefined prints as nothing, as in Jinja2.
pub(super) fn str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        _ => repr(value),
    }
}

/// `repr(value)`.
pub(super) fn repr(value: &Value) -> Result<String, Error> {
    let mut out = Text::default();
    write_repr(&mut out, value, 0)?;
    Ok(out.0)
}

fn write(out: &mut Text, text: &str) -> Result<(), Error> {
    if out.0.len() + text.len() > MAX_TEXT_BYTES {
        let message = format!("expected values that print as at most {MAX_TEXT_BYTES} bytes, found a longer one");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    out.0.push_str(text);
    Ok(())
}

fn write_repr(out: &mut Text, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => write(out, "Undefined"),
        ValueKind::None => write(out, "None"),
        ValueKind::Bool => write(out, if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write(out, &number(value, ["nan", "inf", "-inf"])?),
        ValueKind::String => write(out, &quoted(value.as_str().unwrap_or_default())),
        ValueKind::Map => {
            write(out, "{")?;
            for (nth, key) in value.try_iter()?.enumerate() {
                if nth > 0 {
                    write(out, ", ")?;
                }
                write_repr(out, &key, depth + 1)?;
                write(out, ": ")?;
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            write(out, "}")
        }
        ValueKind::Iterable if is_generator(value) => write(out, generator::PRINTED),
        ValueKind::Seq | ValueKind::Iterable => {
            let is_tuple = value.downcast_object_ref::<Tuple>().is_some();
            write(out, if is_tuple { "(" } else { "[" })?;
            let mut n_items = 0;
            for item in value.try_iter()? {
                if n_items > 0 {
                    write(out, ", ")?;
                }
                write_repr(out, &item, depth + 1)?;
                n_items += 1;
            }
            write(
                out,
                match (is_tuple, n_items) {
                    (true, 1) => ",)",
                    (true, _) => ")",
                    (false, _) => "]",
                },
            )
        }
        _ => write(out, &value.to_string()),
    }
}

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("expected values nested at most {MAX_DEPTH} deep, found more"))
}

/// A number; `names` are those of not-a-number and the infinities.
fn number(value: &Value, names: [&str; 3]) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let number = f64::try_from(value.clone())?;
    let [nan, infinite, minus_infinite] = names;
    Ok(match number {
        _ if number.is_nan() => nan.to_owned(),
        f64::INFINITY => infinite.to_owned(),
        f64::NEG_INFINITY => minus_infinite.to_owned(),
        _ => float(number),
    })
}

/// `repr` of a finite float: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16.
fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => {
            let mut positional = number.to_string();
            if !positional.contains('.') {
                positional.push_str(".0");
            }
            positional
        }
    }
}

/// `repr` of a text.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let escaped = match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                };
                out.push_str(&escaped);
            }
        }
    }
    out.push(quote);
    out
}

/// Nearly `str.isprintable`: neither control nor format character, nor a separator other than the space.
fn is_printable(c: char) -> bool {
    let format_character = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}');
    !c.is_control() && (c == ' ' || !c.is_whitespace()) && !format_character
}

/// How `json.dumps` lays a value out.
#[derive(Debug)]
pub(super) struct JsonStyle {
    /// What one level of nesting is indented by; `None`: all on one line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
}

/// `json.dumps(value)`.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = Text::default();
    write_json(&mut out, value, style, 0)?;
    Ok(out.0)
}

fn write_json(out: &mut Text, value: &Value, style: &JsonStyle, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => write(out, "null")?,
        ValueKind::Bool => write(out, if value.is_true() { "true" } else { "false" })?,
        ValueKind::Number => write(out, &number(value, ["NaN", "Infinity", "-Infinity"])?)?,
        ValueKind::String => write(out, &json_text(value.as_str().unwrap_or_default(), style.ensure_ascii))?,
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write(out, "{")?;
            for (nth, key) in keys.iter().enumerate() {
                start_item(out, style, nth, depth + 1)?;
                write(out, &json_text(&json_key(key)?, style.ensure_ascii))?;
                write(out, &style.key_separator)?;
                write_json(out, &value.get_item(key)?, style, depth + 1)?;
            }
            end_items(out, style, keys.len(), depth)?;
            write(out, "}")?;
        }
        // What can only be gone through, such as the result of `map`, is not JSON in Python either.
        ValueKind::Seq => {
            write(out, "[")?;
            let mut n_items = 0;
            for item in value.try_iter()? {
                start_item(out, style, n_items, depth + 1)?;
                write_json(out, &item, style, depth + 1)?;
                n_items += 1;
            }
            end_items(out, style, n_items, depth)?;
            write(out, "]")?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a value of kind {kind} is not JSON serializable"),
            ));
        }
    }
    Ok(())
}

fn start_item(out: &mut Text, style: &JsonStyle, nth: usize, depth: usize) -> Result<(), Error> {
    if nth > 0 {
        write(out, &style.item_separator)?;
    }
    new_line(out, style, depth)
}

fn end_items(out: &mut Text, style: &JsonStyle, n_items: usize, depth: usize) -> Result<(), Error> {
    if n_items > 0 { new_line(out, style, depth) } else { Ok(()) }
}

fn new_line(out: &mut Text, style: &JsonStyle, depth: usize) -> Result<(), Error> {
    let Some(indent) = &style.indent else { return Ok(()) };
    write(out, "\n")?;
    (0..depth).try_for_each(|_| write(out, indent))
}

/// A key as `json.dumps` writes it: keys that are no text are turned into their JSON.
fn json_key(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number => number(key, ["NaN", "Infinity", "-Infinity"])?,
        kind => {
            let message = format!("a key must be text, a number, a switch or nothing, found {kind}");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    })
}

/// A text in quotes, as `json.dumps` writes it.
fn json_text(text: &str, ensure_ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || (ensure_ascii && u32::from(c) > 0x7e) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: JsonStyle = JsonStyle {
        indent: None,
        item_separator: String::new(),
        key_separator: String::new(),
        ensure_ascii: false,
        sort_keys: false,
    };

    fn style(indent: Option<&str>) -> JsonStyle {
        let item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
        JsonStyle { indent: indent.map(str::to_owned), item_separator, key_separator: ": ".to_owned(), ..PLAIN }
    }

    #[test]
    fn floats_print_as_python_prints_them() {
        for (number, expected) in [
            (1e-7, "1e-07"),
            (1e-4, "0.0001"),
            (2.0, "2.0"),
            (-0.0, "-0.0"),
            (1e22, "1e+22"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456_789.123, "123456789.123"),
            (1.5e300, "1.5e+300"),
        ] {
            assert_eq!(float(number), expected);
        }
    }

    #[test]
    fn containers_print_as_python_prints_them() {
        let value = Value::from_pairs([
            ("a", Value::from(vec![Value::from(true), Value::from(()), Value::from(1.0)])),
            ("it's", Value::from("say \"x\"\n")),
        ]);
        assert_eq!(str(&value).unwrap(), r#"{'a': [True, None, 1.0], "it's": 'say "x"\n'}"#);
        assert_eq!(str(&Value::UNDEFINED).unwrap(), "");
    }

    // D1, D2: order kept, nothing escaped for HTML, Python's separators.
    #[test]
    fn json_keeps_order_and_escapes_nothing_but_json() {
        let value = Value::from_pairs([("b", Value::from("a > b & c's é")), ("a", Value::from(vec![1, 2]))]);
        assert_eq!(json(&value, &style(None)).unwrap(), r#"{"b": "a > b & c's é", "a": [1, 2]}"#);
        let indented = "{\n  \"b\": \"a > b & c's é\",\n  \"a\": [\n    1,\n    2\n  ]\n}";
        assert_eq!(json(&value, &style(Some("  "))).unwrap(), indented);
        assert_eq!(json(&Value::from(Vec::<Value>::new()), &style(Some("  "))).unwrap(), "[]");
    }

    #[test]
    fn a_value_nested_too_deep_is_an_error() {
        let mut value = Value::from(1);
        for _ in 0..=MAX_DEPTH + 1 {
            value = Value::from(vec![value]);
        }
        assert!(str(&value).is_err() && json(&value, &style(None)).is_err());
    }
}
