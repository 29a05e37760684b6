//! Filters and tests that behave as Jinja2's do, where the engine's own do not.

use minijinja::{
    Error, ErrorKind, State, Value,
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

/// `int(value, default=0, base=10)`: the whole part of a number or of text that spells one.
pub(super) fn int(value: &Value, default: Option<Value>, base: Option<u32>) -> Value {
    let base = base.filter(|base| (2..=36).contains(base)).unwrap_or(10);
    let whole = i64::try_from(value.clone()).ok().or_else(|| {
        let spelled = |text: &str| i64::from_str_radix(without_prefix(text, base), base).ok();
        let text = value.as_str().map(str::trim);
        text.and_then(spelled).or_else(|| number(value).map(|number| number as i64))
    });
    whole.map(Value::from).or(default).unwrap_or_else(|| Value::from(0))
}

/// Digits without the prefix of their base.
fn without_prefix(text: &str, base: u32) -> &str {
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => return text,
    };
    match text.get(..2) {
        Some(start) if start.eq_ignore_ascii_case(prefix) => &text[2..],
        _ => text,
    }
}

/// `center(value, width=80)`.
pub(super) fn center(value: &Value, width: Option<usize>) -> Result<String, Error> {
    Ok(centered(&python::str(value)?, width.unwrap_or(80), ' '))
}

/// `str.center`: of an odd number of blanks the left side gets one more if the width is odd.
pub(super) fn centered(text: &str, width: usize, blank: char) -> String {
    let width = width.min(MAX_INDENT);
    let n_missing = width.saturating_sub(text.chars().count());
    let left = n_missing / 2 + (n_missing & width & 1);
    let blanks = |n: usize| blank.to_string().repeat(n);
    format!("{}{text}{}", blanks(left), blanks(n_missing - left))
}

/// `random(value)`: any member.
pub(super) fn random(value: &Value) -> Result<Value, Error> {
    let members: Vec<Value> = value.try_iter()?.collect();
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), members.len());
    let nth = random.checked_rem(members.len() as u64).and_then(|nth| usize::try_from(nth).ok());
    Ok(nth.and_then(|nth| members.get(nth).cloned()).unwrap_or(Value::UNDEFINED))
}

/// `striptags(value)`: without comments and tags, white space as single blanks, entities as what they stand for.
pub(super) fn striptags(value: &Value) -> Result<String, Error> {
    let mut text = python::str(value)?;
    for (open, close) in [("<!--", "-->"), ("<", ">")] {
        let mut kept = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, tag)) = rest.split_once(open) {
            let Some((_, after)) = tag.split_once(close) else { break };
            kept.push_str(before);
            rest = after;
        }
        kept.push_str(rest);
        text = kept;
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    Ok(entities.iter().fold(text, |text, (entity, c)| text.replace(entity, c)))
}

/// `truncate(s, length=255, killwords=False, end='...', leeway=5)`.
pub(super) fn truncate(value: &Value, positional: &[Value], keywords: Kwargs) -> Result<String, Error> {
    let argument = |nth: usize, name: &str| match positional.get(nth) {
        Some(value) => Ok(Some(value.clone())),
        None => keywords.get::<Option<Value>>(name),
    };
    let size = |value: Option<Value>, default: usize| value.map_or(Ok(default), usize::try_from);
    let length = size(argument(0, "length")?, 255)?;
    let cuts_words = argument(1, "killwords")?.is_some_and(|value| value.is_true());
    let end = argument(2, "end")?.map_or_else(|| Ok("...".to_owned()), |end| python::str(&end))?;
    let leeway = size(argument(3, "leeway")?.filter(|value| !value.is_none()), 5)?;
    keywords.assert_all_used()?;

    let text = python::str(value)?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let n_kept = length.checked_sub(end.chars().count()).ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, format!("expected a length that `{end}` fits into, found {length}"))
    })?;
    let kept: String = text.chars().take(n_kept).collect();
    let kept = if cuts_words { &kept } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(words, _)| words) };
    Ok(format!("{kept}{end}"))
}

/// `wordcount(s)`: runs of letters, digits and underscores.
pub(super) fn wordcount(value: &Value) -> Result<usize, Error> {
    let text = python::str(value)?;
    Ok(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count())
}

/// Whether a value can be called: macros and functions can, data cannot.
pub(super) fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain
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
