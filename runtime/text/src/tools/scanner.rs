//! What a tool format reads a reply with.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use super::{
    channel::Channel,
    ids::CallIds,
    reply::{Ending, Piece, ReplyEvent},
    schema::ToolSchemas,
};
use crate::ReasoningTags;

/// Whether a text is one token of the vocabulary, so that it counts only where the model wrote that token.
pub type IsToken = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Why what looked like a call is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The reply ended inside it.
    Ended,
    /// It does not follow the format.
    Malformed,
}

/// Shorthand for what reads a part of a call.
pub type Read<T> = std::result::Result<T, Broken>;

/// Reads a reply that is still being written: every method waits until the text it needs is there.
///
/// A format is an async function over a scanner, which reads like a parser of whole text. There is no executor behind
/// it: the [`ReplyParser`](crate::ReplyParser) continues the function whenever it is given more text.
///
/// Text that a format passes over between [`content_until`](Self::content_until) and [`end_block`](Self::end_block) is
/// kept, so that [`abandon`](Self::abandon) can give it back as it was.
pub struct Scanner {
    wire: Arc<Mutex<Wire>>,
    tools: Arc<ToolSchemas>,
    reasoning: Option<ReasoningTags>,
    /// Whether the reply starts inside a block of reasoning that is yet to be read.
    opens_in_reasoning: bool,
    is_token: Option<IsToken>,
    stream_arguments: bool,
    ids: CallIds,

    /// Text not read yet begins at `read`.
    buffer: String,
    read: usize,
    /// Where in `buffer` tokens stand that were written as tokens, in order.
    tokens: VecDeque<TokenPlace>,
    ending: Option<Ending>,
    events: Vec<ReplyEvent>,
    content: Channel,
    thoughts: Channel,
    /// The text of the call being read, as written.
    block: Option<String>,
    call: Option<OpenCall>,
    /// Calls told so far.
    calls: usize,
}

/// What a parser and the scanner inside it hand to each other.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) inbox: VecDeque<Piece>,
    pub(super) ending: Option<Ending>,
    pub(super) outbox: Vec<ReplyEvent>,
}

/// How a scanner is set.
pub(super) struct Settings {
    pub(super) tools: Arc<ToolSchemas>,
    pub(super) reasoning: Option<ReasoningTags>,
    pub(super) starts_in_reasoning: bool,
    pub(super) is_token: Option<IsToken>,
    pub(super) stream_arguments: bool,
    pub(super) id_seed: u64,
}

struct TokenPlace {
    start: usize,
    end: usize,
    hidden: bool,
}

/// A call whose end is not read yet.
struct OpenCall {
    id: String,
    name: String,
    /// Arguments written and not told yet.
    arguments: String,
    /// Where in the block the arguments stand that are passed on as written.
    verbatim_from: Option<usize>,
}

/// Which way text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Content,
    Reasoning,
}

/// How far a literal stands at a place.
enum Found {
    Yes,
    No,
    /// As far as the text goes.
    Partly,
}

impl Scanner {
    pub(super) fn new(wire: Arc<Mutex<Wire>>, settings: Settings) -> Scanner {
        Scanner {
            wire,
            tools: settings.tools,
            opens_in_reasoning: settings.starts_in_reasoning,
            reasoning: settings.reasoning,
            is_token: settings.is_token,
            stream_arguments: settings.stream_arguments,
            ids: CallIds::new(settings.id_seed),
            buffer: String::new(),
            read: 0,
            tokens: VecDeque::new(),
            ending: None,
            events: Vec::new(),
            content: Channel::default(),
            thoughts: Channel::default(),
            block: None,
            call: None,
            calls: 0,
        }
    }

    /// The declared tools.
    pub fn tools(&self) -> &ToolSchemas {
        &self.tools
    }

    /// Whether the prompt left a block of reasoning open that has not been read yet, for a format that reads reasoning
    /// itself. Asking settles it: the scanner will not read the block then.
    pub fn take_open_reasoning(&mut self) -> bool {
        std::mem::take(&mut self.opens_in_reasoning)
    }

    /// Whether no content has been told yet.
    pub fn is_at_start(&self) -> bool {
        !self.content.started
    }

    // Looking ahead.

    /// The next character, without reading it. `None` at the end of the reply.
    pub async fn peek(&mut self) -> Option<char> {
        loop {
            match self.unread().chars().next() {
                Some(next) => return Some(next),
                None if self.more().await => {}
                None => return None,
            }
        }
    }

    /// Which of the literals comes next, without reading it.
    pub async fn looking_at(&mut self, literals: &[&str]) -> Option<usize> {
        loop {
            let mut undecided = false;
            for (which, literal) in literals.iter().enumerate() {
                match self.literal_at(self.read, literal) {
                    Found::Yes => return Some(which),
                    Found::Partly => undecided = true,
                    Found::No => {}
                }
            }
            if !undecided || !self.more().await {
                return None;
            }
        }
    }

    /// Whether some wanted characters, but no more than `longest`, and then one of the literals come next, without
    /// reading them.
    pub(super) async fn looking_past(
        &mut self,
        wanted: impl Fn(char) -> bool + Send,
        longest: usize,
        literals: &[&str],
    ) -> bool {
        loop {
            let unread = self.unread();
            let len = unread.find(|c| !wanted(c)).unwrap_or(unread.len());
            if len > longest || len == 0 && !unread.is_empty() {
                return false;
            }
            let mut undecided = len == unread.len();
            for literal in literals {
                match self.literal_at(self.read + len, literal) {
                    Found::Yes => return len > 0,
                    Found::Partly => undecided = true,
                    Found::No => {}
                }
            }
            if !undecided || !self.more().await {
                return false;
            }
        }
    }

    // Reading.

    /// Reads a literal if it comes next.
    pub async fn eat(&mut self, literal: &str) -> bool {
        let found = self.looking_at(&[literal]).await.is_some();
        if found {
            self.advance(literal.len());
        }
        found
    }

    /// Reads a literal.
    ///
    /// # Errors
    /// As [`expect_any`](Self::expect_any).
    pub async fn expect(&mut self, literal: &str) -> Read<()> {
        self.expect_any(&[literal]).await.map(|_| ())
    }

    /// Reads one of the literals; says which.
    ///
    /// # Errors
    /// `Malformed` if something else comes next, `Ended` if the reply ends before that can be told.
    pub async fn expect_any(&mut self, literals: &[&str]) -> Read<usize> {
        if let Some(which) = self.looking_at(literals).await {
            self.advance(literals[which].len());
            return Ok(which);
        }
        let begins = |literal: &&str| literal.starts_with(self.unread());
        Err(if self.ending.is_some() && literals.iter().any(begins) { Broken::Ended } else { Broken::Malformed })
    }

    /// Reads a character.
    ///
    /// # Errors
    /// `Ended` if there is none.
    pub async fn char(&mut self) -> Read<char> {
        let next = self.peek().await.ok_or(Broken::Ended)?;
        self.advance(next.len_utf8());
        Ok(next)
    }

    /// Reads characters as long as they are wanted. At the end of the reply that is all of them.
    pub async fn run(&mut self, wanted: impl Fn(char) -> bool + Send) -> String {
        let mut text = String::new();
        loop {
            let unread = self.unread();
            let len = unread.find(|c| !wanted(c)).unwrap_or(unread.len());
            let stops_here = len < unread.len();
            text.push_str(&unread[..len]);
            self.advance(len);
            if stops_here || !self.more().await {
                return text;
            }
        }
    }

    /// Reads white space.
    pub async fn space(&mut self) {
        self.run(char::is_whitespace).await;
    }

    /// Reads up to the first of some literals, and that too; says which it was. The text comes back without it.
    ///
    /// # Errors
    /// `Ended` if none comes.
    pub async fn text_until(&mut self, literals: &[&str]) -> Read<(String, usize)> {
        let mut text = String::new();
        let which = self.pass_until(literals, |_, piece| text.push_str(piece)).await?;
        Ok((text, which))
    }

    /// [`text_until`](Self::text_until), handing the text on as it comes.
    ///
    /// # Errors
    /// `Ended` if none comes.
    pub async fn pass_until(&mut self, literals: &[&str], each: impl FnMut(&mut Scanner, &str) + Send) -> Read<usize> {
        let which = self.pass_before(literals, each).await.ok_or(Broken::Ended)?;
        self.advance(literals[which].len());
        Ok(which)
    }

    /// Reads up to the first of some literals, but not that, handing the text on as it comes. `None` at the end of the
    /// reply.
    pub async fn pass_before(
        &mut self,
        literals: &[&str],
        mut each: impl FnMut(&mut Scanner, &str) + Send,
    ) -> Option<usize> {
        loop {
            let (len, found) = self.find(literals);
            let piece = self.unread()[..len].to_owned();
            self.advance(len);
            if !piece.is_empty() {
                each(self, &piece);
            }
            if found.is_some() || self.is_over().await {
                return found;
            }
        }
    }

    // Text for the reader.

    /// Passes content on until one of the markers, and reads that too; says which it was. `None` at the end of the
    /// reply. Blocks of reasoning on the way are passed on as such. A block begins with the marker. No marker may be
    /// the beginning of another one.
    pub async fn content_until(&mut self, markers: &[&str]) -> Option<usize> {
        self.end_block();
        let tags = self.reasoning.clone();
        let mut literals = markers.to_vec();
        literals.extend(tags.iter().map(|tags| tags.open.as_str()));
        if self.take_open_reasoning() {
            self.reasoning_block(tags.as_ref()).await;
        }
        loop {
            let which = self.say_until(Way::Content, &literals).await?;
            self.content.gap = true;
            if which < markers.len() {
                self.begin_block();
                self.advance(markers[which].len());
                return Some(which);
            }
            self.advance(literals[which].len());
            self.reasoning_block(tags.as_ref()).await;
        }
    }

    /// Passes on what may stand before the first content: white space and reasoning.
    pub async fn pass_opening(&mut self) {
        let tags = self.reasoning.clone();
        if self.take_open_reasoning() {
            self.reasoning_block(tags.as_ref()).await;
        }
        loop {
            let space = self.run(char::is_whitespace).await;
            self.say(Way::Content, &space);
            let Some(tags) = &tags else { return };
            if !self.eat(&tags.open).await {
                return;
            }
            self.content.gap = true;
            self.reasoning_block(Some(tags)).await;
        }
    }

    /// Passes reasoning on until one of the markers, and reads that too. `None` at the end of the reply. For formats
    /// that have more than a pair of tags for it.
    pub async fn reasoning_until(&mut self, markers: &[&str]) -> Option<usize> {
        self.end_block();
        self.thoughts.separate();
        let which = self.say_until(Way::Reasoning, markers).await?;
        self.thoughts.gap = true;
        self.advance(markers[which].len());
        Some(which)
    }

    async fn reasoning_block(&mut self, tags: Option<&ReasoningTags>) {
        if let Some(tags) = tags {
            self.reasoning_until(&[&tags.close]).await;
            self.content.gap = true;
        }
    }

    /// Passes on everything up to one of the markers.
    async fn say_until(&mut self, way: Way, markers: &[&str]) -> Option<usize> {
        loop {
            let (len, found) = self.find(markers);
            let visible = self.visible(len);
            self.advance(len);
            self.say(way, &visible);
            if found.is_some() || self.is_over().await {
                return found;
            }
        }
    }

    /// Separates what follows from the content so far, where neither brings white space.
    pub fn separate_content(&mut self) {
        self.content.separate();
    }

    /// Passes text on, as content or as reasoning.
    fn say(&mut self, way: Way, text: &str) {
        let channel = match way {
            Way::Content => &mut self.content,
            Way::Reasoning => &mut self.thoughts,
        };
        let text = channel.write(text);
        self.tell(way, text);
    }

    fn tell(&mut self, way: Way, text: String) {
        if !text.is_empty() {
            self.events.push(match way {
                Way::Content => ReplyEvent::Text(text),
                Way::Reasoning => ReplyEvent::Reasoning(text),
            });
        }
    }

    // Calls.

    /// Begins to keep what is read, without a marker.
    pub fn begin_block(&mut self) {
        self.block = Some(String::new());
    }

    /// Forgets what was kept so far: a call in the block is told, and the next one stands on its own.
    pub fn restart_block(&mut self) {
        if self.block.is_some() {
            self.begin_block();
        }
    }

    /// Ends the block: all of it was markup.
    pub fn end_block(&mut self) {
        if self.block.take().is_some() {
            self.content.gap = true;
        }
    }

    /// The block so far, as written.
    pub fn block(&self) -> &str {
        self.block.as_deref().unwrap_or_default()
    }

    /// Gives the block back as content: it was no call.
    pub fn release_block(&mut self) {
        self.drop_call();
        let text = self.block.take().unwrap_or_default();
        self.say(Way::Content, &text);
    }

    /// Gives up on a call. Cut off by the limit, it is told as incomplete; otherwise the block is content, up to and
    /// including the first of `closers`, so that nothing inside a broken call is taken for another.
    pub async fn abandon(&mut self, broken: Broken, closers: &[&str]) {
        if broken == Broken::Ended && self.ending == Some(Ending::Length) {
            self.drop_call();
            let mut text = self.block.take().unwrap_or_default();
            text.push_str(self.unread());
            self.advance(self.buffer.len() - self.read);
            self.content.gap = true;
            self.events.push(ReplyEvent::Incomplete(text));
            return;
        }
        tracing::warn!("a tool call is malformed; its text is kept as content");
        self.release_block();
        if broken == Broken::Malformed
            && !closers.is_empty()
            && let Some(which) = self.say_until(Way::Content, closers).await
        {
            self.advance(closers[which].len());
            self.say(Way::Content, closers[which]);
        }
    }

    /// Settles a call that runs to the end of the reply.
    ///
    /// # Errors
    /// `Ended` if it was a limit that ended it.
    pub fn expect_own_end(&self) -> Read<()> {
        if self.ending == Some(Ending::Length) { Err(Broken::Ended) } else { Ok(()) }
    }

    /// Begins a call. Without an id of the model's own it gets one.
    ///
    /// # Errors
    /// `Malformed` if the name is empty, or if no tools are declared, so that nothing can be called.
    pub fn begin_call(&mut self, id: Option<String>, name: &str) -> Read<()> {
        if name.is_empty() || self.tools.is_empty() {
            return Err(Broken::Malformed);
        }
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| self.ids.id(self.calls));
        if self.stream_arguments {
            self.events.push(ReplyEvent::ToolCallStart { index: self.calls, id: id.clone(), name: name.to_owned() });
        }
        self.call = Some(OpenCall { id, name: name.to_owned(), arguments: String::new(), verbatim_from: None });
        Ok(())
    }

    /// Adds to the JSON text of the arguments.
    pub fn arguments(&mut self, json: &str) {
        if let Some(call) = &mut self.call {
            call.arguments.push_str(json);
        }
    }

    /// Adds to a string inside the arguments, escaping as JSON asks.
    pub fn arguments_text(&mut self, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        self.arguments(&quoted[1..quoted.len() - 1]);
    }

    /// Passes what is read from here on as arguments, as written, until [`verbatim_end`](Self::verbatim_end).
    pub(super) fn verbatim_begin(&mut self) {
        let from = self.block().len();
        if let Some(call) = &mut self.call {
            call.verbatim_from = Some(from);
        }
    }

    pub(super) fn verbatim_end(&mut self) {
        self.copy_verbatim();
        if let Some(call) = &mut self.call {
            call.verbatim_from = None;
        }
    }

    /// Ends a call: it is certain now, and told.
    pub fn end_call(&mut self) {
        self.verbatim_end();
        let Some(call) = self.call.take() else { return };
        let index = self.calls;
        if !self.stream_arguments {
            self.events.push(ReplyEvent::ToolCallStart { index, id: call.id, name: call.name });
        }
        if !call.arguments.is_empty() {
            self.events.push(ReplyEvent::ArgumentsDelta { index, text: call.arguments });
        }
        self.events.push(ReplyEvent::ToolCallEnd { index });
        self.calls += 1;
        self.restart_block();
    }

    fn drop_call(&mut self) {
        if self.call.take().is_some() && self.stream_arguments {
            self.events.push(ReplyEvent::ToolCallAbandoned { index: self.calls });
        }
    }

    fn copy_verbatim(&mut self) {
        let (Some(call), Some(block)) = (&mut self.call, &self.block) else { return };
        if let Some(from) = call.verbatim_from {
            call.arguments.push_str(&block[from..]);
            call.verbatim_from = Some(block.len());
        }
    }

    /// Tells the arguments there are, if they are to be told while the call is written.
    fn tell_arguments(&mut self) {
        if !self.stream_arguments {
            return;
        }
        self.copy_verbatim();
        let index = self.calls;
        if let Some(call) = self.call.as_mut().filter(|call| !call.arguments.is_empty()) {
            let text = std::mem::take(&mut call.arguments);
            self.events.push(ReplyEvent::ArgumentsDelta { index, text });
        }
    }

    // The text behind it.

    /// Passes on what a format left unread, and the white space held at the end.
    pub(super) async fn finish(&mut self) {
        while self.content_until(&[]).await.is_some() {}
        let (content, thoughts) = (self.content.end(), self.thoughts.end());
        self.tell(Way::Reasoning, thoughts);
        self.tell(Way::Content, content);
        self.hand_over();
    }

    fn unread(&self) -> &str {
        &self.buffer[self.read..]
    }

    /// Waits for more text. False at the end of the reply.
    async fn more(&mut self) -> bool {
        poll_fn(|_| {
            self.hand_over();
            let wire = Arc::clone(&self.wire);
            let mut wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
            if wire.inbox.is_empty() {
                self.ending = wire.ending;
                return if wire.ending.is_some() { Poll::Ready(false) } else { Poll::Pending };
            }
            self.drop_read();
            wire.inbox.drain(..).for_each(|piece| self.append(piece));
            Poll::Ready(true)
        })
        .await
    }

    /// Waits for more text. True if there is none and all is read: what looked like the beginning of a literal is text
    /// then.
    async fn is_over(&mut self) -> bool {
        !self.more().await && self.unread().is_empty()
    }

    /// Hands over what there is to tell.
    fn hand_over(&mut self) {
        self.tell_arguments();
        self.wire.lock().unwrap_or_else(PoisonError::into_inner).outbox.append(&mut self.events);
    }

    fn append(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.buffer.push_str(&text),
            Piece::Token { text, hidden } => {
                let start = self.buffer.len();
                self.buffer.push_str(&text);
                self.tokens.push_back(TokenPlace { start, end: self.buffer.len(), hidden });
            }
        }
    }

    /// Forgets what is read.
    fn drop_read(&mut self) {
        let read = std::mem::take(&mut self.read);
        self.buffer.drain(..read);
        self.tokens.retain_mut(|place| {
            let unread = place.start >= read;
            if unread {
                place.start -= read;
                place.end -= read;
            }
            unread
        });
    }

    fn advance(&mut self, len: usize) {
        let to = self.read + len;
        if let Some(block) = &mut self.block {
            block.push_str(&self.buffer[self.read..to]);
        }
        self.read = to;
        while self.tokens.front().is_some_and(|place| place.start < to) {
            self.tokens.pop_front();
        }
    }

    /// The next bytes, without the tokens that are not for the reader.
    fn visible(&self, len: usize) -> String {
        let (mut from, to) = (self.read, self.read + len);
        let mut text = String::new();
        for place in self.tokens.iter().filter(|place| place.hidden && place.end <= to) {
            text.push_str(&self.buffer[from..place.start]);
            from = place.end;
        }
        text.push_str(&self.buffer[from..to]);
        text
    }

    /// How many bytes come before the first literal, or before what may become one; and which it is, if it is there.
    fn find(&self, literals: &[&str]) -> (usize, Option<usize>) {
        let unread = self.unread();
        let begins = |c: char| literals.iter().any(|literal| literal.starts_with(c));
        for (len, _) in unread.match_indices(begins) {
            let mut undecided = false;
            for (which, literal) in literals.iter().enumerate() {
                match self.literal_at(self.read + len, literal) {
                    Found::Yes => return (len, Some(which)),
                    Found::Partly => undecided = true,
                    Found::No => {}
                }
            }
            if undecided {
                return (len, None);
            }
        }
        (unread.len(), None)
    }

    /// How far a literal stands at a place of the buffer. One that is a token of the vocabulary counts only as that
    /// token.
    fn literal_at(&self, place: usize, literal: &str) -> Found {
        let text = &self.buffer[place..];
        if text.starts_with(literal) {
            let written_as_token =
                || self.tokens.iter().any(|token| token.start == place && token.end == place + literal.len());
            let is_token = self.is_token.as_ref().is_some_and(|is_token| is_token(literal));
            if !is_token || written_as_token() { Found::Yes } else { Found::No }
        } else if self.ending.is_none() && literal.starts_with(text) {
            Found::Partly
        } else {
            Found::No
        }
    }
}
