//! From the tokens of a reply to its parts.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use super::reply::{Ending, Piece, ReplyEvent, ReplyParser};
use crate::{
    Detokenizer, Pushed, ReplyOptions, StopStrings, Text, Tokenizer,
    tokenizer::vocabulary::{TokenKind, Vocabulary},
};

impl Text {
    /// How the replies of this model are read: as its chat templates show, or else as its family's `convention` names.
    pub fn reply_options(&self, convention: Option<&str>) -> ReplyOptions {
        let text = self.template.as_ref().map(|template| template.text());
        ReplyOptions::for_model(text.as_deref(), convention)
    }
}

/// Makes the parts of a reply of its tokens: text, stop strings, then content, reasoning and calls.
///
/// Stop strings are looked for in all the text of the reply, reasoning and calls included, as they are in other
/// runtimes.
#[derive(Debug)]
pub struct ReplyDecoder<'a> {
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer,
    stops: StopStrings,
    parser: ReplyParser,
    /// Where in the text the markup tokens stand that are not given to the parser yet, and whether they are hidden.
    markup: VecDeque<(Range<usize>, bool)>,
    /// Bytes of text so far, and how many of them the parser has.
    len: usize,
    parsed: usize,
}

impl<'a> ReplyDecoder<'a> {
    /// A decoder at the start of a reply. Which markers are tokens is the tokenizer's to say, whatever `options` has.
    pub fn new(tokenizer: &'a Tokenizer, stops: StopStrings, mut options: ReplyOptions) -> ReplyDecoder<'a> {
        let vocabulary = Arc::clone(tokenizer.vocabulary());
        options.is_token = Some(Arc::new(move |text| vocabulary.id(text).is_some_and(|id| is_markup(&vocabulary, id))));
        ReplyDecoder {
            tokenizer,
            detokenizer: tokenizer.detokenizer(true),
            stops,
            parser: ReplyParser::new(options),
            markup: VecDeque::new(),
            len: 0,
            parsed: 0,
        }
    }

    /// Takes a token; returns what it makes certain.
    pub fn push(&mut self, id: u32) -> Vec<ReplyEvent> {
        let mut text = self.detokenizer.push(id);
        if is_markup(self.tokenizer.vocabulary(), id) {
            let spelling = self.tokenizer.token_text(id).unwrap_or_default();
            if text.is_empty() {
                text.clone_from(&spelling);
            }
            // Before the token may stand the replacement of a character that it broke off.
            let start = text.strip_suffix(spelling.as_str()).map_or(0, str::len);
            self.markup.push_back((self.len + start..self.len + text.len(), self.tokenizer.is_special(id)));
        }
        self.len += text.len();
        let pushed = self.stops.push(&text);
        self.parse(&pushed)
    }

    /// The place in the list of the stop string that ended the reply.
    pub fn stopped(&self) -> Option<usize> {
        self.stops.stopped()
    }

    /// Ends the reply; returns what was held. A stop string that ended it counts as the model's own end, also one that becomes certain
    /// only now: [`stopped`](Self::stopped) knows it afterwards. What is pushed later is lost.
    pub fn finish(&mut self, ending: Ending) -> Vec<ReplyEvent> {
        let text = std::mem::replace(&mut self.detokenizer, self.tokenizer.detokenizer(true)).finish();
        self.len += text.len();
        let mut pushed = self.stops.push(&text);
        let mut events = self.parse(&pushed);
        pushed = self.stops.finish();
        events.extend(self.parse(&pushed));
        events.extend(self.parser.finish(if self.stops.stopped().is_some() { Ending::Stop } else { ending }));
        events
    }

    /// Gives the parser what the stop strings let through, markup as such.
    fn parse(&mut self, pushed: &Pushed) -> Vec<ReplyEvent> {
        let mut rest = pushed.text.as_str();
        let mut events = Vec::new();
        while !rest.is_empty() {
            let next = self.markup.front().map_or(usize::MAX, |(range, _)| range.start);
            let (piece, len) = match self.markup.front() {
                Some((range, hidden)) if next == self.parsed && rest.len() >= range.len() => {
                    let text = rest[..range.len()].to_owned();
                    let hidden = *hidden;
                    let len = text.len();
                    self.markup.pop_front();
                    (Piece::Token { text, hidden }, len)
                }
                // A stop string that ends inside a token leaves text.
                Some(_) if next == self.parsed => (Piece::from(rest), rest.len()),
                _ => {
                    let len = rest.len().min(next - self.parsed);
                    (Piece::from(&rest[..len]), len)
                }
            };
            events.extend(self.parser.push(piece));
            rest = &rest[len..];
            self.parsed += len;
        }
        events
    }
}

/// Whether a token stands for more than the characters it is spelled with: the model's makers added it.
fn is_markup(vocabulary: &Vocabulary, id: u32) -> bool {
    matches!(vocabulary.kind(id), Some(TokenKind::Control | TokenKind::UserDefined))
}
