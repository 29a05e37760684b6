//! `kinfolk template`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kinfolk::text::RenderOptions;
use serde_json::{Value, json};

use crate::{args::TemplateArgs, open, print};

pub fn run(args: &TemplateArgs) -> Result<ExitCode> {
    let (messages, mut options) = request(open::json_file(&args.messages)?)
        .with_context(|| format!("`{}` holds no messages", args.messages.display()))?;
    options.add_generation_prompt = !args.no_generation_prompt;
    let source = open::source(&args.model, &args.open)?;
    let text = open::text_layer(&source)?;
    let Some(template) = &text.template else {
        bail!("`{}` has no chat template", args.model.display());
    };
    let prompt = template
        .render(&messages, &options)
        .with_context(|| format!("cannot render the messages of `{}`", args.messages.display()))?;
    if args.json {
        print::json(&json!({"prompt": prompt, "tokens": text.chat_tokens(&messages, &options)?}))?;
    } else {
        print::out(&prompt)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Messages and everything else a template may look at.
fn request(value: Value) -> Result<(Vec<Value>, RenderOptions)> {
    let mut options = RenderOptions::default();
    let messages = match value {
        Value::Array(messages) => messages,
        Value::Object(mut object) => {
            let messages = list(&mut object, "messages")?.context("expected key `messages`, found none")?;
            options.tools = list(&mut object, "tools")?;
            options.documents = list(&mut object, "documents")?;
            options.variables = object;
            messages
        }
        other => bail!("expected an array of messages or an object with `messages`, found `{other}`"),
    };
    Ok((messages, options))
}

fn list(object: &mut serde_json::Map<String, Value>, key: &str) -> Result<Option<Vec<Value>>> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => bail!("key `{key}`: expected an array, found `{other}`"),
    }
}
