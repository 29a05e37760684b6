//! How models call tools, and how a reply is split into content, reasoning and calls.

mod channel;
mod decoder;
mod formats;
mod ids;
mod json;
mod literal;
mod markup;
mod reply;
mod scanner;
mod schema;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

pub use self::{
    decoder::ReplyDecoder,
    reply::{Ending, ParsedReply, Piece, ReplyEvent, ReplyOptions, ReplyParser, ToolCall},
    scanner::{Broken, IsToken, Read, Scanner},
    schema::{AllowedTypes, ToolSchemas},
};
use crate::ReasoningTags;

/// A format at work on a reply.
pub type Reading<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A way to write calls of tools.
///
/// A family whose models have their own implements it and enrols it with
/// [`submit_tool_format!`](crate::submit_tool_format).
///
/// # Example
/// ```
/// use kinfolk_text::{Reading, Read, Scanner, ToolFormat};
///
/// /// `CALL name {json};`
/// struct Shout;
///
/// impl ToolFormat for Shout {
///     fn name(&self) -> &str {
///         "shout"
///     }
///     fn recognises(&self, template: &str) -> bool {
///         template.contains("CALL ")
///     }
///     fn read<'a>(&'a self, reply: &'a mut Scanner) -> Reading<'a> {
///         Box::pin(async move {
///             while reply.content_until(&["CALL "]).await.is_some() {
///                 if let Err(broken) = call(reply).await {
///                     reply.abandon(broken, &[";"]).await;
///                 }
///             }
///         })
///     }
/// }
///
/// async fn call(reply: &mut Scanner) -> Read<()> {
///     let (name, _) = reply.text_until(&[" "]).await?;
///     reply.begin_call(None, &name)?;
///     reply.json_arguments().await?;
///     reply.expect(";").await?;
///     reply.end_call();
///     Ok(())
/// }
///
/// kinfolk_text::submit_tool_format!(Shout);
/// # fn main() {
/// let mut options = kinfolk_text::ReplyOptions::default();
/// options.format = kinfolk_text::ToolFormats::linked().get("shout");
/// options.tools = kinfolk_text::ToolSchemas::new(&[serde_json::json!({"name": "ping"})]);
/// let reply = kinfolk_text::ReplyParser::parse(options, r#"Hm. CALL ping {"a": ";"};"#, kinfolk_text::Ending::Stop);
/// assert_eq!((reply.content.as_str(), reply.tool_calls[0].arguments.as_str()), ("Hm.", r#"{"a": ";"}"#));
/// # }
/// ```
pub trait ToolFormat: Send + Sync {
    /// The name that families and hosts choose it by.
    fn name(&self) -> &str;

    /// Other names it goes by.
    fn aliases(&self) -> &[&str] {
        &[]
    }

    /// Whether a chat template writes calls in this format.
    fn recognises(&self, template: &str) -> bool;

    /// The tags of reasoning in models that use this format, where the template shows none.
    fn reasoning(&self) -> Option<ReasoningTags> {
        None
    }

    /// Reads a reply to its end: passes content on and tells the calls.
    fn read<'a>(&'a self, reply: &'a mut Scanner) -> Reading<'a>;
}

/// A format that some crate enrolled.
#[doc(hidden)]
pub struct Enrolled(pub &'static dyn ToolFormat);

inventory::collect!(Enrolled);

/// Enrols a value of a type that is a [`ToolFormat`], so that [`ToolFormats::linked`] knows it in every host the crate
/// is linked into.
#[macro_export]
macro_rules! submit_tool_format {
    ($format:expr) => {
        $crate::__private::inventory::submit! { $crate::__private::Enrolled(&$format) }
    };
}

/// The formats there are: those of this crate and those that families enrolled.
#[derive(Clone)]
pub struct ToolFormats {
    /// Those that were added last come first, and win.
    formats: Vec<Arc<dyn ToolFormat>>,
}

impl fmt::Debug for ToolFormats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl ToolFormats {
    /// The formats of this crate.
    pub fn builtin() -> ToolFormats {
        ToolFormats { formats: formats::ALL.iter().map(|&format| Arc::new(format) as _).collect() }
    }

    /// The formats of this crate and those of every crate linked into the program. An enrolled one replaces one of this
    /// crate of the same name.
    pub fn linked() -> ToolFormats {
        let mut enrolled: Vec<_> = inventory::iter::<Enrolled>().map(|enrolled| enrolled.0).collect();
        // The order of linking decides nothing.
        enrolled.sort_by(|a, b| a.name().cmp(b.name()));
        enrolled.into_iter().fold(ToolFormats::builtin(), |formats, format| formats.with(Linked(format)))
    }

    /// Adds a format. It wins over those that are there.
    #[must_use]
    pub fn with(mut self, format: impl ToolFormat + 'static) -> ToolFormats {
        self.formats.retain(|other| other.name() != format.name());
        self.formats.insert(0, Arc::new(format));
        self
    }

    /// The format of a name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn ToolFormat>> {
        let named = self.formats.iter().find(|format| format.name() == name);
        named.or_else(|| self.formats.iter().find(|format| format.aliases().contains(&name))).cloned()
    }

    /// The first format that a chat template is recognised by.
    pub fn detect(&self, template: &str) -> Option<Arc<dyn ToolFormat>> {
        self.formats.iter().find(|format| format.recognises(template)).cloned()
    }

    /// The format of a model: what its template writes, or else what its family says.
    ///
    /// The template goes first because a fine-tune brings its own, while the family knows only what the lineage is used
    /// to.
    pub fn choose(&self, template: Option<&str>, convention: Option<&str>) -> Option<Arc<dyn ToolFormat>> {
        let by_template = template.and_then(|template| self.detect(template));
        by_template.or_else(|| self.get(convention?))
    }

    /// Every name, those that win first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.formats.iter().map(|format| format.name())
    }
}

/// A format somebody else owns.
struct Linked(&'static dyn ToolFormat);

impl ToolFormat for Linked {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn aliases(&self) -> &[&str] {
        self.0.aliases()
    }
    fn recognises(&self, template: &str) -> bool {
        self.0.recognises(template)
    }
    fn reasoning(&self) -> Option<ReasoningTags> {
        self.0.reasoning()
    }
    fn read<'a>(&'a self, reply: &'a mut Scanner) -> Reading<'a> {
        self.0.read(reply)
    }
}
