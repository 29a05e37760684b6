//! The white space between text and markup.

/// Content or reasoning: text in which the white space next to markup is layout, not text.
#[derive(Default)]
pub(super) struct Channel {
    /// White space that counts only if text follows.
    held: String,
    /// Whether any text has been told.
    pub(super) started: bool,
    /// Whether markup stands after the last text.
    pub(super) gap: bool,
}

impl Channel {
    /// What of a text can be told now, with the white space held before it.
    pub(super) fn write(&mut self, text: &str) -> String {
        let body = text.trim_end();
        if body.is_empty() {
            self.held.push_str(text);
            return String::new();
        }
        let mut told = std::mem::take(&mut self.held);
        told.push_str(body);
        self.held.push_str(&text[body.len()..]);
        // Before the first text, white space next to markup is layout.
        if !self.started && self.gap {
            told.drain(..told.len() - told.trim_start().len());
        }
        self.started = true;
        self.gap = false;
        told
    }

    /// Separates what follows from what is there.
    pub(super) fn separate(&mut self) {
        if self.started && self.held.is_empty() {
            self.held.push('\n');
        }
        self.gap = true;
    }

    /// The white space at the end, if it is no layout.
    pub(super) fn end(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if self.gap { String::new() } else { held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes texts, with markup where there is a `|`; returns what is told in all.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut channel = Channel::default();
        let mut told = String::new();
        for (place, part) in text.split('|').enumerate() {
            channel.gap |= place > 0;
            part.split_inclusive(|_: char| true).for_each(|piece| told += &channel.write(piece));
        }
        told += &channel.end();
        assert_eq!(told, expected, "{text:?}");
    }

    #[test]
    fn white_space_counts_unless_markup_and_nothing_else_is_next_to_it() {
        check(" a \n", " a \n");
        check("| a |", "a");
        check(" \n|a", "a");
        check("a \n| \n b", "a \n \n b");
        check("a|b", "ab");
        check(" | ", "");
        check("a | ", "a");
    }
}
