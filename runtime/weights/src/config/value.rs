//! A config value, whichever kind of file it came from.

use gguf_rs_lib::format::MetadataValue;
use serde_json::Value as Json;

use super::json;
use crate::{
    gguf::{GgufMetadata, integer},
    quote::quoted,
};

/// Lists in a config have an entry per layer, expert or frequency; a longer one is no config but a vocabulary.
const MAX_LIST: usize = 1 << 16;

/// A value as the typed readers of a config see it.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'a str),
    List(Vec<Value<'a>>),
    /// Something no typed reader wants, in words.
    Other(String),
}

impl<'a> Value<'a> {
    /// What a JSON value means; `None` for null.
    pub fn from_json(value: &'a Json) -> Option<Value<'a>> {
        Some(match value {
            Json::Null => return None,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value.into()),
                (_, Some(value)) => Value::Int(value.into()),
                _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text),
            Json::Array(items) => {
                let null = || Value::Other("null".into());
                Value::List(items.iter().map(|item| Value::from_json(item).unwrap_or_else(null)).collect())
            }
            Json::Object(object) => match json::saved_float(object) {
                Some(value) => Value::Float(value),
                None => Value::Other("an object".into()),
            },
        })
    }

    /// What GGUF metadata holds under `key`; `None` if it is absent.
    pub fn from_gguf(metadata: &'a GgufMetadata, key: &str) -> Option<Value<'a>> {
        if !metadata.contains(key) {
            return None;
        }
        if let Some(len) = metadata.array_len(key) {
            return Some(list_from_gguf(metadata, key, len));
        }
        if let Ok(Some(text)) = metadata.str(key) {
            return Some(Value::Text(text));
        }
        let value = metadata.value(key);
        let number =
            value.as_ref().and_then(|value| integer(value).map(Value::Int).or(value.as_f64().map(Value::Float)));
        let switch = || value.as_ref().and_then(MetadataValue::as_bool).map(Value::Bool);
        Some(number.or_else(switch).unwrap_or_else(|| Value::Other("a value that cannot be read".into())))
    }

    /// Words for a message.
    pub fn describe(&self) -> String {
        match self {
            Value::Bool(value) => format!("the boolean {value}"),
            Value::Int(value) => format!("the number {value}"),
            Value::Float(value) => format!("the number {value}"),
            Value::Text(text) => format!("the text {}", quoted(text)),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Other(words) => words.clone(),
        }
    }

    /// A count: an integer that fits, or a float that is one (`1e6`). A list of one repeated entry stands for that entry, as files
    /// with a list per layer write it.
    pub fn as_usize(&self) -> Option<usize> {
        match self {
            Value::Int(value) => usize::try_from(*value).ok(),
            // 2^53: beyond it a float no longer names one integer.
            Value::Float(value) if value.fract() == 0.0 && (0.0..=9007199254740992.0).contains(value) => {
                Some(*value as usize)
            }
            Value::List(items) => the_same(items.iter().map(Value::as_usize)),
            _ => None,
        }
    }

    /// A real number that f32 can hold.
    pub fn as_f32(&self) -> Option<f32> {
        let value = match self {
            Value::Int(value) => *value as f64,
            Value::Float(value) => *value,
            _ => return None,
        };
        let narrow = value as f32;
        (narrow.is_finite() || !value.is_finite()).then_some(narrow)
    }
}

fn list_from_gguf<'a>(metadata: &'a GgufMetadata, key: &str, len: usize) -> Value<'a> {
    if len > MAX_LIST {
        return Value::Other(format!("a list of {len}"));
    }
    if let Ok(Some(items)) = metadata.i64s(key) {
        return Value::List(items.into_iter().map(|item| Value::Int(item.into())).collect());
    }
    if let Ok(Some(items)) = metadata.f32s(key) {
        return Value::List(items.into_iter().map(|item| Value::Float(item.into())).collect());
    }
    if let Ok(Some(items)) = metadata.bools(key) {
        return Value::List(items.into_iter().map(Value::Bool).collect());
    }
    match metadata.strs(key) {
        Ok(Some(items)) => Value::List(items.into_iter().map(Value::Text).collect()),
        _ => Value::Other(format!("a list of {len} that cannot be read")),
    }
}

/// The value that every item is, if there is one.
fn the_same<T: PartialEq>(mut items: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = items.next()??;
    items.all(|item| item.as_ref() == Some(&first)).then_some(first)
}
