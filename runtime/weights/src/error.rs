//! What can be wrong with weight files.

use std::path::PathBuf;

use crate::{ConfigError, Dtype};

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, WeightsError>;

/// Names and texts from files are quoted in messages up to this many characters.
const MAX_QUOTED_CHARS: usize = 80;

/// A name or text from a file between backticks, on one line whatever it holds, and not longer than a message should be.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", shortened(text, MAX_QUOTED_CHARS))
}

/// The message of another library, which may quote the file.
pub(crate) fn one_line(message: &str) -> String {
    shortened(message, 3 * MAX_QUOTED_CHARS)
}

fn shortened(text: &str, max_chars: usize) -> String {
    let mut short = String::new();
    for c in text.chars().take(max_chars) {
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    if text.chars().nth(max_chars).is_some() {
        short.push('…');
    }
    short
}

/// Several of them; the first few of many.
pub(crate) fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_LISTED: usize = 24;
    let mut names = names.into_iter();
    let mut listed: Vec<String> = names.by_ref().take(MAX_LISTED).map(quoted).collect();
    match names.count() {
        0 => {}
        more => listed.push(format!("{more} more")),
    }
    listed.join(", ")
}

/// A file that cannot be read as weights, and why. Variants are named by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The operating system refused: wrong path, no permission, disk error.
    #[error("cannot read `{path}`", path = path.display())]
    Io {
        /// File that was to be read.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The bytes are of no format this build reads.
    #[error("`{path}` is not a weight file: expected {expected}, found {found}", path = path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Formats this build reads.
        expected: String,
        /// What the first bytes look like.
        found: String,
    },
    /// The file is of a known format but damaged, truncated or lying.
    #[error("`{path}`: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found, with the key, tensor or byte offset.
        reason: String,
    },
    /// A directory that does not say which model it holds.
    #[error("`{path}`: {reason}", path = path.display())]
    Ambiguous {
        /// The directory.
        path: PathBuf,
        /// What it holds, sorted, and what to name instead.
        reason: String,
    },
    /// Files that belong to the model are not there.
    #[error("`{path}`: {reason}", path = path.display())]
    Missing {
        /// The file or directory that names them.
        path: PathBuf,
        /// The missing base names and a hint.
        reason: String,
    },
    /// The config is missing a key or has one of the wrong type.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A scheme that parses but has no dequantiser here.
    #[error("tensor type {dtype} cannot be decoded: kinfolk has no dequantiser for it")]
    NotDecodable {
        /// The scheme.
        dtype: Dtype,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_stay_on_one_line_and_short() {
        assert_eq!(quoted("blk.0.w"), "`blk.0.w`");
        assert_eq!(quoted("模型 \"x\""), "`模型 \"x\"`");
        assert_eq!(quoted("a\nb\u{1b}c"), "`a\\nb\\u{1b}c`");
        assert_eq!(quoted(&"é".repeat(1000)).chars().count(), MAX_QUOTED_CHARS + 3);
    }

    #[test]
    fn long_lists_end_in_a_count() {
        let names: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        let list = quoted_list(names.iter().map(String::as_str));
        assert!(list.starts_with("`0`, `1`, ") && list.ends_with("`23`, 6 more"), "{list}");
    }
}
