//! The `kinfolk` command: run local language models, and look into their files.

mod args;
mod commands;
mod generate;
mod open;
mod print;

use std::process::ExitCode;

use clap::Parser;
use kinfolk::decoder::Cancel;

use crate::{
    args::{Cli, Command},
    print::is_closed_pipe,
};

kinfolk::enroll!();

/// What shells report for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let cancel = Cancel::new();
    if let Err(error) = stop_on_ctrl_c(&cancel) {
        print::warn(&format!("Ctrl-C will end the program at once: {error}"));
    }
    let done = match cli.command {
        None => commands::story::run(&cancel),
        Some(Command::Run(args)) => commands::run::run(&args, &cancel),
        Some(Command::Inspect(args)) => commands::inspect::run(&args),
        Some(Command::Families(args)) => commands::families::run(&args),
        Some(Command::Tokenize(args)) => commands::tokenize::run(&args),
        Some(Command::Template(args)) => commands::template::run(&args),
        Some(Command::Verify(args)) => commands::verify::run(&args, &cancel),
    };
    match done {
        Ok(_) if cancel.is_cancelled() => ExitCode::from(INTERRUPTED),
        Ok(code) => code,
        // Whoever reads has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(_) if cancel.is_cancelled() => ExitCode::from(INTERRUPTED),
        Err(error) => {
            print::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// The first Ctrl-C asks for a clean end, the second does not ask.
fn stop_on_ctrl_c(cancel: &Cancel) -> Result<(), ctrlc::Error> {
    let cancel = cancel.clone();
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(INTERRUPTED.into());
        }
        cancel.cancel();
    })
}
