//! How `tokenizer.json` has text cut into words (`pre_tokenizer`).
//!
//! The steps are those of the `tokenizers` crate, except that regular expressions run here. The crate's engine backtracks, gives up on a
//! long run of spaces and then silently leaves the rest of the text uncut; here such patterns either run on a finite automaton, or
//! giving up is an error.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{
    NormalizedString, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior, normalizer::Range,
    pattern::Invert, pre_tokenizers::byte_level::ByteLevel,
};

use super::pre_tokenizer::{GPT2_PATTERN, Splitter};
use crate::{Result, TextError};

const SECTION: &str = "pre_tokenizer";

/// The steps of the section, in order.
pub(super) struct Words {
    steps: Vec<Step>,
}

enum Step {
    /// Cut on an automaton.
    Linear(Splitter),
    /// GPT-2's own rule, after a space in front if `space_prefix`; then bytes are spelled.
    ByteLevel { splitter: Splitter, space_prefix: bool },
    /// Cut by a pattern that needs backtracking.
    Backtracking { regex: fancy_regex::Regex, behavior: SplitDelimiterBehavior, invert: bool },
    /// Anything without a regular expression.
    Other(PreTokenizerWrapper),
}

/// A `Split` step.
#[derive(Deserialize)]
struct Split {
    behavior: SplitDelimiterBehavior,
    #[serde(default)]
    invert: bool,
}

impl Words {
    /// Reads the section.
    ///
    /// # Errors
    /// `TokenizerJson` for a step that is not known or a pattern that is none.
    pub(super) fn new(section: &Value) -> Result<Words> {
        let mut steps = Vec::new();
        collect(section, &mut steps)?;
        Ok(Words { steps })
    }

    /// Cuts a text.
    ///
    /// # Errors
    /// As a step says; for a pattern, if it gives up.
    pub(super) fn cut(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for step in &self.steps {
            match step {
                Step::Linear(splitter) => text.split(|_, piece| cut_by(splitter, &piece))?,
                Step::ByteLevel { splitter, space_prefix } => {
                    text.split(|_, mut piece| {
                        if *space_prefix && !piece.get().starts_with(' ') {
                            piece.prepend(" ");
                        }
                        cut_by(splitter, &piece)
                    })?;
                    ByteLevel::new(false, true, false).pre_tokenize(text)?;
                }
                Step::Backtracking { regex, behavior, invert: false } => {
                    text.split(|_, piece| piece.split(regex, *behavior))?;
                }
                Step::Backtracking { regex, behavior, invert: true } => {
                    text.split(|_, piece| piece.split(Invert(regex), *behavior))?;
                }
                Step::Other(pre_tokenizer) => pre_tokenizer.pre_tokenize(text)?,
            }
        }
        Ok(())
    }
}

fn collect(section: &Value, steps: &mut Vec<Step>) -> Result<()> {
    let damaged = |reason: String| TextError::json(SECTION, reason);
    match section.get("type").and_then(Value::as_str) {
        None if section.is_null() => return Ok(()),
        Some("Sequence") => {
            let members = section.get("pretokenizers").and_then(Value::as_array);
            let members = members.ok_or_else(|| damaged("expected `pretokenizers` as a list".to_owned()))?;
            return members.iter().try_for_each(|step| collect(step, steps));
        }
        Some("ByteLevel") => {
            let switch = |key: &str| section.get(key).and_then(Value::as_bool).unwrap_or(true);
            if switch("use_regex") {
                let splitter = Splitter::words(GPT2_PATTERN)?;
                steps.push(Step::ByteLevel { splitter, space_prefix: switch("add_prefix_space") });
                return Ok(());
            }
        }
        Some("Split") => {
            let split: Split = Deserialize::deserialize(section).map_err(|error| damaged(error.to_string()))?;
            let pattern = section.get("pattern").and_then(|pattern| pattern.get("Regex"));
            if let Some(pattern) = pattern.and_then(Value::as_str) {
                steps.push(Step::split(pattern, &split)?);
                return Ok(());
            }
        }
        _ => {}
    }
    // Read from text: some of the crate's types borrow from it.
    let step = serde_json::from_str(&section.to_string()).map_err(|error| damaged(error.to_string()))?;
    steps.push(Step::Other(step));
    Ok(())
}

impl Step {
    fn split(pattern: &str, split: &Split) -> Result<Step> {
        let isolates = matches!(split.behavior, SplitDelimiterBehavior::Isolated) && !split.invert;
        if isolates && let Some(splitter) = linear(pattern) {
            return Ok(Step::Linear(splitter));
        }
        let regex = fancy_regex::Regex::new(pattern).map_err(|error| TextError::json(SECTION, error.to_string()))?;
        Ok(Step::Backtracking { regex, behavior: split.behavior, invert: split.invert })
    }
}

/// A pattern on an automaton; `None` if it says something that automata cannot.
fn linear(pattern: &str) -> Option<Splitter> {
    if is_possessive(pattern) {
        return None;
    }
    // The one lookahead that nearly all patterns end with.
    match pattern.strip_suffix(r"|\s+(?!\S)|\s+") {
        Some(words) => Splitter::words(words).ok(),
        None => Splitter::matches(pattern).ok(),
    }
}

/// Whether a quantifier is followed by `+`, which forbids it to give anything back. (To the automaton it would be a second quantifier.)
fn is_possessive(pattern: &str) -> bool {
    let mut escaped = false;
    let mut class_depth = 0usize;
    // Braces after an escape name a class or a character (`\p{L}`).
    let mut after_escape = false;
    let mut names = false;
    let mut after_quantifier = false;
    for c in pattern.chars() {
        let is_plain = !escaped && class_depth == 0;
        if is_plain && after_quantifier && c == '+' {
            return true;
        }
        if is_plain && c == '{' {
            names = after_escape;
        }
        after_quantifier = is_plain && (matches!(c, '?' | '*' | '+') || c == '}' && !names);
        after_escape = escaped;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => class_depth += 1,
            ']' => class_depth = class_depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

fn cut_by(splitter: &Splitter, piece: &NormalizedString) -> tokenizers::Result<Vec<NormalizedString>> {
    let slice = |range| piece.slice(Range::Normalized(range)).ok_or_else(|| "a word lies outside its text".into());
    splitter.split(piece.get()).into_iter().map(slice).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LLAMA3: &str = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );

    fn words(section: &Value, text: &str) -> tokenizers::Result<Vec<String>> {
        let mut pieces = PreTokenizedString::from(text);
        Words::new(section).expect("the section is sound").cut(&mut pieces)?;
        let splits = pieces.get_splits(tokenizers::OffsetReferential::Normalized, tokenizers::OffsetType::Byte);
        Ok(splits.into_iter().map(|(word, ..)| word.to_owned()).collect())
    }

    fn split(pattern: &str, behavior: &str) -> Value {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": false})
    }

    /// The crate's own cut, which is right for short texts.
    fn theirs(section: &Value, text: &str) -> Vec<String> {
        let pre_tokenizer: PreTokenizerWrapper = serde_json::from_str(&section.to_string()).unwrap();
        let mut pieces = PreTokenizedString::from(text);
        pre_tokenizer.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(tokenizers::OffsetReferential::Normalized, tokenizers::OffsetType::Byte);
        splits.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    #[test]
    fn words_are_those_of_the_crate() {
        let byte_level = |space: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": regex});
        let sections = [
            split(LLAMA3, "Isolated"),
            split(LLAMA3, "Removed"),
            split(r"\p{N}{1,3}", "Isolated"),
            split(r"[^\r\n\p{L}\p{N}]?+\p{L}+|\s+(?!\S)|\s++", "Isolated"),
            byte_level(true, true),
            byte_level(false, true),
            byte_level(true, false),
            json!({"type": "Whitespace"}),
            json!({"type": "Sequence", "pretokenizers": [split(LLAMA3, "Isolated"), byte_level(false, false)]}),
        ];
        for section in &sections {
            for text in ["I'll pay  1234567 €\r\n\t\t(x)", " 한국어 日本\u{3000}語 \u{301} don't   ", "", "  a"]
            {
                assert_eq!(words(section, text).unwrap(), theirs(section, text), "{section} {text:?}");
            }
        }
    }

    #[test]
    fn a_run_of_two_million_spaces_is_cut_like_a_short_one() {
        let text = "a".to_owned() + &" ".repeat(2_000_000) + "b cd";
        let found = words(&split(LLAMA3, "Isolated"), &text).unwrap();
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [1, 1_999_999, 2, 3]);
    }

    #[test]
    fn a_pattern_that_gives_up_is_an_error() {
        let text = " ".repeat(2_000_000) + "b cd";
        assert!(words(&split(r"\p{L}++|\s+(?!\S)|\s+(?=\S)", "Isolated"), &text).is_err());
    }

    #[test]
    fn possessive_quantifiers_are_seen_outside_classes_only() {
        for (pattern, expected) in [
            ("a++", true),
            ("a?+b", true),
            ("a{1,3}+", true),
            (r"\++", false),
            (r"\p{L}+", false),
            (r"\p{L}{2}+", true),
            ("[?+]", false),
            ("a+b+", false),
        ] {
            assert_eq!(is_possessive(pattern), expected, "{pattern}");
        }
    }
}
