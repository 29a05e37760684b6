//! Tokens that are matched in text as a whole, before anything else looks at it.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::vocabulary::{TokenKind, Vocabulary};
use crate::{Result, TextError};

/// A part of a text: an added token, or text between them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Token { id: u32, range: Range<usize> },
    Text(Range<usize>),
}

/// The added tokens of a GGUF vocabulary.
///
/// At each place the longest token wins, as in SentencePiece and `tokenizers`. (llama.cpp looks for its longest token in
/// the whole text first; the two part only where two tokens overlap without one holding the other.)
#[derive(Debug)]
pub(crate) struct AddedTokens {
    all: Matcher,
    /// Without control tokens, for text that may not produce any.
    user_defined: Matcher,
}

#[derive(Debug)]
struct Matcher {
    automaton: AhoCorasick,
    /// Per pattern: the token, and whether it swallows the white space after it.
    tokens: Vec<(u32, bool)>,
}

impl AddedTokens {
    /// Collects the added tokens. `swallows_space` says which take the white space on their right with them.
    pub(crate) fn new(vocabulary: &Vocabulary, swallows_space: impl Fn(&str) -> bool) -> Result<AddedTokens> {
        let added = |kind: TokenKind| kind.is_special() || kind == TokenKind::UserDefined;
        Ok(AddedTokens {
            all: Matcher::new(vocabulary, added, &swallows_space)?,
            user_defined: Matcher::new(vocabulary, |kind| kind == TokenKind::UserDefined, &swallows_space)?,
        })
    }

    /// Cuts a text at its added tokens. Control tokens count only with `parse_special`; user-defined ones always.
    pub(crate) fn split(&self, text: &str, parse_special: bool) -> Vec<Segment> {
        let matcher = if parse_special { &self.all } else { &self.user_defined };
        let mut segments = Vec::new();
        let mut done = 0;
        for found in matcher.automaton.find_iter(text) {
            let (id, swallows_space) = matcher.tokens[found.pattern().as_usize()];
            // A match cannot start inside white space that the token before it swallowed.
            if found.start() < done {
                continue;
            }
            if done < found.start() {
                segments.push(Segment::Text(done..found.start()));
            }
            done = found.end();
            if swallows_space {
                let rest = &text[done..];
                done += rest.len() - rest.trim_start().len();
            }
            segments.push(Segment::Token { id, range: found.range() });
        }
        if done < text.len() {
            segments.push(Segment::Text(done..text.len()));
        }
        segments
    }
}

impl Matcher {
    fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(TokenKind) -> bool,
        swallows_space: impl Fn(&str) -> bool,
    ) -> Result<Matcher> {
        let (texts, tokens): (Vec<_>, Vec<_>) = vocabulary
            .iter()
            .filter(|&(_, text, kind)| !text.is_empty() && wanted(kind))
            .map(|(id, text, _)| (text, (id, swallows_space(text))))
            .unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|error| TextError::vocabulary("tokenizer.ggml.tokens", error.to_string()))?;
        Ok(Matcher { automaton, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::vocabulary::Spelling;

    fn added() -> AddedTokens {
        let mut vocabulary = Vocabulary::new(Spelling::ByteLevel, false);
        for (id, text, kind) in [
            (0, "<s>", TokenKind::Control),
            (1, "  ", TokenKind::UserDefined),
            (2, "   ", TokenKind::UserDefined),
            (3, "a", TokenKind::Normal),
            (4, "<|end|>", TokenKind::Control),
        ] {
            vocabulary.insert("tokens", id, text, kind).unwrap();
        }
        AddedTokens::new(&vocabulary, |text| text == "<|end|>").unwrap()
    }

    #[track_caller]
    fn check(text: &str, parse_special: bool, expected: &[Segment]) {
        assert_eq!(added().split(text, parse_special), expected, "{text:?}");
    }

    // C16: both kinds, with the switch on and off.
    #[test]
    fn control_tokens_match_only_when_parsed_and_user_defined_always() {
        check(
            "a<s>  b",
            true,
            &[
                Segment::Text(0..1),
                Segment::Token { id: 0, range: 1..4 },
                Segment::Token { id: 1, range: 4..6 },
                Segment::Text(6..7),
            ],
        );
        check("a<s>  b", false, &[Segment::Text(0..4), Segment::Token { id: 1, range: 4..6 }, Segment::Text(6..7)]);
    }

    #[test]
    fn the_longest_token_wins_and_an_empty_text_has_no_segments() {
        check("     ", false, &[Segment::Token { id: 2, range: 0..3 }, Segment::Token { id: 1, range: 3..5 }]);
        check("", true, &[]);
    }

    #[test]
    fn swallowed_white_space_belongs_to_nobody_else() {
        check("<|end|> \n    x", true, &[Segment::Token { id: 4, range: 0..7 }, Segment::Text(13..14)]);
    }
}
