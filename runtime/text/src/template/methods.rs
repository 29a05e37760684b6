//! Methods of Python's text, lists and mappings.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Tuple, ValueKind, from_args},
};

use super::filters;

/// The widest text that padding makes, in characters.
const MAX_WIDTH: usize = 256;

/// Calls a method that the engine does not know.
pub(super) fn call(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    if value.kind() == ValueKind::Seq && matches!(name, "index" | "count") {
        return look_for(value, name, arguments);
    }
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
        "swapcase" => Ok(Value::from(text.chars().map(swapped).collect::<String>())),
        "ljust" | "rjust" | "center" => {
            let (width, blank): (usize, Option<char>) = from_args(arguments)?;
            let (width, blank) = (width.min(MAX_WIDTH), blank.unwrap_or(' '));
            let blanks = blank.to_string().repeat(width.saturating_sub(text.chars().count()));
            Ok(Value::from(match name {
                "ljust" => format!("{text}{blanks}"),
                "rjust" => format!("{blanks}{text}"),
                _ => filters::centered(text, width, blank),
            }))
        }
        "expandtabs" => {
            let (size,): (Option<usize>,) = from_args(arguments)?;
            Ok(Value::from(with_tabs_expanded(text, size.unwrap_or(8).min(MAX_WIDTH))))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let sign = if text.starts_with(['-', '+']) { 1 } else { 0 };
            let zeros = width.min(MAX_WIDTH).saturating_sub(text.chars().count());
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

/// `index(x)` and `count(x)` of a list.
fn look_for(list: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(arguments)?;
    let mut places = list.try_iter()?.enumerate().filter(|(_, item)| *item == wanted).map(|(at, _)| at);
    if name == "count" {
        return Ok(Value::from(places.count()));
    }
    let missing = || Error::new(ErrorKind::InvalidOperation, "the value is not in the list");
    places.next().map(Value::from).ok_or_else(missing)
}

/// A letter in the other case.
fn swapped(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

/// Tabs as blanks up to the next column that `size` divides.
fn with_tabs_expanded(text: &str, size: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = 0usize;
    for c in text.chars() {
        match c {
            '\t' => {
                let n_blanks = column.checked_rem(size).map_or(0, |past| size - past);
                out.extend(std::iter::repeat_n(' ', n_blanks));
                column += n_blanks;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_splits_as_in_python() {
        assert_eq!(split_at_white_space("  a  b c ", usize::MAX, false), ["a", "b", "c"]);
        assert_eq!(split_at_white_space(" a  b c ", 2, false), ["a", "b c"]);
        assert_eq!(split_at_white_space(" a  b c ", 2, true), ["a  b", "c"]);
        assert!(split_at_white_space("  ", 2, true).is_empty());
    }
}
