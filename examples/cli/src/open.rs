//! Opening models, with a progress bar where someone watches.

use std::{fs::File, io::Read, path::Path};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kinfolk::{
    LmRunnerBuilder, OpenOptions, Registry,
    decoder::{Cancel, Source},
    text::Text,
};

use crate::{
    args::{LoadArgs, OpenArgs},
    print,
};

impl OpenArgs {
    pub fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.prefer_gguf = self.prefer_gguf.clone();
        options.format = self.format;
        options
    }
}

/// Opens a model's files without loading weights.
pub fn source(model: &Path, open: &OpenArgs) -> Result<Source> {
    Ok(Source::open_with(model, &open.options())?)
}

/// The text layer of an open model. What is wrong with it names the model, whichever of its files is at fault.
pub fn text_layer(source: &Source) -> Result<Text> {
    Text::from_source(source, turn_ends(source)).with_context(|| format!("`{}`", source.path().display()))
}

/// What the family that runs `source` says of its ends of turn; nothing if none runs it.
fn turn_ends(source: &Source) -> &'static [&'static str] {
    Registry::linked().claim(source).map_or(&[], |decision| decision.family.conventions.turn_ends)
}

/// A builder set up as typed.
pub fn builder(args: &LoadArgs, cancel: &Cancel) -> Result<LmRunnerBuilder> {
    let mut builder = LmRunnerBuilder::new().source(source(&args.model, &args.open)?).cancel(cancel.clone());
    if let Some(tokens) = args.ctx {
        builder = builder.max_seq(tokens);
    }
    if let Some(n) = args.threads {
        builder = builder.threads(n);
    }
    if let Some(name) = &args.family {
        builder = builder.family(name);
    }
    if let Some(name) = &args.executor {
        builder = builder.executor(name);
    }
    builder = builder.narrow_activations(args.narrow_activations);
    Ok(match progress_bar("loading {bar:30} {bytes}/{total_bytes}") {
        Some(bar) => builder.progress(move |p| {
            bar.set_length(p.total_bytes);
            bar.set_position(p.done_bytes);
        }),
        None => builder,
    })
}

/// A bar that looks as `template` says, if someone watches.
pub fn progress_bar(template: &str) -> Option<ProgressBar> {
    if !print::is_watched() {
        return None;
    }
    let style = ProgressStyle::with_template(template).ok()?;
    // Dropped when the work is over, which clears the line.
    Some(ProgressBar::new(0).with_style(style).with_finish(indicatif::ProgressFinish::AndClear))
}

/// The longest text read from standard input or a file of messages, in bytes: far more than any context holds.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The text that was typed, or standard input for `-`.
pub fn text_or_stdin(text: &str) -> Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    read_text(std::io::stdin().lock()).context("cannot read the text from standard input")
}

/// The text of a file, or of standard input for `-`.
pub fn text_file(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return text_or_stdin("-");
    }
    let text = File::open(path).map_err(Into::into).and_then(read_text);
    text.with_context(|| format!("cannot read `{}`", path.display()))
}

/// A JSON file.
pub fn json_file(path: &Path) -> Result<serde_json::Value> {
    let text = File::open(path).map_err(Into::into).and_then(read_text);
    let text = text.with_context(|| format!("cannot read `{}`", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("`{}` is not JSON", path.display()))
}

/// All of a text, which may come from a pipe that never ends.
fn read_text(reader: impl Read) -> Result<String> {
    let mut text = String::new();
    reader.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= MAX_TEXT_BYTES, "expected at most {MAX_TEXT_BYTES} bytes of text, found more");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_an_end_is_refused() {
        let error = read_text(std::io::repeat(b'a')).unwrap_err().to_string();
        assert_eq!(error, "expected at most 67108864 bytes of text, found more");
        assert_eq!(read_text("bounded".as_bytes()).unwrap(), "bounded");
    }
}
