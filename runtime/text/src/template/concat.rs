//! The operands of `~`, found in the text of a tag.
//!
//! The engine prints what `~` joins without a limit, and values can share parts, so that a small one prints without end. Each
//! operand is therefore sent to a filter that prints it as Python does, and stops.

/// The filter that operands go through.
pub(super) const PRINTED: &str = "kinfolk_printed";

/// Words between operands, not of them.
const KEYWORDS: [&str; 17] = [
    "and",
    "or",
    "not",
    "in",
    "if",
    "else",
    "elif",
    "for",
    "recursive",
    "set",
    "with",
    "without",
    "as",
    "from",
    "import",
    "include",
    "ignore",
];

/// What has been seen at one depth of brackets.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Where the current operand starts.
    start: Option<usize>,
    /// Whether it comes after a `~`.
    is_joined: bool,
    /// Whether the name of a test comes next (`x is not none`), which may look like a keyword.
    is_tested: bool,
}

/// Rewrites the expressions of a tag; `None` if there is no `~` in it.
pub(super) fn printed(tag: &str) -> Option<String> {
    if !tag.contains('~') {
        return None;
    }
    let inner = tag.get(2..tag.len().checked_sub(2)?)?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner);
    let from = inner.as_ptr() as usize - tag.as_ptr() as usize;
    let mut operands = Vec::new();
    find(tag, from, from + inner.len(), tag.starts_with("{%"), &mut operands)?;

    let mut inserts: Vec<(usize, &str)> = Vec::new();
    let closing = format!(")|{PRINTED}");
    for (start, end) in operands {
        inserts.push((start, "("));
        inserts.push((end, &closing));
    }
    // Operands may hold others; where two end together the inner one ends first, and closings all read the same.
    inserts.sort_by_key(|(at, _)| *at);
    let mut out = String::with_capacity(tag.len() + inserts.len() * closing.len());
    let mut done = 0;
    for (at, insert) in inserts {
        out.push_str(tag.get(done..at)?);
        out.push_str(insert);
        done = at;
    }
    out.push_str(tag.get(done..)?);
    Some(out)
}

/// Finds the operands of every `~` in `tag[at..end]`; `None` if quotes or brackets do not close.
fn find(tag: &str, mut at: usize, end: usize, is_statement: bool, operands: &mut Vec<(usize, usize)>) -> Option<()> {
    let mut levels = vec![Level::default()];
    let mut is_first_word = is_statement;
    while at < end {
        let rest = tag.get(at..end)?;
        let c = rest.chars().next()?;
        let level = levels.last_mut()?;
        let mut len = c.len_utf8();
        match c {
            c if c.is_whitespace() => {}
            '"' | '\'' => {
                len = super::rewrite::quoted_len(rest)?;
                level.start.get_or_insert(at);
            }
            c if c.is_alphanumeric() || c == '_' => {
                len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                let word = rest.get(..len)?;
                if std::mem::take(&mut is_first_word) || (KEYWORDS.contains(&word) && !level.is_tested) {
                    level.end(tag, at, operands);
                } else {
                    // The test's name comes next, or `not` and then its name.
                    level.is_tested = level.start.is_some() && (word == "is" || level.is_tested && word == "not");
                    level.start.get_or_insert(at);
                }
            }
            '(' | '[' | '{' => {
                level.start.get_or_insert(at);
                levels.push(Level::default());
            }
            ')' | ']' | '}' => {
                level.end(tag, at, operands);
                levels.pop();
                if levels.is_empty() {
                    return None;
                }
            }
            '.' | '|' | '*' | '/' | '%' => level.is_tested = false,
            '-' | '+' if level.start.is_none() => level.start = Some(at),
            '~' => {
                level.is_joined = true;
                level.end(tag, at, operands);
                level.is_joined = true;
            }
            _ => level.end(tag, at, operands),
        }
        at += len;
    }
    levels.pop()?.end(tag, end, operands);
    levels.is_empty().then_some(())
}

impl Level {
    /// Ends the current operand, and notes it if it is joined.
    fn end(&mut self, tag: &str, at: usize, operands: &mut Vec<(usize, usize)>) {
        let ended = std::mem::take(self);
        if let (Some(start), true) = (ended.start, ended.is_joined) {
            let text = tag.get(start..at).unwrap_or_default();
            operands.push((start, start + text.trim_end().len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operands_of_every_join_are_printed() {
        for (tag, expected) in [
            ("{{ a ~ b }}", "{{ <a> ~ <b> }}"),
            ("{{- a.b[c]|d(e) ~ -f ~ 'x~y' -}}", "{{- <a.b[c]|d(e)> ~ <-f> ~ <'x~y'> -}}"),
            ("{{ a + b * c ~ d - e }}", "{{ a + <b * c> ~ <d> - e }}"),
            ("{{ (a ~ [b ~ c])|f ~ d }}", "{{ <(<a> ~ <[<b> ~ <c>]>)|f> ~ <d> }}"),
            ("{% set x = a ~ b if c ~ d else e %}", "{% set x = <a> ~ <b> if <c> ~ <d> else e %}"),
            ("{%- if a ~ b is not none and c %}", "{%- if <a> ~ <b is not none> and c %}"),
            ("{% if a ~ b is in c or d %}", "{% if <a> ~ <b is in c> or d %}"),
            ("{% for x in a ~ b recursive %}", "{% for x in <a> ~ <b> recursive %}"),
            ("{{ f(k=a ~ b, c) }}", "{{ f(k=<a> ~ <b>, c) }}"),
            ("{{ {'k' ~ 1: v} }}", "{{ {<'k'> ~ <1>: v} }}"),
            ("{{ not a ~ b == c }}", "{{ not <a> ~ <b> == c }}"),
        ] {
            let expected = expected.replace('<', "(").replace('>', &format!(")|{PRINTED}"));
            assert_eq!(printed(tag).as_deref(), Some(expected.as_str()));
        }
        for tag in ["{{ a }}", "{{ a ~ (b }}", "{{ 'a ~ }}", "{{~", "{{ ~ ) }}"] {
            assert_eq!(printed(tag), None, "{tag}");
        }
    }
}
