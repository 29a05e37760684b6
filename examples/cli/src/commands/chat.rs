//! `kinfolk chat`.

use std::{
    io::{self, BufRead},
    process::ExitCode,
};

use anyhow::{Context, Result};
use kinfolk::{
    decoder::Cancel,
    session::{Chat, DriveError, Session},
};
use serde_json::json;

use crate::{args::ChatArgs, generate, interrupt, open, print, request::Requests};

/// The longest message, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;

pub fn run(args: &ChatArgs, cancel: &Cancel) -> Result<ExitCode> {
    let sample = args.sample.options()?;
    sample.validate()?;
    let mut requests = Requests::new(&args.reply)?;
    interrupt::cancels(cancel);
    let model = || format!("cannot chat with `{}`", args.load.model.display());
    let mut session = open::builder(&args.load, cancel)?.sample(sample).session()?;
    anyhow::ensure!(session.text().template.is_some(), "`{}` has no chat template", args.load.model.display());
    if let Some(path) = args.reply.session.as_deref().filter(|path| path.exists()) {
        session.load(path)?;
    }
    requests.prepare(&session, &args.load, cancel)?;
    print::note("one message per line; /undo takes the last one back, /quit ends");
    let mut chat = Chat::new(generate::for_reply());
    if let Some(system) = &args.system {
        chat.push(json!({"role": "system", "content": system}));
    }
    let n_before = chat.messages().len();
    // From here on Ctrl-C ends a reply, or the program where there is none.
    interrupt::ends_program();
    while let Some(line) = next_line()? {
        match line.trim() {
            "" => {}
            "/quit" => break,
            "/undo" => undo(&mut chat, n_before),
            message => {
                chat.push(json!({"role": "user", "content": message}));
                answer(&mut chat, &mut session, &requests, model)?;
                interrupt::ends_program();
            }
        }
    }
    if let Some(path) = &args.reply.session {
        session.save(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets the model answer. What a message is to blame for is told, and the message taken back.
fn answer(chat: &mut Chat, session: &mut Session, requests: &Requests<'_>, model: impl Fn() -> String) -> Result<()> {
    let cancel = Cancel::new();
    interrupt::cancels(&cancel);
    let mut request = requests.next(&cancel)?;
    request.reply = session.reply_options();
    let mut writer = generate::Writer::default();
    let mut written = Ok(());
    let answered = chat.answer(session, request, |event| {
        if written.is_ok() {
            written = writer.write(event);
        }
    });
    written?;
    match answered {
        Ok(_) => {
            print::note(&writer.finish()?.speeds());
            Ok(())
        }
        Err(error) if error.downcast_ref::<DriveError>().is_none() => {
            chat.messages_mut().pop();
            print::error(&error);
            Ok(())
        }
        Err(error) => Err(error).with_context(model),
    }
}

/// Takes the last message back, and the answer to it.
fn undo(chat: &mut Chat, n_before: usize) {
    let messages = chat.messages_mut();
    let from_user = |message: &serde_json::Value| message["role"] == "user";
    let last = messages.iter().rposition(from_user).unwrap_or(n_before);
    messages.truncate(last.max(n_before));
}

/// A line from standard input. `None`: there are no more.
fn next_line() -> Result<Option<String>> {
    let mut line = Vec::new();
    let mut input = io::Read::take(io::stdin().lock(), MAX_LINE_BYTES as u64 + 1);
    let n = input.read_until(b'\n', &mut line).context("cannot read from standard input")?;
    anyhow::ensure!(n <= MAX_LINE_BYTES, "expected a message of at most {MAX_LINE_BYTES} bytes, found a longer one");
    let line = String::from_utf8(line).context("a message is not UTF-8")?;
    Ok((n > 0).then_some(line))
}
