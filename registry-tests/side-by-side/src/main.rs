//! kinfolk, llama.cpp and candle on the same GGUF file, in turns.
//!
//! Every engine runs in a process of its own, so that memory can be told apart and nobody's threads wait inside another's. The process
//! that compares sends each the same requests and lets them answer one after the other: A B C A B C.

kinfolk::enroll!();

mod accuracy;
mod args;
mod compare;
mod contender;
mod distance;
mod engine;
mod frames;
#[cfg(feature = "llama-cpp")]
mod make;
mod memory;
mod protocol;
mod random;
mod report;
mod worker;

use std::{env, process::ExitCode};

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Compare(args) => compare::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        #[cfg(feature = "llama-cpp")]
        Command::Make(args) => make::run(&args),
        Command::Worker { engine } => choose_level().and_then(|()| worker::serve(engine)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Which of its instruction sets kinfolk uses, where it is not to be the best.
fn choose_level() -> anyhow::Result<()> {
    let Some(name) = env::var_os("KINFOLK_CPU_LEVEL") else { return Ok(()) };
    Ok(kinfolk_cpu::use_level(&name.to_string_lossy())?)
}
