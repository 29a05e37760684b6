//! Values that are not written as JSON, made into JSON on the way.

use super::scanner::{Broken, Read, Scanner};

/// As in [`json`](super::json).
const MAX_DEPTH: usize = 100;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Python's literals: strings in either quotes with escapes, `True`, `False`, `None`, lists, tuples, dicts.
    Python,
    /// Strings verbatim between two marks, keys bare or between marks, the rest as in JSON.
    Marked(&'static str),
}

/// What is open around a value, by what ends it.
type Closer = char;

impl Scanner {
    /// Reads one value into the arguments of the open call.
    ///
    /// # Errors
    /// `Malformed` if it is none of the dialect.
    pub(super) async fn literal(&mut self, dialect: Dialect) -> Read<()> {
        let mut open: Vec<Closer> = Vec::new();
        loop {
            self.space().await;
            if open.len() > MAX_DEPTH {
                return Err(Broken::Malformed);
            }
            let closer = match self.peek().await.ok_or(Broken::Ended)? {
                '{' => Some('}'),
                '[' => Some(']'),
                '(' if dialect == Dialect::Python => Some(')'),
                _ => None,
            };
            match closer {
                Some(closer) => {
                    self.char().await?;
                    self.arguments(if closer == '}' { "{" } else { "[" });
                    self.space().await;
                    if !self.literal_ends(closer).await? {
                        open.push(closer);
                        self.literal_key(dialect, closer).await?;
                        continue;
                    }
                }
                None => self.literal_scalar(dialect).await?,
            }
            // A value is complete; so may be what is around it.
            loop {
                let Some(&closer) = open.last() else { return Ok(()) };
                self.space().await;
                if !self.literal_ends(closer).await? {
                    self.expect(",").await?;
                    self.space().await;
                    // Python allows a comma after the last one.
                    if dialect != Dialect::Python || !self.literal_ends(closer).await? {
                        self.arguments(",");
                        self.literal_key(dialect, closer).await?;
                        break;
                    }
                }
                open.pop();
            }
        }
    }

    /// Reads the end of a container, if it comes next.
    async fn literal_ends(&mut self, closer: Closer) -> Read<bool> {
        let ends = self.peek().await.ok_or(Broken::Ended)? == closer;
        if ends {
            self.char().await?;
            self.arguments(if closer == '}' { "}" } else { "]" });
        }
        Ok(ends)
    }

    /// Reads the key of a member, if the container has keys.
    async fn literal_key(&mut self, dialect: Dialect, closer: Closer) -> Read<()> {
        if closer != '}' {
            return Ok(());
        }
        match dialect {
            Dialect::Python => self.python_string().await?,
            Dialect::Marked(mark) if self.looking_at(&[mark]).await.is_some() => self.marked_string(mark).await?,
            Dialect::Marked(_) => {
                let key = self.run(|c| !matches!(c, ':' | ',' | '{' | '}' | '[' | ']' | '<' | '>')).await;
                let key = key.trim();
                if key.is_empty() {
                    return Err(if self.peek().await.is_none() { Broken::Ended } else { Broken::Malformed });
                }
                self.arguments("\"");
                self.arguments_text(key);
                self.arguments("\"");
            }
        }
        self.space().await;
        self.expect(":").await?;
        self.arguments(":");
        Ok(())
    }

    async fn literal_scalar(&mut self, dialect: Dialect) -> Read<()> {
        match (dialect, self.peek().await) {
            (Dialect::Python, Some('"' | '\'')) => return self.python_string().await,
            (Dialect::Marked(mark), _) if self.looking_at(&[mark]).await.is_some() => {
                return self.marked_string(mark).await;
            }
            _ => {}
        }
        let written = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')).await;
        let value = match (dialect, written.as_str()) {
            (Dialect::Python, "True") => "true",
            (Dialect::Python, "False") => "false",
            (Dialect::Python, "None") => "null",
            (_, written) => written,
        };
        match serde_json::from_str::<serde::de::IgnoredAny>(value) {
            Ok(_) => {
                self.arguments(value);
                Ok(())
            }
            Err(_) if self.peek().await.is_none() => Err(Broken::Ended),
            Err(_) => Err(Broken::Malformed),
        }
    }

    async fn marked_string(&mut self, mark: &'static str) -> Read<()> {
        self.expect(mark).await?;
        self.arguments("\"");
        self.pass_until(&[mark], |scanner, piece| scanner.arguments_text(piece)).await?;
        self.arguments("\"");
        Ok(())
    }

    async fn python_string(&mut self) -> Read<()> {
        let quote = self.peek().await.ok_or(Broken::Ended)?;
        if !matches!(quote, '"' | '\'') {
            return Err(Broken::Malformed);
        }
        self.char().await?;
        self.arguments("\"");
        loop {
            let text = self.run(|c| c != quote && c != '\\' && c != '\n').await;
            self.arguments_text(&text);
            match self.peek().await.ok_or(Broken::Ended)? {
                // A string of one line ends on it.
                '\n' => return Err(Broken::Malformed),
                '\\' => self.python_escape().await?,
                _ => {
                    self.char().await?;
                    self.arguments("\"");
                    return Ok(());
                }
            }
        }
    }

    async fn python_escape(&mut self) -> Read<()> {
        self.expect("\\").await?;
        let code = self.char().await?;
        let digits = match code {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => {
                match code {
                    '\n' => {}
                    'n' => self.arguments_text("\n"),
                    't' => self.arguments_text("\t"),
                    'r' => self.arguments_text("\r"),
                    'b' => self.arguments_text("\u{8}"),
                    'f' => self.arguments_text("\u{c}"),
                    'v' => self.arguments_text("\u{b}"),
                    'a' => self.arguments_text("\u{7}"),
                    '0' => self.arguments_text("\0"),
                    '\\' | '\'' | '"' => self.arguments_text(code.encode_utf8(&mut [0; 4])),
                    // Python keeps the backslash of an escape it does not know.
                    other => self.arguments_text(&format!("\\{other}")),
                }
                return Ok(());
            }
        };
        let mut hex = String::new();
        for _ in 0..digits {
            hex.push(self.char().await?);
        }
        let character = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).ok_or(Broken::Malformed)?;
        self.arguments_text(character.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    /// Reads `name=value, …)` of a Python call, after its parenthesis, as the arguments of the open call.
    pub(super) async fn python_arguments(&mut self) -> Read<()> {
        self.arguments("{");
        self.space().await;
        let mut goes_on = !self.eat(")").await;
        while goes_on {
            let key = self.identifier().await?;
            self.space().await;
            self.expect("=").await?;
            self.arguments("\"");
            self.arguments_text(&key);
            self.arguments("\":");
            self.literal(Dialect::Python).await?;
            self.space().await;
            goes_on = !self.eat(")").await;
            if goes_on {
                self.expect(",").await?;
                self.space().await;
                goes_on = !self.eat(")").await;
                self.arguments(if goes_on { "," } else { "" });
            }
        }
        self.arguments("}");
        Ok(())
    }

    /// Reads a name.
    pub(super) async fn identifier(&mut self) -> Read<String> {
        let name = self.run(|c| c.is_alphanumeric() || c == '_').await;
        match name.chars().next() {
            Some(first) if !first.is_numeric() => Ok(name),
            None if self.peek().await.is_none() => Err(Broken::Ended),
            _ => Err(Broken::Malformed),
        }
    }
}
