//! The smallest host: a language model inside an application, behind one trait.

use std::ops::ControlFlow;

use kinfolk::{GenerateOptions, LmRunner, LoadOptions, auto_runner, decoder::Source, text::Text};

// Links every family that Cargo.toml names.
kinfolk::enroll!();

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("expected the path of a model, found none"))?;
    let text = Text::from_source(&Source::open(&path)?, &[])?;
    let mut runner: Box<dyn LmRunner> = auto_runner(&path, LoadOptions::default())?;

    let mut options = GenerateOptions::default();
    options.max_new_tokens = 64;
    options.stop_tokens = text.ends.iter().collect();
    let mut words = text.tokenizer.detokenizer(true);
    runner.generate(&text.raw_tokens("Once upon a time")?, &options, &mut |token| {
        print!("{}", words.push(token));
        ControlFlow::Continue(())
    })?;
    println!("{}", words.finish());
    Ok(())
}
