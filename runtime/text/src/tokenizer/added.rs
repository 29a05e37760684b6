//! Tokens that are matched in text as a whole, before anything else looks at it.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::vocabulary::{TokenKind, Vocabulary};
use crate::{Result, TextError};

/// A part of a text: an added token, or text between them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Token { id: u32, range: Range<usize> },
    Text(Range<usize>),
}

/// One kind of added tokens of a vocabulary.
///
/// At each place the longest token wins, as in SentencePiece and `tokenizers`. (llama.cpp looks for its longest token in
/// the whole text first; the two part only where two tokens overlap without one holding the other.)
pub(crate) struct AddedTokens {
    automaton: AhoCorasick,
    /// Per pattern: the token, and which white space it takes with it.
    tokens: Vec<(u32, Strip)>,
    /// The texts, ascending.
    texts: Vec<Box<str>>,
    /// The texts, each from its end, ascending.
    reversed: Vec<Box<str>>,
}

/// Which white space around an added token counts as part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strip {
    pub(crate) left: bool,
    pub(crate) right: bool,
}

impl std::fmt::Debug for AddedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddedTokens").field("len", &self.tokens.len()).finish_non_exhaustive()
    }
}

impl AddedTokens {
    /// Collects the tokens of the kinds that are `wanted`.
    pub(crate) fn new(
        vocabulary: &Vocabulary,
        wanted: impl Fn(TokenKind) -> bool,
        strip: impl Fn(u32, &str) -> Strip,
    ) -> Result<AddedTokens> {
        let (texts, tokens): (Vec<_>, Vec<_>) = vocabulary
            .iter()
            .filter(|&(_, text, kind)| !text.is_empty() && wanted(kind))
            .map(|(id, text, _)| (text, (id, strip(id, text))))
            .unzip();
        let mut reversed: Vec<Box<str>> = texts.iter().map(|text: &&str| text.chars().rev().collect()).collect();
        reversed.sort_unstable();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&texts)
            .map_err(|error| TextError::vocabulary("added tokens", error.to_string()))?;
        let mut texts: Vec<Box<str>> = texts.into_iter().map(Box::from).collect();
        texts.sort_unstable();
        Ok(AddedTokens { automaton, tokens, texts, reversed })
    }

    /// The longest end of a text that a token goes on from: with more behind it, it could become that token.
    pub(crate) fn open_end<'a>(&self, text: &'a str) -> &'a str {
        let longest = self.texts.iter().map(|token| token.len()).max().unwrap_or(0);
        let from = text.len().saturating_sub(longest);
        let ends = text.char_indices().rev().take_while(|(at, _)| *at >= from).map(|(at, _)| &text[at..]);
        ends.filter(|end| is_proper_start(&self.texts, end)).last().unwrap_or_default()
    }

    /// The longest start of a text that a token ends with: with more in front, it could become that token.
    pub(crate) fn open_start<'a>(&self, text: &'a str) -> &'a str {
        let longest = self.texts.iter().map(|token| token.len()).max().unwrap_or(0);
        let starts =
            text.char_indices().map(|(at, c)| &text[..at + c.len_utf8()]).take_while(|start| start.len() <= longest);
        let ends_a_token = |start: &&str| is_proper_start(&self.reversed, &start.chars().rev().collect::<String>());
        starts.filter(ends_a_token).last().unwrap_or_default()
    }

    /// Cuts a text at its added tokens. What overlaps one of the `literals` is text whatever it spells; they are in
    /// ascending order.
    pub(crate) fn split(&self, text: &str, literals: &[Range<usize>]) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut done = 0;
        let mut at = 0;
        let mut literals = literals.iter().peekable();
        while let Some(found) = self.automaton.find(Input::new(text).range(at..)) {
            while literals.next_if(|literal| literal.end <= found.start()).is_some() {}
            if literals.peek().is_some_and(|literal| literal.start < found.end()) {
                at = found.start() + text[found.start()..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
            let (id, strip) = self.tokens[found.pattern().as_usize()];
            let before = &text[done..found.start()];
            let before = if strip.left { before.trim_end() } else { before };
            if !before.is_empty() {
                segments.push(Segment::Text(done..done + before.len()));
            }
            segments.push(Segment::Token { id, range: found.range() });
            done = found.end();
            if strip.right {
                done += text[done..].len() - text[done..].trim_start().len();
            }
            at = done;
        }
        if done < text.len() {
            segments.push(Segment::Text(done..text.len()));
        }
        segments
    }

    /// Where in a text the tokens are spelled out.
    pub(crate) fn places(&self, text: &str) -> Vec<Range<usize>> {
        self.automaton.find_iter(text).map(|found| found.range()).collect()
    }
}

/// Whether one of the texts, which are in ascending order, starts with `start` and goes on.
fn is_proper_start(texts: &[Box<str>], start: &str) -> bool {
    let next = texts.partition_point(|text| &**text <= start);
    texts.get(next).is_some_and(|text| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::vocabulary::Spelling;

    fn tokens(wanted: TokenKind) -> AddedTokens {
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
        let strip = |_, text: &str| Strip { left: false, right: text == "<|end|>" };
        AddedTokens::new(&vocabulary, |kind| kind == wanted, strip).unwrap()
    }

    #[track_caller]
    fn check(kind: TokenKind, text: &str, literals: &[Range<usize>], expected: &[Segment]) {
        assert_eq!(tokens(kind).split(text, literals), expected, "{text:?}");
    }

    #[test]
    fn the_longest_token_wins_and_an_empty_text_has_no_segments() {
        let two_and_three = [Segment::Token { id: 2, range: 0..3 }, Segment::Token { id: 1, range: 3..5 }];
        check(TokenKind::UserDefined, "     ", &[], &two_and_three);
        check(TokenKind::UserDefined, "", &[], &[]);
    }

    #[test]
    fn swallowed_white_space_belongs_to_nobody_else() {
        let expected = [Segment::Token { id: 4, range: 0..7 }, Segment::Text(13..14)];
        check(TokenKind::Control, "<|end|> \n    x", &[], &expected);
    }

    #[test]
    fn the_open_ends_of_a_text_are_parts_of_tokens() {
        let tokens = tokens(TokenKind::Control);
        for (text, start, end) in [
            ("a<|en", "", "<|en"),
            ("d|> x <", "d|>", "<"),
            ("<|end|>", "", ""),
            ("|end|>", "|end|>", ""),
            ("<|end|", "", "<|end|"),
            ("<", "", "<"),
            (">", ">", ""),
            ("", "", ""),
            ("é<s", "", "<s"),
        ] {
            assert_eq!((tokens.open_start(text), tokens.open_end(text)), (start, end), "{text:?}");
        }
    }

    #[test]
    fn what_overlaps_a_literal_is_text() {
        let text = "<s><s><s>";
        let expected =
            [Segment::Token { id: 0, range: 0..3 }, Segment::Text(3..6), Segment::Token { id: 0, range: 6..9 }];
        check(TokenKind::Control, text, &[3..4, 5..6], &expected);
        check(TokenKind::Control, text, &[0..1, 4..5, 8..9], &[Segment::Text(0..9)]);
    }
}
