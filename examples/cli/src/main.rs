//! The `kinfolk` command: run local language models, and look into their files.

mod args;
mod commands;
mod generate;
mod interrupt;
mod open;
mod print;
mod request;

use std::process::ExitCode;

use clap::Parser;
use kinfolk::decoder::Cancel;

use crate::{
    args::{Cli, Command},
    print::is_closed_pipe,
};

kinfolk::enroll!();

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::listen();
    let cancel = Cancel::new();
    let done = match cli.command {
        None => commands::story::run(&cancel),
        Some(Command::Run(args)) => commands::run::run(&args, &cancel),
        Some(Command::Chat(args)) => commands::chat::run(&args, &cancel),
        Some(Command::Inspect(args)) => commands::inspect::run(&args),
        Some(Command::Families(args)) => commands::families::run(&args),
        Some(Command::Tokenize(args)) => commands::tokenize::run(&args),
        Some(Command::Template(args)) => commands::template::run(&args),
        Some(Command::Verify(args)) => commands::verify::run(&args),
        Some(Command::Embed(args)) => commands::embed::run(&args, &cancel),
        Some(Command::Score(args)) => commands::score::run(&args, &cancel),
        Some(Command::Bench(args)) => commands::bench::run(&args, &cancel),
    };
    match done {
        Ok(_) if cancel.is_cancelled() => ExitCode::from(interrupt::EXIT_CODE),
        Ok(code) => code,
        // Whoever reads has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(_) if cancel.is_cancelled() => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            print::error(&error);
            ExitCode::FAILURE
        }
    }
}
