//! What of a config belongs to the model's identity: whatever could change its numbers, and nothing that says where it came from.

use serde_json::{Map, Value as Json};

use super::{Config, View};

/// Keys of `config.json` that tell who wrote the file when, with what.
const JSON_PROVENANCE: &[&str] = &["_commit_hash", "_name_or_path", "transformers_version"];

/// GGUF keys that are no part of the maths: names and links, how the file was made and cut, and the tokenizer, whose arrays are the
/// larger part of many files.
const GGUF_ASIDE: &[&str] = &["general.", "quantize.", "split.", "tokenizer."];

/// The one key under these that is part of it.
const GGUF_ARCHITECTURE: &str = "general.architecture";

impl Config {
    /// Hands every fact to `tell`, in an order that does not depend on the file's. No two configs of different facts tell the same.
    pub(crate) fn tell_facts(&self, tell: &mut impl FnMut(&[u8])) {
        match &self.view {
            View::Json(view) => {
                // The last object is the outermost, which holds the others.
                if let Some((_, object)) = view.objects.last() {
                    tell_object(object, JSON_PROVENANCE, tell);
                }
            }
            View::Gguf { metadata, .. } => {
                let aside = |key: &&str| *key == GGUF_ARCHITECTURE || !GGUF_ASIDE.iter().any(|p| key.starts_with(p));
                for key in metadata.keys().filter(aside) {
                    if let Some((kind, bytes)) = metadata.raw(key) {
                        [key.as_bytes(), kind.as_bytes(), bytes].into_iter().for_each(&mut *tell);
                    }
                }
            }
        }
    }
}

/// Entries sorted by key, as their number and then each.
fn tell_object(object: &Map<String, Json>, without: &[&str], tell: &mut impl FnMut(&[u8])) {
    let mut entries: Vec<_> = object.iter().filter(|(key, _)| !without.contains(&key.as_str())).collect();
    entries.sort_by_key(|(key, _)| *key);
    tell(format!("object {}", entries.len()).as_bytes());
    for (key, value) in entries {
        tell(key.as_bytes());
        tell_value(value, tell);
    }
}

fn tell_value(value: &Json, tell: &mut impl FnMut(&[u8])) {
    match value {
        Json::Object(object) => tell_object(object, &[], tell),
        Json::Array(items) => {
            tell(format!("array {}", items.len()).as_bytes());
            items.iter().for_each(|item| tell_value(item, tell));
        }
        // A text keeps its quotes, so that "1" is not 1.
        scalar => tell(scalar.to_string().as_bytes()),
    }
}
