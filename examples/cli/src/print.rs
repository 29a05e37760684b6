//! Writing to the terminal.
#![allow(clippy::print_stderr)]

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

/// Prints an error on one line: what happened, then why.
pub fn error(error: &anyhow::Error) {
    eprintln!("error: {}", one_line(&format!("{error:#}")));
}

/// Tells about something that does not stop the work.
pub fn warn(text: &str) {
    eprintln!("warning: {}", one_line(text));
}

/// File names and model files are strangers' text: no line breaks and no control characters reach the terminal.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ").chars().filter(|c| !c.is_control()).collect()
}

/// Writes to standard output at once.
///
/// # Errors
/// Standard output is closed or full.
pub fn out(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes a value as JSON.
///
/// # Errors
/// As [`out`].
pub fn json(value: &impl Serialize) -> Result<()> {
    out(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes a line to standard error.
pub fn note(text: &str) {
    eprintln!("{}", one_line(text));
}

/// Whether a person watches standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether the reader of standard output has gone away.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Lays rows out in columns, each row on one line.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Bytes for people.
pub fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        n if n < 1e3 => format!("{n} B"),
        n if n < 1e6 => format!("{:.1} kB", n / 1e3),
        n if n < 1e9 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.2} GB", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_without_control_characters() {
        assert_eq!(one_line("a\n  b\u{1b}[31m\n"), "a b[31m");
        assert_eq!(one_line("no `two  blanks.gguf`"), "no `two  blanks.gguf`");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["long".to_owned(), "c".to_owned()]];
        assert_eq!(table(&rows), "a     b\nlong  c\n");
    }

    #[test]
    fn a_cell_cannot_break_out_of_its_row() {
        assert_eq!(table(&[vec!["a\nb\u{1b}[2J".to_owned(), "c".to_owned()]]), "a b[2J  c\n");
    }
}
