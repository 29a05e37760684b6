//! Rendering a conversation whose last message is to go on.

use serde_json::Value as Json;

use crate::{Result, TextError};

/// What stands for the end of the last message while the template runs. The blank shows whether the template trims.
const MARK: &str = "KINFOLK_MESSAGE_GOES_ON ";

/// Renders with a mark at the end of the last message, and cuts the text there.
///
/// A template that trims contents drops the mark's own blank; then the white space before the mark would have been trimmed
/// too, and is.
///
/// # Errors
/// `Conversation` if there is no last message with text, or the text did not survive the template.
pub(super) fn render(mut messages: Vec<Json>, render: impl FnOnce(Vec<Json>) -> Result<String>) -> Result<String> {
    let content = messages
        .last_mut()
        .and_then(last_text)
        .ok_or_else(|| refuse("expected a last message with text to go on from, found none"))?;
    content.push_str(MARK);
    let mut text = render(messages)?;
    let at = text
        .rfind(MARK.trim_end())
        .ok_or_else(|| refuse("expected the template to write the last message's text, found that it does not"))?;
    let trims = !text[at..].starts_with(MARK);
    text.truncate(at);
    if trims {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}

fn refuse(reason: &str) -> TextError {
    TextError::Conversation { reason: reason.to_owned() }
}

/// The text at the end of a message: its content, or the last text part of it.
fn last_text(message: &mut Json) -> Option<&mut String> {
    match message.get_mut("content")? {
        Json::String(text) => Some(text),
        Json::Array(parts) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text")? {
            Json::String(text) => Some(text),
            _ => None,
        }),
        _ => None,
    }
}
