//! Which tokens end a reply.

use std::collections::BTreeSet;

use kinfolk_weights::Source;
use serde_json::Value;

use crate::{Result, Tokenizer, TokenizerConfig};

/// The tokens that end a reply: a set, since a model may have several and every source names only some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    ids: BTreeSet<u32>,
}

impl Ends {
    /// Collects every token that anything says ends a reply: `eos_token_id` of `generation_config.json` and of the config,
    /// `eos_token` of `tokenizer_config.json`, the tokenizer's own, the end-of-sequence, end-of-turn and end-of-message ids of
    /// a GGUF file, and those of `turn_ends` (what the family ends its turns with, such as `<|im_end|>`) that are special
    /// tokens of the vocabulary.
    ///
    /// No source replaces another: fine-tunes are published whose files name one end each. Damaged entries are reported
    /// and ignored. A file beside a GGUF model may belong to its neighbour, so what it names counts only if that is a special
    /// token of this model.
    ///
    /// # Errors
    /// `Weights` if a file is there and cannot be read.
    pub fn from_source(
        source: &Source,
        tokenizer: &Tokenizer,
        config: &TokenizerConfig,
        turn_ends: &[&str],
    ) -> Result<Ends> {
        let mut ends = Ends::default();
        if let Some(text) = source.sidecar("generation_config.json")? {
            ends.add_json("generation_config.json", &text);
        }
        match config.special_token("eos_token").map(|text| (text, tokenizer.id_of(text))) {
            Some((_, Some(id))) => ends.insert(id),
            Some((text, None)) => {
                tracing::warn!("`tokenizer_config.json`: `eos_token` is ignored: `{text}` is not in the vocabulary");
            }
            None => {}
        }
        match source.gguf() {
            Some(metadata) => {
                ends.ids.retain(|&id| tokenizer.is_special(id));
                for role in ["eos", "eot", "eom"] {
                    let key = format!("tokenizer.ggml.{role}_token_id");
                    match metadata.u64(&key) {
                        Ok(id) => ends.add_id(&key, id),
                        Err(error) => tracing::warn!("an end of replies is ignored: {error}"),
                    }
                }
            }
            None => {
                if let Some(text) = source.sidecar("config.json")? {
                    ends.add_json("config.json", &text);
                }
            }
        }
        ends.ids.extend(tokenizer.eos());
        ends.ids
            .extend(turn_ends.iter().filter_map(|text| tokenizer.id_of(text)).filter(|&id| tokenizer.is_special(id)));
        Ok(ends)
    }

    /// The ends of one request: none if it asks to ignore them, so that only its limits end the reply.
    pub fn for_request(&self, ignore_eos: bool) -> Ends {
        if ignore_eos { Ends::default() } else { self.clone() }
    }

    /// Adds a token.
    pub fn insert(&mut self, id: u32) {
        self.ids.insert(id);
    }

    /// Whether the token ends a reply.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Every end, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied()
    }

    /// Whether nothing ends a reply, so that only a limit does.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds `eos_token_id` of a config file: an id or several, also inside `text_config`.
    fn add_json(&mut self, file: &str, text: &str) {
        let root: Value = match serde_json::from_str(text) {
            Ok(root) => root,
            Err(error) => return tracing::warn!("`{file}` is ignored: {error}"),
        };
        let nested = root.get("text_config").and_then(|nested| nested.get("eos_token_id"));
        for entry in [root.get("eos_token_id"), nested].into_iter().flatten() {
            let ids = match entry {
                Value::Null => continue,
                Value::Array(ids) => ids.as_slice(),
                id => std::slice::from_ref(id),
            };
            for id in ids {
                match id.as_u64() {
                    Some(id) => self.add_id(file, Some(id)),
                    None => tracing::warn!("`{file}`: an end of replies is ignored: expected an id, found {id}"),
                }
            }
        }
    }

    fn add_id(&mut self, place: &str, id: Option<u64>) {
        match id.map(u32::try_from) {
            Some(Ok(id)) => self.insert(id),
            Some(Err(_)) => tracing::warn!("`{place}`: an end of replies is ignored: no vocabulary is that large"),
            None => {}
        }
    }
}

impl FromIterator<u32> for Ends {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Ends {
        Ends { ids: ids.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[u32]) {
        let mut ends = Ends::default();
        ends.add_json("generation_config.json", text);
        assert_eq!(ends.iter().collect::<Vec<_>>(), expected, "{text}");
    }

    // E1, E4: an id or a list of them, and always a set.
    #[test]
    fn eos_token_id_is_an_id_or_several() {
        check(r#"{"eos_token_id": 2}"#, &[2]);
        check(r#"{"eos_token_id": [106, 1, 1]}"#, &[1, 106]);
        check(r#"{"text_config": {"eos_token_id": [7]}, "eos_token_id": 2}"#, &[2, 7]);
        check(r#"{"eos_token_id": null}"#, &[]);
        check("{}", &[]);
    }

    #[test]
    fn a_request_may_ignore_the_ends() {
        let ends: Ends = [2, 7].into_iter().collect();
        assert!(ends.for_request(true).is_empty());
        assert_eq!(ends.for_request(false), ends);
    }

    #[test]
    fn damaged_entries_are_ignored_and_the_others_kept() {
        check(r#"{"eos_token_id": [1, "x", -1, 2.5, 99999999999, 3]}"#, &[1, 3]);
        check("{", &[]);
        check("[]", &[]);
    }
}
