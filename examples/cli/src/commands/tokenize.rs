//! `kinfolk tokenize`.

use std::process::ExitCode;

use anyhow::Result;
use kinfolk::text::EncodeOptions;
use serde_json::json;

use crate::{args::TokenizeArgs, open, print};

pub fn run(args: &TokenizeArgs) -> Result<ExitCode> {
    let text = open::text_or_stdin(&args.text)?;
    let source = open::source(&args.model, &args.open)?;
    let layer = open::text_layer(&source)?;
    let options = EncodeOptions { add_special: !args.no_special, parse_special: args.parse_special };
    let tokens = layer.tokenizer.encode_with_offsets(&text, options)?;
    if args.json {
        let token = |t: &kinfolk::text::Token| json!({"id": t.id, "piece": t.piece, "start": t.range.start, "end": t.range.end, "special": t.special});
        print::json(&json!({"n_tokens": tokens.len(), "tokens": tokens.iter().map(token).collect::<Vec<_>>()}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let heading = ["id", "bytes", "piece", ""].map(str::to_owned).to_vec();
    let row = |t: &kinfolk::text::Token| {
        let special = if t.special { "special" } else { "" };
        vec![
            t.id.to_string(),
            format!("{}..{}", t.range.start, t.range.end),
            format!("{:?}", t.piece),
            special.to_owned(),
        ]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(tokens.iter().map(row)).collect();
    print::out(&print::table(&rows))?;
    Ok(ExitCode::SUCCESS)
}
