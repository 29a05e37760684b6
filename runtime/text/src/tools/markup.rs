//! Arguments written as elements of markup, one element each.

use std::collections::HashSet;

use super::scanner::{Broken, Read, Scanner};

/// The tags of arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// Begins an element.
    pub(super) open: &'static str,
    /// Ends its head.
    pub(super) head_end: &'static str,
    /// Stands between head and value, after white space.
    pub(super) value_open: &'static str,
    /// Ends the value.
    pub(super) value_close: &'static str,
    /// Ends the call.
    pub(super) close: &'static str,
    /// Whether a line break after the head and one before the end belong to the markup.
    pub(super) own_lines: bool,
}

/// The head of an element: the argument's name, and whether it says itself that the value is text.
pub(super) struct Head {
    pub(super) name: String,
    pub(super) is_text: Option<bool>,
}

impl Scanner {
    /// Reads elements up to the tag that ends the call, as the arguments of the open call of `tool`.
    ///
    /// The value of an element ends where its closing tag is followed by another element or the end of the call, so
    /// that tags quoted in it stay text. Its type is what the head says, or the tool's schema.
    pub(super) async fn markup_arguments(
        &mut self,
        tool: &str,
        tags: &Tags,
        head: impl Fn(&str) -> Option<Head> + Send,
    ) -> Read<()> {
        let mut names = HashSet::new();
        self.arguments("{");
        loop {
            self.space().await;
            if self.eat(tags.close).await {
                self.arguments("}");
                return Ok(());
            }
            self.expect(tags.open).await?;
            let (text, _) = self.text_until(&[tags.head_end]).await?;
            let head = head(&text).filter(|head| !names.contains(&head.name)).ok_or(Broken::Malformed)?;
            if !tags.value_open.is_empty() {
                self.space().await;
                self.expect(tags.value_open).await?;
            }
            if !names.is_empty() {
                self.arguments(",");
            }
            self.arguments("\"");
            self.arguments_text(&head.name);
            self.arguments("\":");
            self.markup_argument(tool, tags, &head).await?;
            names.insert(head.name);
        }
    }

    async fn markup_argument(&mut self, tool: &str, tags: &Tags, head: &Head) -> Read<()> {
        let types = self.tools().types(tool, &head.name);
        if head.is_text.unwrap_or(types.only_string()) {
            self.arguments("\"");
            self.markup_value(tags, |scanner, piece| scanner.arguments_text(piece)).await?;
            self.arguments("\"");
            return Ok(());
        }
        let mut text = String::new();
        self.markup_value(tags, |_, piece| text.push_str(piece)).await?;
        let json = if head.is_text == Some(false) {
            serde_json::from_str::<serde::de::IgnoredAny>(&text).ok().map(|_| text)
        } else {
            types.json_of(&text)
        };
        self.arguments(&json.ok_or(Broken::Malformed)?);
        Ok(())
    }

    /// Reads a value and its closing tag.
    async fn markup_value(&mut self, tags: &Tags, mut each: impl FnMut(&mut Scanner, &str) + Send) -> Read<()> {
        if tags.own_lines {
            self.eat("\n").await;
        }
        let on_own_line = format!("\n{}", tags.value_close);
        let closers = if tags.own_lines { &[tags.value_close, on_own_line.as_str()][..] } else { &[tags.value_close] };
        loop {
            let which = self.pass_until(closers, &mut each).await?;
            let space = self.run(char::is_whitespace).await;
            if self.looking_at(&[tags.open, tags.close]).await.is_some() {
                return Ok(());
            }
            each(self, closers[which]);
            each(self, &space);
        }
    }
}

/// The value of an attribute, `name="value"`, in the head of an element.
pub(super) fn attribute<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = head.trim_start();
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        if key.trim() == name {
            return Some(value);
        }
        rest = after;
    }
    None
}

/// Whether a text can be the name of a tool: no white space, nothing of a markup.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '{' | '}' | '[' | ']' | '"'))
}
