//! Tags that the engine does not know or takes more lightly than Jinja2 does, rewritten before it sees them.

use std::borrow::Cow;

use super::concat;

/// The filter that `for` tags send what they go through to.
pub(super) const GONE_THROUGH: &str = "kinfolk_gone_through";

/// The filter that `%` after a text is.
pub(super) const PERCENT: &str = "kinfolk_percent";

/// Rewrites tags. Lines stay where they are.
///
/// * `{% generation %}` marks what the assistant wrote, for training; here it only passes its body through. The engine does
///   not know the tag, so it becomes a block that does nothing else.
/// * `{% for x in y %}` goes through [`GONE_THROUGH`], which refuses null: Python does, the engine takes it for nothing.
/// * What `~` joins is printed by a filter with a limit, see [`concat`].
/// * `"…" % x` becomes a filter, [`PERCENT`]: the engine's operator knows numbers only.
pub(super) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%").into_iter().chain(rest.find("{#")).chain(rest.find("{{")).min() {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let ending = match &tag[..2] {
            "{%" => "%}",
            "{#" => "#}",
            _ => "}}",
        };
        let len = tag_len(tag, ending);
        let (tag, after) = tag.split_at(len);
        let rewritten = rewritten(tag);
        let mut rewritten = rewritten.map_or(Cow::Borrowed(tag), Cow::Owned);
        if ending != "#}" {
            for rewrite in [with_percent, concat::printed] {
                if let Some(again) = rewrite(&rewritten) {
                    rewritten = Cow::Owned(again);
                }
            }
        }
        out.push_str(&rewritten);
        rest = after;
        if tag_word(tag) == Some("raw") {
            let end = end_of_raw(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// Length of the tag at the start of `tag`, its end not looked for inside quoted text (comments have none).
fn tag_len(tag: &str, ending: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in tag.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if tag[at..].starts_with(ending) => return at + ending.len(),
            None if ending != "#}" && (c == '"' || c == '\'') => quote = Some(c),
            None => {}
        }
    }
    tag.len()
}

/// The first word of a block tag.
fn tag_word(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start();
    Some(inside.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default())
}

fn rewritten(tag: &str) -> Option<String> {
    match tag_word(tag)? {
        "generation" => Some(tag.replacen("generation", "with", 1)),
        "endgeneration" => Some(tag.replacen("endgeneration", "endwith", 1)),
        "for" => guarded(tag),
        _ => None,
    }
}

/// A `for` tag with what it goes through, between `in` and `if`, `recursive` or the end, sent to the filter.
fn guarded(tag: &str) -> Option<String> {
    let words = outer_words(tag);
    let start = words.iter().find(|(_, word)| *word == "in").map(|(at, word)| at + word.len())?;
    let end = words
        .iter()
        .find(|(at, word)| *at > start && matches!(*word, "if" | "recursive"))
        .map_or_else(|| tag.trim_end_matches("%}").trim_end_matches(['-', '+']).len(), |(at, _)| *at);
    let (head, rest) = tag.split_at_checked(start)?;
    let (items, tail) = rest.split_at_checked(end.checked_sub(start)?)?;
    Some(format!("{head} ({items})|{GONE_THROUGH} {tail}"))
}

/// The words of a tag that are neither quoted nor inside brackets, with their places.
fn outer_words(tag: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut depth = 0usize;
    let mut quote = None;
    let mut escaped = false;
    let mut word_start = None;
    for (at, c) in tag.char_indices() {
        if quote.is_none() && (c.is_alphanumeric() || c == '_') {
            word_start.get_or_insert(at);
            continue;
        }
        if let Some(start) = word_start.take()
            && depth == 0
        {
            words.push((start, &tag[start..at]));
        }
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += usize::from(at > 0),
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    words
}

/// A tag with `"…" % x` as `"…"|filter(x)`; `None` if there is none in it.
fn with_percent(tag: &str) -> Option<String> {
    if !tag[2..].trim_end_matches("%}").contains('%') {
        return None;
    }
    let mut out = String::with_capacity(tag.len());
    let mut at = 0;
    let mut found = false;
    while let Some(start) = tag[at..].find(['"', '\'']).map(|found| at + found) {
        let end = start + quoted_len(&tag[start..])?;
        out.push_str(&tag[at..end]);
        at = end;
        let Some(after) = tag[end..].trim_start().strip_prefix('%').filter(|after| !after.starts_with('}')) else {
            continue;
        };
        let Some(len) = operand_len(after) else { continue };
        // The operand may hold such texts itself.
        let operand = &after[..len];
        out.push_str(&format!("|{PERCENT}({})", with_percent_inside(operand)));
        at = tag.len() - after.len() + len;
        found = true;
    }
    out.push_str(&tag[at..]);
    found.then_some(out)
}

fn with_percent_inside(operand: &str) -> String {
    let tag = format!("{{{{{operand}}}}}");
    match with_percent(&tag) {
        Some(tag) => tag[2..tag.len() - 2].to_owned(),
        None => operand.to_owned(),
    }
}

/// Length of the quoted text at the start; `None` if it does not end.
pub(super) fn quoted_len(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Length of the brackets at the start, with what is in them; `None` if they do not end.
fn bracketed_len(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' | '\'' => {
                at += quoted_len(&text[at..])?;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += c.len_utf8();
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Length of the operand at the start: a value with a sign, and what is called, looked up and filtered of it.
fn operand_len(text: &str) -> Option<usize> {
    let word_len = |text: &str| text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let blanks = |text: &str| text.len() - text.trim_start().len();
    let mut at = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == '-' || c == '+').len();
    at += match text[at..].chars().next()? {
        '"' | '\'' => quoted_len(&text[at..])?,
        '(' | '[' | '{' => bracketed_len(&text[at..])?,
        _ => Some(word_len(&text[at..])).filter(|len| *len > 0)?,
    };
    loop {
        let next = at + blanks(&text[at..]);
        let rest = &text[next..];
        at = match rest.chars().next() {
            Some('(' | '[') => next + bracketed_len(rest)?,
            Some('.' | '|') => {
                let name = next + 1 + blanks(&rest[1..]);
                name + Some(word_len(&text[name..])).filter(|len| *len > 0)?
            }
            _ => return Some(at),
        };
    }
}

/// Where the tag that ends a raw block starts.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        if tag_word(&text[from + at..]) == Some("endraw") {
            return from + at;
        }
        from += at + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    // D7
    #[test]
    fn generation_tags_become_blocks_that_do_nothing() {
        for (source, expected) in [
            ("a{% generation %}b{%- endgeneration -%}c", "a{% with %}b{%- endwith -%}c"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{% raw %}{% generation %}{% endraw %}", "{% raw %}{% generation %}{% endraw %}"),
            ("{% if generation %}{% endif %}", "{% if generation %}{% endif %}"),
            ("{{ 'it\\'s %}' }}{% generation", "{{ 'it\\'s %}' }}{% with"),
        ] {
            assert_eq!(rewrite(source), expected);
        }
    }

    #[test]
    fn what_a_for_tag_goes_through_is_guarded() {
        for (source, items) in [
            ("{% for x in y %}", ("{% for x in", " y ", "%}")),
            ("{%- for x in y-%}", ("{%- for x in", " y", "-%}")),
            ("{% for k, v in d.items() if v in w %}", ("{% for k, v in", " d.items() ", "if v in w %}")),
            (
                "{% for x in ['a if b', (c if d else e)] recursive %}",
                ("{% for x in", " ['a if b', (c if d else e)] ", "recursive %}"),
            ),
            ("{% for(a)in(b)%}", ("{% for(a)in", "(b)", "%}")),
        ] {
            let (head, items, tail) = items;
            assert_eq!(rewrite(source), format!("{head} ({items})|{GONE_THROUGH} {tail}"));
        }
        for source in ["{% for x y %}", "{% for", "{{ for x in y }}"] {
            assert_eq!(rewrite(source), source);
        }
    }

    #[test]
    fn a_percent_sign_after_a_text_is_a_filter() {
        for (source, expected) in [
            ("{{ '%s' % x }}", "{{ '%s'|kinfolk_percent( x) }}"),
            ("{{ '%s' % x.y(z)['%']|f(1) + 7 % 2 }}", "{{ '%s'|kinfolk_percent( x.y(z)['%']|f(1)) + 7 % 2 }}"),
            ("{{ '%s%s'%(a, '%s' % b) -}}", "{{ '%s%s'|kinfolk_percent((a, '%s'|kinfolk_percent( b))) -}}"),
            ("{% set x = '%d' % -1 %}", "{% set x = '%d'|kinfolk_percent( -1) %}"),
            ("{% set x = 'a' %}", "{% set x = 'a' %}"),
            ("{{ 'a' % }}{{ x % 'b' }}", "{{ 'a' % }}{{ x % 'b' }}"),
            ("{# 'a' % b #}", "{# 'a' % b #}"),
        ] {
            assert_eq!(rewrite(source), expected);
        }
    }
}
