//! The `kinfolk` command: run local language models, and look into their files.

mod args;
mod commands;
mod generate;
mod interrupt;
mod open;
mod print;
mod request;

use std::{env, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use kinfolk::decoder::Cancel;

use crate::{
    args::{Cli, Command},
    print::is_closed_pipe,
};

kinfolk::enroll!();

/// Which instruction set to use, where it is not to be the best.
const LEVEL_VARIABLE: &str = "KINFOLK_CPU_LEVEL";

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::listen();
    let cancel = Cancel::new();
    let done = choose_level().and_then(|()| run(cli, &cancel));
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

fn choose_level() -> anyhow::Result<()> {
    let Some(name) = env::var_os(LEVEL_VARIABLE) else { return Ok(()) };
    kinfolk_cpu::use_level(&name.to_string_lossy()).context(LEVEL_VARIABLE)
}

fn run(cli: Cli, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    match cli.command {
        None => commands::story::run(cancel),
        Some(Command::Run(args)) => commands::run::run(&args, cancel),
        Some(Command::Chat(args)) => commands::chat::run(&args, cancel),
        Some(Command::Inspect(args)) => commands::inspect::run(&args),
        Some(Command::Families(args)) => commands::families::run(&args),
        Some(Command::Tokenize(args)) => commands::tokenize::run(&args),
        Some(Command::Template(args)) => commands::template::run(&args),
        Some(Command::Verify(args)) => commands::verify::run(&args),
        Some(Command::Embed(args)) => commands::embed::run(&args, cancel),
        Some(Command::Score(args)) => commands::score::run(&args, cancel),
        Some(Command::Bench(args)) => commands::bench::run(&args, cancel),
    }
}
