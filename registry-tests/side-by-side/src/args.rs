//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::engine::EngineKind;

/// Compares kinfolk with llama.cpp and candle on the same GGUF file.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs engines in turns and prints what each reaches and the ratios.
    Compare(CompareArgs),
    /// Shows how far logits are from those of exact products with the same weights.
    Accuracy(AccuracyArgs),
    /// Makes files of random weights in the shape of a model.
    #[cfg(feature = "llama-cpp")]
    Make(MakeArgs),
    /// Answers the requests of a comparison on standard input.
    #[command(hide = true)]
    Worker { engine: EngineKind },
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// A GGUF file.
    pub model: PathBuf,
    /// Tokens of the prompt; several lengths separated by commas; 0 leaves prefill out.
    #[arg(short, long, default_value = "512", value_delimiter = ',')]
    pub prompt: Vec<usize>,
    /// Tokens to decode; 0 leaves decoding out.
    #[arg(short, long, default_value_t = 64)]
    pub n_decode: usize,
    /// Tokens in the context before decoding.
    #[arg(short, long, default_value = "0", value_delimiter = ',')]
    pub depth: Vec<usize>,
    /// Sequences that decode at once.
    #[arg(short, long, default_value = "1", value_delimiter = ',', value_parser = positive)]
    pub batch: Vec<usize>,
    /// Turns of each engine. In every one it rests, does the work once uncounted, and then again.
    #[arg(short, long, default_value_t = 3, value_parser = positive)]
    pub repetitions: usize,
    /// Also starts a new process for every engine and turn, for load time, time to the first token and memory.
    #[arg(long)]
    pub cold: bool,
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Prints JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct AccuracyArgs {
    /// GGUF files.
    #[arg(required = true)]
    pub models: Vec<PathBuf>,
    /// Tokens of the text.
    #[arg(short, long, default_value_t = 96, value_parser = positive)]
    pub n_tokens: usize,
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Prints JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Who takes part, and how.
#[derive(Args, Debug)]
pub struct EngineArgs {
    /// Threads for every engine.
    #[arg(short, long, default_value_t = n_cores(), value_parser = positive)]
    pub threads: usize,
    /// The engines, the one to compare with the others first [default: all that this program was built with].
    #[arg(short, long, value_delimiter = ',')]
    pub engines: Vec<EngineKind>,
    /// Runs an engine with another build of this program; under another name, beside its own build. May be given several times.
    #[arg(long, value_name = "[NAME=]ENGINE=PROGRAM", value_parser = other_build)]
    pub worker: Vec<OtherBuild>,
}

/// An engine in another build of this program.
#[derive(Clone, Debug)]
pub struct OtherBuild {
    /// What to call it; `None` takes the place of the engine in this build.
    pub name: Option<String>,
    pub engine: EngineKind,
    pub program: PathBuf,
}

#[cfg(feature = "llama-cpp")]
#[derive(Args, Debug)]
pub struct MakeArgs {
    /// Sizes of the model.
    #[arg(long, default_value = "qwen3-0.6b")]
    pub shape: crate::make::Shape,
    /// How weights are stored; all of them by default.
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<crate::make::Mixture>,
    /// Where files go [default: `~/.cache/kinfolk-test-models/made`]. A file that is there is not made again.
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
}

fn n_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn positive(typed: &str) -> Result<usize, String> {
    typed.parse().ok().filter(|n| *n > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

fn other_build(typed: &str) -> Result<OtherBuild, String> {
    let engine = |name: &str| clap::ValueEnum::from_str(name, false);
    match typed.split('=').collect::<Vec<_>>()[..] {
        [kind, program] => Ok(OtherBuild { name: None, engine: engine(kind)?, program: program.into() }),
        [name, kind, program] => {
            Ok(OtherBuild { name: Some(name.to_owned()), engine: engine(kind)?, program: program.into() })
        }
        _ => Err("expected ENGINE=PROGRAM or NAME=ENGINE=PROGRAM".to_owned()),
    }
}
