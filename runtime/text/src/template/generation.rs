//! `{% generation %}` blocks.

/// `{% generation %}` marks what the assistant wrote, for training; here it only passes its body through. The engine does
/// not know the tag, so it becomes a block that does nothing else.
pub(super) fn without_generation_tags(source: &str) -> String {
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
        match renamed(tag) {
            Some(renamed) => out.push_str(&renamed),
            None => out.push_str(tag),
        }
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

fn renamed(tag: &str) -> Option<String> {
    match tag_word(tag)? {
        "generation" => Some(tag.replacen("generation", "with", 1)),
        "endgeneration" => Some(tag.replacen("endgeneration", "endwith", 1)),
        _ => None,
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
            assert_eq!(without_generation_tags(source), expected);
        }
    }
}
