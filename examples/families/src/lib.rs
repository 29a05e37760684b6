//! What the one-family programs share. It names no family: each program links its own.
#![allow(clippy::print_stdout)]

use std::{
    env,
    io::{self, Write},
};

use anyhow::{Context, Result};
use kinfolk::{LmRunnerBuilder, session::Request};

/// Continues the text of the second argument with the model of the first.
///
/// # Errors
/// Whatever is wrong with the arguments or the model.
pub fn continue_text() -> Result<()> {
    let mut args = env::args().skip(1);
    let model = args.next().context("expected the path of a model and a text, found nothing")?;
    let text = args.next().context("expected a text after the path of the model, found none")?;
    let print = |piece: &str| {
        print!("{piece}");
        // A closed pipe shows at the next write; there is nobody left to tell.
        let _ = io::stdout().flush();
    };
    let mut session = LmRunnerBuilder::new().weights(model).stream(print).session()?;
    let prompt = session.text().raw_tokens(&text)?;
    let mut request = Request::default();
    request.max_tokens = Some(64);
    session.complete(&prompt, request)?;
    println!();
    Ok(())
}
