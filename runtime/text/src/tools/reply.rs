//! A reply as it comes: what is content, what is reasoning, what is a call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{
    ToolFormat, ToolFormats,
    scanner::{IsToken, Scanner, Settings, Wire},
    schema::ToolSchemas,
};
use crate::ReasoningTags;

/// A part of a reply. All parts of a kind, put together in order, are the whole: see [`ParsedReply::add`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyEvent {
    /// Content for the reader.
    Text(String),
    /// What the model thinks before it answers.
    Reasoning(String),
    /// A call begins.
    ToolCallStart {
        /// Its place among the calls of the reply.
        index: usize,
        /// The model's id for it, or one of nine letters and digits.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of a call's arguments, which are JSON text.
    ArgumentsDelta {
        /// The call.
        index: usize,
        /// The text that follows.
        text: String,
    },
    /// A call is complete and well-formed.
    ToolCallEnd {
        /// The call.
        index: usize,
    },
    /// A call that began is none after all: what was told of it is void, and its index will be used again. Only with
    /// [`ReplyOptions::stream_arguments`]. Its text follows as `Text` or as `Incomplete`.
    ToolCallAbandoned {
        /// The call.
        index: usize,
    },
    /// The limit cut a call off. This is its text, as written.
    Incomplete(String),
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The model's id, or one of nine letters and digits.
    pub id: String,
    /// The tool.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParsedReply {
    /// What the reader sees.
    pub content: String,
    /// What the model thought.
    pub reasoning: String,
    /// The calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The text of a call that the limit cut off.
    pub incomplete: Option<String>,
}

impl ParsedReply {
    /// Adds a part.
    pub fn add(&mut self, event: ReplyEvent) {
        match event {
            ReplyEvent::Text(text) => self.content.push_str(&text),
            ReplyEvent::Reasoning(text) => self.reasoning.push_str(&text),
            ReplyEvent::ToolCallStart { index: _, id, name } => {
                self.tool_calls.push(ToolCall { id, name, arguments: String::new() });
            }
            ReplyEvent::ArgumentsDelta { index, text } => {
                if let Some(call) = self.tool_calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
            ReplyEvent::ToolCallEnd { .. } => {}
            ReplyEvent::ToolCallAbandoned { index } => self.tool_calls.truncate(index),
            ReplyEvent::Incomplete(text) => self.incomplete = Some(text),
        }
    }
}

impl FromIterator<ReplyEvent> for ParsedReply {
    fn from_iter<I: IntoIterator<Item = ReplyEvent>>(events: I) -> ParsedReply {
        let mut reply = ParsedReply::default();
        events.into_iter().for_each(|event| reply.add(event));
        reply
    }
}

/// How the text of a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended it, or a stop string did.
    Stop,
    /// A limit or a cancellation cut it off.
    Length,
}

/// What a parser is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text, whole characters.
    Text(String),
    /// A token that is markup: an added token of the vocabulary, written by its id.
    Token {
        /// Its text.
        text: String,
        /// Whether it is left out of content and reasoning, as special tokens are.
        hidden: bool,
    },
}

impl From<&str> for Piece {
    fn from(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }
}

/// How a reply is to be read.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ReplyOptions {
    /// How the model writes calls. `None`: it writes none.
    pub format: Option<Arc<dyn ToolFormat>>,
    /// The tools of the request. Without any, what looks like a call is content.
    pub tools: ToolSchemas,
    /// The tags around reasoning. `None`: all is content.
    pub reasoning: Option<ReasoningTags>,
    /// Whether the prompt left a block of reasoning open: see [`ReasoningTags::opened_by`].
    pub starts_in_reasoning: bool,
    /// Which markers are tokens of the vocabulary and therefore count only as [`Piece::Token`]. `None`: none are, all
    /// is text.
    pub is_token: Option<IsToken>,
    /// Tells arguments while the call is still being written, instead of a whole call once it is known to be one. A
    /// call that turns out to be malformed is then taken back by [`ReplyEvent::ToolCallAbandoned`], which not every
    /// wire format can say.
    pub stream_arguments: bool,
    /// Where the ids of calls come from that the model gives none. A host gives every reply its own.
    pub id_seed: u64,
}

impl ReplyOptions {
    /// How the replies of a model are read: by what its chat template shows, or else by the format its family names.
    pub fn for_model(template: Option<&str>, convention: Option<&str>) -> ReplyOptions {
        let format = ToolFormats::linked().choose(template, convention);
        let by_template = template.and_then(ReasoningTags::detect);
        let reasoning = by_template.or_else(|| format.as_ref().and_then(|format| format.reasoning()));
        ReplyOptions { format, reasoning, ..ReplyOptions::default() }
    }
}

impl fmt::Debug for ReplyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyOptions")
            .field("format", &self.format.as_ref().map(|format| format.name()))
            .field("tools", &self.tools)
            .field("reasoning", &self.reasoning)
            .field("starts_in_reasoning", &self.starts_in_reasoning)
            .field("stream_arguments", &self.stream_arguments)
            .finish_non_exhaustive()
    }
}

/// Splits the text of a reply into content, reasoning and calls, as it comes.
///
/// How the text is cut into pieces makes no difference to what is told in all. White space between markup and text is
/// layout and left out; content without markup is passed on as it is. A call is told when it is complete and
/// well-formed; otherwise its text stays content, markers included.
///
/// # Cost
/// Linear in the text. What is held back is white space, the beginning of a marker, or a call.
///
/// # Example
/// ```
/// use kinfolk_text::{Ending, ReplyOptions, ReplyParser, ToolSchemas};
///
/// let mut options = ReplyOptions::for_model(None, Some("hermes"));
/// options.tools = ToolSchemas::new(&[serde_json::json!({"name": "ping"})]);
/// let text = "One moment.\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
/// let reply = ReplyParser::parse(options, text, Ending::Stop);
/// assert_eq!((reply.content.as_str(), reply.tool_calls[0].name.as_str()), ("One moment.", "ping"));
/// ```
pub struct ReplyParser {
    wire: Arc<Mutex<Wire>>,
    /// The format at work, until it is done.
    reading: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for ReplyParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyParser").finish_non_exhaustive()
    }
}

impl ReplyParser {
    /// A parser at the start of a reply.
    pub fn new(options: ReplyOptions) -> ReplyParser {
        let wire = Arc::new(Mutex::new(Wire::default()));
        let settings = Settings {
            tools: Arc::new(options.tools),
            reasoning: options.reasoning,
            starts_in_reasoning: options.starts_in_reasoning,
            is_token: options.is_token,
            stream_arguments: options.stream_arguments,
            id_seed: options.id_seed,
        };
        let mut scanner = Scanner::new(Arc::clone(&wire), settings);
        let reading = Box::pin(async move {
            if let Some(format) = &options.format {
                format.read(&mut scanner).await;
            }
            scanner.finish().await;
        });
        ReplyParser { wire, reading: Some(reading) }
    }

    /// Takes a piece; returns what it makes certain.
    pub fn push(&mut self, piece: impl Into<Piece>) -> Vec<ReplyEvent> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner).inbox.push_back(piece.into());
        self.proceed()
    }

    /// Ends the reply; returns what was held. What is pushed later is lost.
    pub fn finish(&mut self, ending: Ending) -> Vec<ReplyEvent> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner).ending = Some(ending);
        self.proceed()
    }

    /// Reads a whole text.
    pub fn parse(options: ReplyOptions, text: &str, ending: Ending) -> ParsedReply {
        let mut parser = ReplyParser::new(options);
        let mut events = parser.push(text);
        events.extend(parser.finish(ending));
        events.into_iter().collect()
    }

    /// Lets the format read as far as the text goes.
    fn proceed(&mut self) -> Vec<ReplyEvent> {
        if let Some(reading) = &mut self.reading {
            // The format waits for text alone, and is asked again whenever there is some: nobody needs to be woken.
            if let Poll::Ready(()) = reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                self.reading = None;
            }
        }
        std::mem::take(&mut self.wire.lock().unwrap_or_else(PoisonError::into_inner).outbox)
    }
}
