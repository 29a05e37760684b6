//! `kinfolk run`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kinfolk::{decoder::Cancel, text::Text};
use serde_json::json;

use crate::{args::RunArgs, generate, interrupt, open, print, request::Requests};

pub fn run(args: &RunArgs, cancel: &Cancel) -> Result<ExitCode> {
    let prompt = open::text_or_stdin(&args.prompt)?;
    let sample = args.sample.options()?;
    sample.validate()?;
    let mut requests = Requests::new(&args.reply)?;
    interrupt::cancels(cancel);
    let mut session = open::builder(&args.load, cancel)?.sample(sample).session()?;
    if let Some(path) = args.reply.session.as_deref().filter(|path| path.exists()) {
        session.load(path)?;
    }
    let prompt = prompt_tokens(args, session.text(), &prompt)?;
    requests.prepare(&session, &args.load, cancel)?;
    // The reply's own: a runner that is cancelled cannot save what it has.
    let reply = Cancel::new();
    interrupt::cancels(&reply);
    let request = requests.next(&reply)?;
    let report = generate::stream(&mut session, &prompt, request)
        .with_context(|| format!("cannot run `{}`", args.load.model.display()))?;
    if let Some(path) = &args.reply.session {
        session.save(path)?;
    }
    let model = args.load.model.file_name().unwrap_or(args.load.model.as_os_str()).to_string_lossy();
    print::note(&generate::summary(&model, &session, &report));
    Ok(if reply.is_cancelled() { ExitCode::from(interrupt::EXIT_CODE) } else { ExitCode::SUCCESS })
}

fn prompt_tokens(args: &RunArgs, text: &Text, prompt: &str) -> Result<Vec<u32>> {
    if args.raw {
        return Ok(text.raw_tokens(prompt)?);
    }
    if text.template.is_none() {
        if args.system.is_some() {
            bail!("`--system` needs a chat template, and `{}` has none", args.load.model.display());
        }
        print::warn("this model has no chat template: the prompt is continued as it is");
        return Ok(text.raw_tokens(prompt)?);
    }
    let system = args.system.iter().map(|content| json!({"role": "system", "content": content}));
    let messages: Vec<_> = system.chain([json!({"role": "user", "content": prompt})]).collect();
    Ok(text.chat_tokens(&messages, &generate::for_reply())?)
}
