//! `tokenizer_config.json` and `special_tokens_map.json`: which tokens play which part.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What the files beside a tokenizer say about it. Entries of the wrong type are reported and ignored: these files are
/// edited by hand more than any other, and none of what they say is needed to run a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerConfig {
    /// Special tokens by role: `bos_token`, `eos_token`, `pad_token`, `unk_token`, and whatever else ends in `_token`.
    pub special_tokens: BTreeMap<String, String>,
    /// Whether a text starts with the BOS token. `None`: as `tokenizer.json` says.
    pub add_bos: Option<bool>,
    /// Whether a text ends with the EOS token. `None`: as `tokenizer.json` says.
    pub add_eos: Option<bool>,
    /// `chat_template`: one template, or several with names.
    pub chat_templates: Vec<(String, String)>,
}

impl TokenizerConfig {
    /// Reads the texts of the two files. What `tokenizer_config.json` says wins.
    pub fn from_json(tokenizer_config: Option<&str>, special_tokens_map: Option<&str>) -> TokenizerConfig {
        let mut config = TokenizerConfig::default();
        for (file, text) in
            [("special_tokens_map.json", special_tokens_map), ("tokenizer_config.json", tokenizer_config)]
        {
            let Some(text) = text else { continue };
            match serde_json::from_str::<Map<String, Value>>(text) {
                Ok(object) => config.read(file, &object),
                Err(error) => tracing::warn!("`{file}` is ignored: {error}"),
            }
        }
        config
    }

    fn read(&mut self, file: &str, object: &Map<String, Value>) {
        for (key, value) in object {
            let ignored = match (key.as_str(), value) {
                (_, Value::Null) => false,
                ("add_bos_token", value) => set_bool(&mut self.add_bos, value),
                ("add_eos_token", value) => set_bool(&mut self.add_eos, value),
                ("chat_template", value) => {
                    self.chat_templates = templates(value);
                    self.chat_templates.is_empty()
                }
                (key, value) if key.ends_with("_token") => match token_text(value) {
                    Some(text) => {
                        self.special_tokens.insert(key.to_owned(), text.to_owned());
                        false
                    }
                    // `split_special_tokens`-like switches share the ending.
                    None => !value.is_boolean(),
                },
                _ => false,
            };
            if ignored {
                tracing::warn!("`{file}`: entry `{key}` is ignored: its type is not one that is known");
            }
        }
    }

    /// The token of a role such as `eos_token`.
    pub fn special_token(&self, role: &str) -> Option<&str> {
        self.special_tokens.get(role).map(String::as_str)
    }
}

/// Whether the value was of another type.
fn set_bool(target: &mut Option<bool>, value: &Value) -> bool {
    *target = value.as_bool().or(*target);
    !value.is_boolean()
}

/// A token written as text, or as an object with its text under `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// A template, or a list of objects with `name` and `template`.
fn templates(value: &Value) -> Vec<(String, String)> {
    if let Some(text) = value.as_str() {
        return vec![("default".to_owned(), text.to_owned())];
    }
    let named =
        |entry: &Value| Some((entry.get("name")?.as_str()?.to_owned(), entry.get("template")?.as_str()?.to_owned()));
    value.as_array().into_iter().flatten().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_text_or_objects_and_damaged_entries_are_ignored() {
        let config = TokenizerConfig::from_json(
            Some(r#"{"bos_token": {"content": "<s>"}, "eos_token": 7, "add_bos_token": "yes", "add_eos_token": true}"#),
            Some(r#"{"eos_token": "</s>", "pad_token": null}"#),
        );
        assert_eq!(config.special_token("bos_token"), Some("<s>"));
        assert_eq!(config.special_token("eos_token"), Some("</s>"));
        assert_eq!(config.special_token("pad_token"), None);
        assert_eq!((config.add_bos, config.add_eos), (None, Some(true)));
    }

    #[test]
    fn a_file_that_is_not_json_is_ignored() {
        assert_eq!(TokenizerConfig::from_json(Some("{"), None), TokenizerConfig::default());
    }

    #[test]
    fn a_chat_template_is_one_or_several_with_names() {
        let one = TokenizerConfig::from_json(Some(r#"{"chat_template": "x"}"#), None);
        assert_eq!(one.chat_templates, [("default".to_owned(), "x".to_owned())]);
        let two = r#"{"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}"#;
        let two = TokenizerConfig::from_json(Some(two), None);
        assert_eq!(two.chat_templates[1], ("tool_use".to_owned(), "b".to_owned()));
    }
}
