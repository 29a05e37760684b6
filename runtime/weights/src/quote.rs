//! Text from files inside messages: on one line, and no longer than a message should be.

/// Names and texts from files are quoted in messages up to this many characters.
const MAX_QUOTED_CHARS: usize = 80;

/// Puts a name or text from a file between backticks, on one line whatever it holds, and not longer than a message should be.
pub fn quoted(text: &str) -> String {
    format!("`{}`", shortened(text, MAX_QUOTED_CHARS))
}

/// The message of another library, which may quote the file.
pub(crate) fn one_line(message: &str) -> String {
    shortened(message, 3 * MAX_QUOTED_CHARS)
}

fn shortened(text: &str, max_chars: usize) -> String {
    let mut short = String::new();
    for c in text.chars().take(max_chars) {
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    if text.chars().nth(max_chars).is_some() {
        short.push('…');
    }
    short
}

/// Several of them; the first few of many.
pub(crate) fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_LISTED: usize = 24;
    let mut names = names.into_iter();
    let mut listed: Vec<String> = names.by_ref().take(MAX_LISTED).map(quoted).collect();
    match names.count() {
        0 => {}
        more => listed.push(format!("{more} more")),
    }
    listed.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_stay_on_one_line_and_short() {
        assert_eq!(quoted("blk.0.w"), "`blk.0.w`");
        assert_eq!(quoted("模型 \"x\""), "`模型 \"x\"`");
        assert_eq!(quoted("a\nb\u{1b}c"), "`a\\nb\\u{1b}c`");
        assert_eq!(quoted(&"é".repeat(1000)).chars().count(), MAX_QUOTED_CHARS + 3);
    }

    #[test]
    fn long_lists_end_in_a_count() {
        let names: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        let list = quoted_list(names.iter().map(String::as_str));
        assert!(list.starts_with("`0`, `1`, ") && list.ends_with("`23`, 6 more"), "{list}");
    }
}
