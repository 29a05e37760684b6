//! Without a command: a story from the model inside this program.

use std::process::ExitCode;

use anyhow::Result;
use kinfolk::{
    LmRunnerBuilder,
    decoder::{Cancel, Source},
    session::Request,
};
use serde_json::json;

use crate::{generate, interrupt, print};

/// See `model/MODEL_CARD.md`.
static TINYTALES: &[u8] = include_bytes!("../../model/tinytales-q8_0.gguf");

pub fn run(cancel: &Cancel) -> Result<ExitCode> {
    interrupt::cancels(cancel);
    let source = Source::from_gguf_bytes("tinytales", TINYTALES)?;
    let mut session = LmRunnerBuilder::new().source(source).cancel(cancel.clone()).session()?;
    let prompt = session
        .text()
        .chat_tokens(&[json!({"role": "user", "content": "Tell me a story."})], &generate::for_reply())?;
    let mut request = Request::default();
    request.cancel = cancel.clone();
    request.max_tokens = Some(400);
    let timing = generate::stream(&mut session, &prompt, request)?;
    print::out(&format!("\n{}\n", generate::summary("tinytales", &session, &timing)))?;
    Ok(ExitCode::SUCCESS)
}
