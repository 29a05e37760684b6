//! The one reader of model configuration: `config.json` and GGUF metadata behind the same typed questions.
//!
//! Keys are asked for by their canonical Hugging Face name. Other spellings of `config.json`, nesting under `text_config` and its
//! like, and the names GGUF gives the same quantity are one table, in [`keys`].

mod error;
mod facts;
mod json;
mod keys;
mod value;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Map, Value as Json};

use self::{
    keys::{KeyTable, MODEL, PLAIN, ROPE, ROPE_SECTIONS, TEXT_SECTIONS},
    value::Value,
};
use crate::GgufMetadata;

pub use self::error::ConfigError;

/// Which kind of file a config was read from. Some conventions of published checkpoints differ between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// Hugging Face `config.json`.
    Json,
    /// GGUF metadata.
    Gguf,
}

/// Typed access to a model's configuration. Clones share it.
#[derive(Clone)]
pub struct Config {
    path: PathBuf,
    view: View,
    keys: &'static KeyTable,
}

/// The object that keys are looked up in.
#[derive(Clone)]
enum View {
    Json(Arc<JsonView>),
    Gguf { metadata: GgufMetadata, architecture: Arc<str> },
}

/// Objects of `config.json`, the more specific one first, each with the path that messages put before its keys.
struct JsonView {
    objects: Vec<(String, Map<String, Json>)>,
}

type Result<T> = std::result::Result<T, ConfigError>;

impl Config {
    /// Reads `config.json` text. `path` is what messages name.
    ///
    /// # Errors
    /// `NotAnObject` if the text is none.
    pub fn from_json(path: impl Into<PathBuf>, text: &str) -> Result<Config> {
        let path = path.into();
        let outer = match json::parse(text) {
            Ok(outer) => outer,
            Err(found) => return Err(ConfigError::NotAnObject { path, found }),
        };
        let mut objects = Vec::new();
        for section in TEXT_SECTIONS {
            if let Some(Json::Object(inner)) = json::lookup(&outer, section) {
                objects.push((format!("{section}."), inner.clone()));
                break;
            }
        }
        objects.push((String::new(), outer));
        Ok(Config { path, view: View::Json(Arc::new(JsonView { objects })), keys: &MODEL })
    }

    /// Wraps GGUF metadata. `path` is what messages name.
    pub fn from_gguf(path: impl Into<PathBuf>, metadata: GgufMetadata) -> Config {
        let architecture = metadata.str(ARCHITECTURE).ok().flatten().unwrap_or_default().into();
        Config { path: path.into(), view: View::Gguf { metadata, architecture }, keys: &MODEL }
    }

    /// Which kind of file this is.
    pub fn kind(&self) -> ConfigKind {
        match self.view {
            View::Json(_) => ConfigKind::Json,
            View::Gguf { .. } => ConfigKind::Gguf,
        }
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every name the checkpoint gives its architecture, most specific first: `model_type` (outer, then nested) and class names of
    /// `config.json`, `general.architecture` of GGUF. Empty strings are dropped.
    pub fn architectures(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.view {
            View::Gguf { architecture, .. } => vec![architecture.to_string()],
            View::Json(view) => {
                let outermost_first = || view.objects.iter().rev().map(|(_, object)| object);
                let model_types = outermost_first().filter_map(|object| object.get("model_type"));
                let classes = outermost_first().filter_map(|object| object.get("architectures")?.as_array()).flatten();
                model_types.chain(classes).filter_map(Json::as_str).map(str::to_owned).collect()
            }
        };
        names.retain(|name| !name.is_empty());
        names
    }

    /// Whether the key is there and not null.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// A required count. Integers of any width that fits are accepted, floats that are integers too (`1e6`), and a list of one
    /// repeated entry.
    ///
    /// # Errors
    /// `Missing`; `Mistyped` if the value is no count.
    pub fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.missing(key))
    }

    /// A count that may be absent or null.
    ///
    /// # Errors
    /// `Mistyped`; `Unsupported` if a GGUF file has heads whose keys and values differ in length and `head_dim` is asked for.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        let count = self.read(key, "an integer of at least 0", |value| value.as_usize())?;
        match (count, self.kind()) {
            (Some(head_dim), ConfigKind::Gguf) if key == "head_dim" => self.check_value_length(head_dim),
            _ => Ok(count),
        }
    }

    /// A required count for one layer of `n_layers`: a scalar, or one entry of a per-layer list (whose length is checked).
    ///
    /// # Errors
    /// `Missing`; `Mistyped` if the value is no count or the list has another length.
    pub fn layer_usize(&self, key: &str, layer: usize, n_layers: usize) -> Result<usize> {
        let expected = "an integer of at least 0, or a list of one per layer";
        let count = self.read(key, expected, |value| match value {
            Value::List(items) if items.len() == n_layers => items.get(layer)?.as_usize(),
            Value::List(_) => None,
            scalar => scalar.as_usize(),
        })?;
        count.ok_or_else(|| self.missing(key))
    }

    /// A required real number. Integers are accepted.
    ///
    /// # Errors
    /// `Missing`; `Mistyped` if the value is no number or beyond f32.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.opt_f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// A real number that may be absent or null.
    ///
    /// # Errors
    /// `Mistyped` if the value is no number or beyond f32.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        self.read(key, "a number that fits f32", |value| value.as_f32())
    }

    /// A switch that may be absent or null.
    ///
    /// # Errors
    /// `Mistyped` if the value is no switch.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, "a boolean", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// A text that may be absent or null.
    ///
    /// # Errors
    /// `Mistyped` if the value is no text.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        self.read(key, "a text", |value| match value {
            Value::Text(text) => Some(*text),
            _ => None,
        })
    }

    /// A list of texts, such as `layer_types`.
    ///
    /// # Errors
    /// `Mistyped` if the value is no such list.
    pub fn opt_strs(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.read(key, "a list of texts", |value| match value {
            Value::List(items) => collect(items, |item| match item {
                Value::Text(text) => Some(*text),
                _ => None,
            }),
            _ => None,
        })
    }

    /// A list of counts (a scalar is a list of one), such as `eos_token_id` or `mlp_only_layers`.
    ///
    /// # Errors
    /// `Mistyped` if the value is no such list.
    pub fn opt_usizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.read(key, "a list of integers of at least 0", |value| match value {
            Value::List(items) => collect(items, Value::as_usize),
            scalar => scalar.as_usize().map(|count| vec![count]),
        })
    }

    /// A list of real numbers, such as the factors of a rope scaling.
    ///
    /// # Errors
    /// `Mistyped` if the value is no such list.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.read(key, "a list of numbers that fit f32", |value| match value {
            Value::List(items) => collect(items, Value::as_f32),
            _ => None,
        })
    }

    /// A list of switches (a scalar is a list of one), such as a window pattern.
    ///
    /// # Errors
    /// `Mistyped` if the value is no such list.
    pub fn opt_bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let switch = |value: &Value<'_>| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        };
        self.read(key, "a list of booleans", |value| match value {
            Value::List(items) => collect(items, switch),
            scalar => switch(scalar).map(|value| vec![value]),
        })
    }

    /// The nested object under `key` as a config of its own, whose messages spell `key.inner`. `None` if absent or null.
    ///
    /// GGUF has no nesting. Its `rope.scaling.*` keys are presented as the section `rope_scaling` (and `rope_parameters`), so that
    /// one reader serves both; it is `None` if the type is `none` or nothing is said. Other sections are `None`.
    ///
    /// # Errors
    /// `Mistyped` if the value is no object.
    pub fn section(&self, key: &str) -> Result<Option<Config>> {
        let is_rope = ROPE_SECTIONS.contains(&key);
        match &self.view {
            View::Gguf { .. } if is_rope => {
                let section = Config { keys: &ROPE, ..self.clone() };
                let scales = match section.opt_str("type")? {
                    Some(kind) => kind != "none",
                    None => section.has("factor") || section.has("attention_factor"),
                };
                Ok(scales.then_some(section))
            }
            View::Gguf { .. } => Ok(None),
            View::Json(view) => {
                let Some((path, value)) = view.find(self.keys.json_names(key)) else {
                    return Ok(None);
                };
                let Json::Object(inner) = value else {
                    let found = json::describe(value);
                    return Err(ConfigError::Mistyped {
                        path: self.path.clone(),
                        key: path,
                        expected: "an object",
                        found,
                    });
                };
                let view = View::Json(Arc::new(JsonView { objects: vec![(format!("{path}."), inner.clone())] }));
                // What is nested in a rope section (one object per kind of layer) is rope too.
                let keys = if is_rope || std::ptr::eq(self.keys, &ROPE) { &ROPE } else { &PLAIN };
                Ok(Some(Config { path: self.path.clone(), view, keys }))
            }
        }
    }

    /// An [`Unsupported`](ConfigError::Unsupported) error about `key`, for the one who reads the config.
    pub fn unsupported(&self, key: &str, reason: impl Into<String>) -> ConfigError {
        ConfigError::Unsupported { path: self.path.clone(), key: self.spell(key), reason: reason.into() }
    }

    /// The value under `key` through `want`, which says whether it is of the right type.
    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        want: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some((spelled, value)) = self.find(key) else {
            return Ok(None);
        };
        want(&value).map(Some).ok_or_else(|| ConfigError::Mistyped {
            path: self.path.clone(),
            key: spelled,
            expected,
            found: value.describe(),
        })
    }

    /// The value under any spelling of `key`, with the spelling found.
    fn find(&self, key: &str) -> Option<(String, Value<'_>)> {
        match &self.view {
            View::Json(view) => {
                let (spelled, value) = view.find(self.keys.json_names(key))?;
                Some((spelled, Value::from_json(value)?))
            }
            View::Gguf { metadata, architecture } => {
                let names = self.keys.gguf_names(key, architecture);
                names.into_iter().find_map(|name| {
                    let value = match name.as_str() {
                        // A vocabulary stands here for its size.
                        VOCABULARY => Value::Int(metadata.array_len(VOCABULARY)? as i128),
                        _ => Value::from_gguf(metadata, &name)?,
                    };
                    Some((name, value))
                })
            }
        }
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing { path: self.path.clone(), key: self.spell(key) }
    }

    /// `key` as this file spells it, or would.
    fn spell(&self, key: &str) -> String {
        if let Some((spelled, _)) = self.find(key) {
            return spelled;
        }
        match &self.view {
            View::Json(view) => match view.objects.as_slice() {
                // In a section of its own, not in a model that may or may not be nested.
                [(prefix, _)] => format!("{prefix}{key}"),
                _ => key.to_owned(),
            },
            // Without an architecture no key of one can be spelled.
            View::Gguf { architecture, .. } if architecture.is_empty() => ARCHITECTURE.to_owned(),
            View::Gguf { architecture, .. } => {
                self.keys.gguf_names(key, architecture).into_iter().next().unwrap_or_else(|| key.to_owned())
            }
        }
    }

    /// A head has one length here, so a GGUF file that gives keys and values different ones has no `head_dim`.
    fn check_value_length(&self, head_dim: usize) -> Result<Option<usize>> {
        match self.opt_usize("v_head_dim")? {
            Some(value_length) if value_length != head_dim => Err(self.unsupported(
                "v_head_dim",
                format!("expected values as long as keys, {head_dim}, found {value_length}"),
            )),
            _ => Ok(Some(head_dim)),
        }
    }
}

/// What GGUF keys of a model begin with is the text under this one.
const ARCHITECTURE: &str = "general.architecture";

/// The array whose length is the vocabulary's size where a GGUF file does not give it.
const VOCABULARY: &str = "tokenizer.ggml.tokens";

impl JsonView {
    /// The first of `names` in the most specific object that has one. A null under one name gives way to a value under another,
    /// but not to an outer object: the nested config has then said that there is none.
    fn find<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<(String, &Json)> {
        let names: Vec<&str> = names.collect();
        for (prefix, object) in &self.objects {
            let found = names.iter().filter_map(|name| Some((name, json::lookup(object, name)?)));
            let (mut present, mut valued) = (false, None);
            for (name, value) in found {
                present = true;
                if !value.is_null() && valued.is_none() {
                    valued = Some((format!("{prefix}{name}"), value));
                }
            }
            if present {
                return valued;
            }
        }
        None
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("path", &self.path).field("kind", &self.kind()).finish_non_exhaustive()
    }
}

fn collect<'a, T>(items: &[Value<'a>], want: impl Fn(&Value<'a>) -> Option<T>) -> Option<Vec<T>> {
    items.iter().map(want).collect()
}
