//! The blocks in which a model thinks before it answers.

/// The tags around reasoning.
///
/// A [`ReplyParser`](crate::ReplyParser) splits by them. Where a tag is a token of the vocabulary only that token
/// counts, so a model may write about the tags; elsewhere their text counts. The first closing tag ends a block,
/// whatever was quoted in it: streams and whole texts are split by the same code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// Begins a block.
    pub open: String,
    /// Ends it.
    pub close: String,
}

/// The tags that are in use.
const KNOWN: [(&str, &str); 5] = [
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<think>", "</think>"),
];

impl ReasoningTags {
    /// Tags of a model's own.
    pub fn new(open: impl Into<String>, close: impl Into<String>) -> ReasoningTags {
        ReasoningTags { open: open.into(), close: close.into() }
    }

    /// Finds the tags that a chat template writes or reads.
    pub fn detect(template: &str) -> Option<ReasoningTags> {
        let (open, close) = KNOWN.into_iter().find(|(_, close)| template.contains(close))?;
        Some(ReasoningTags::new(open, close))
    }

    /// Whether a rendered prompt ends with the opening tag, so that the reply starts inside the block.
    ///
    /// White space after the tag does not count. A prompt that ends further inside a block, with words of a reply to go
    /// on with, is not seen here: give those words to the parser before the reply, and drop the events.
    pub fn opened_by(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(&self.open)
    }
}
