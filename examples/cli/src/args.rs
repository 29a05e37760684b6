//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use kinfolk::{
    embedding::{Pooling, Prompt},
    sampling::SampleOpts,
};

/// Runs local language models. Without a command, tells a story with the model inside this program.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generates text from a prompt.
    Run(RunArgs),
    /// Says what a model file or directory holds and what it needs.
    Inspect(InspectArgs),
    /// Lists the families this program can run, or explains which one a file gets.
    Families(FamiliesArgs),
    /// Shows the tokens of a text.
    Tokenize(TokenizeArgs),
    /// Shows the prompt that a model's chat template makes of messages.
    Template(TemplateArgs),
    /// Compares a model's logits with those of another implementation.
    Verify(VerifyArgs),
    /// Turns texts into vectors, one per line.
    Embed(EmbedArgs),
    /// Says how likely a model finds a continuation, or the text of a file.
    Score(ScoreArgs),
}

/// Which model, and how to load it.
#[derive(Args, Debug)]
pub struct LoadArgs {
    /// A GGUF file, a safetensors file, or a directory that holds a model.
    pub model: PathBuf,
    /// Room for this many tokens [default: the model's own context length].
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub ctx: Option<usize>,
    /// Threads to compute with [default: all cores].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Family to load the model with, instead of the one its architecture asks for.
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Executor to run the model on.
    #[arg(long, value_name = "NAME")]
    pub executor: Option<String>,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Which of several models in a directory.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Which of several GGUF files in a directory [default: Q4_K_M].
    #[arg(long, value_name = "NAME")]
    pub prefer_gguf: Option<String>,
    /// Which format where a directory holds several: gguf or safetensors.
    #[arg(long, value_name = "FORMAT", value_parser = weight_format)]
    pub format: Option<kinfolk::WeightFormat>,
}

/// How tokens are chosen. Defaults are those of [`SampleOpts`].
#[derive(Args, Debug)]
pub struct SampleArgs {
    /// 0 takes the likeliest token; higher is more varied [default: 0.8].
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Keep the likeliest tokens up to this probability; 1 keeps all [default: 0.95].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Keep this many likeliest tokens; 0 keeps all [default: 40].
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Keep tokens at least this fraction as likely as the likeliest; 0 keeps all [default: 0.05].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Make the last 64 tokens less likely; 1 does nothing [default: 1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Same seed, same text [default: a new one each time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SampleArgs {
    /// The library's defaults with what was typed.
    pub fn options(&self) -> SampleOpts {
        let d = SampleOpts::default();
        SampleOpts {
            temperature: self.temperature.unwrap_or(d.temperature),
            top_p: self.top_p.unwrap_or(d.top_p),
            top_k: self.top_k.unwrap_or(d.top_k),
            min_p: self.min_p.unwrap_or(d.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(d.repetition_penalty),
            seed: self.seed,
            ..d
        }
    }
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// The prompt; `-` reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    pub prompt: String,
    /// Continue the prompt as it is, without the model's chat template.
    #[arg(long)]
    pub raw: bool,
    /// A system message before the prompt.
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// The longest reply, in tokens [default: as long as the context lasts].
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<usize>,
    #[command(flatten)]
    pub sample: SampleArgs,
}

#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A GGUF file, a safetensors file, or a directory that holds a model, or just its config.json and index.
    pub model: PathBuf,
    /// Context length to compute the memory for [default: the model's own].
    #[arg(long, visible_alias = "ctx", value_name = "TOKENS", value_parser = positive)]
    pub context: Option<usize>,
    /// Sequences at once to compute the memory for.
    #[arg(long, value_name = "N", value_parser = positive, default_value = "1")]
    pub sequences: usize,
    /// Compute the memory for embeddings alone, without the head.
    #[arg(long)]
    pub embeddings: bool,
    /// Memory to hold it against [default: what this machine has left].
    #[arg(long, value_name = "GIB", value_parser = gib)]
    pub memory: Option<u64>,
    /// Family to describe the model with, instead of the one its architecture asks for.
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Executor to run the model on.
    #[arg(long, value_name = "NAME")]
    pub executor: Option<String>,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct FamiliesArgs {
    /// Show which family this file or directory gets, and why.
    #[arg(long, value_name = "FILE")]
    pub explain: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct TokenizeArgs {
    /// A GGUF file, or a directory with a tokenizer.json.
    pub model: PathBuf,
    /// The text; `-` reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// Let control tokens in the text be control tokens.
    #[arg(long)]
    pub parse_special: bool,
    /// Leave out the tokens the model puts around every text, such as BOS.
    #[arg(long)]
    pub no_special: bool,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct TemplateArgs {
    /// A GGUF file, or a directory that holds a model.
    pub model: PathBuf,
    /// A JSON file: an array of messages, or an object with `messages` and optionally `tools`, `documents` and other variables.
    #[arg(long, value_name = "FILE")]
    pub messages: PathBuf,
    /// Do not open the assistant's turn at the end.
    #[arg(long)]
    pub no_generation_prompt: bool,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Print JSON: the prompt and its tokens.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// A safetensors file with `prompt_ids`, `prompt_logits`, `decode_ids` and `decode_logits`.
    #[arg(long, value_name = "FILE")]
    pub reference: PathBuf,
    /// Allowed absolute difference of a logit.
    #[arg(long, value_name = "X", default_value = "0.001", value_parser = tolerance)]
    pub tolerance: f32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct EmbedArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// The texts; `-` reads one per line from standard input.
    #[arg(required = true)]
    pub texts: Vec<String>,
    /// How to make one vector of all tokens': cls, max, mean, mean_sqrt_len, weightedmean or last, or several joined by `+` [default: the
    /// checkpoint's own].
    #[arg(long, value_name = "MODE")]
    pub pooling: Option<Pooling>,
    /// Scale vectors to length 1, also if the checkpoint does not.
    #[arg(long, conflicts_with = "no_normalize")]
    pub normalize: bool,
    /// Leave vectors the length they have, also if the checkpoint scales them to length 1.
    #[arg(long)]
    pub no_normalize: bool,
    #[command(flatten)]
    pub prompt: PromptArgs,
    /// Cut texts that are too long at their end, with a warning, instead of refusing them.
    #[arg(long)]
    pub truncate: bool,
    /// Keep only this many dimensions, the first.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub dimensions: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What to put before every text [default: the checkpoint's own choice].
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct PromptArgs {
    /// Put the checkpoint's prompt of this name before every text.
    #[arg(long, value_name = "NAME")]
    pub prompt: Option<String>,
    /// The texts are queries.
    #[arg(long)]
    pub query: bool,
    /// The texts are documents.
    #[arg(long)]
    pub document: bool,
}

impl PromptArgs {
    /// The choice that was typed.
    pub fn prompt(&self) -> Prompt {
        match &self.prompt {
            Some(name) => Prompt::Named(name.clone()),
            None if self.query => Prompt::Query,
            None if self.document => Prompt::Document,
            None => Prompt::Default,
        }
    }
}

#[derive(Args, Debug)]
pub struct ScoreArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// What the continuation follows [default: nothing].
    #[arg(long, value_name = "TEXT", requires = "continuation", allow_hyphen_values = true)]
    pub context: Option<String>,
    /// Text to score after the context.
    #[arg(long, value_name = "TEXT", required_unless_present = "file", allow_hyphen_values = true)]
    pub continuation: Option<String>,
    /// A text file to compute the perplexity of; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["continuation", "context"])]
    pub file: Option<PathBuf>,
    /// Tokens that are looked at together [default: 512, or the context length if that is less].
    #[arg(long, value_name = "TOKENS", value_parser = positive, conflicts_with = "continuation")]
    pub window: Option<usize>,
    /// Tokens from the start of a window to that of the next [default: half a window].
    #[arg(long, value_name = "TOKENS", value_parser = positive, conflicts_with = "continuation")]
    pub stride: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number of at least 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

fn tolerance(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|x: &f32| *x >= 0.0).ok_or_else(|| "expected a number of at least 0".to_owned())
}

/// GiB as bytes.
fn gib(text: &str) -> Result<u64, String> {
    let gib: Option<f64> = text.parse().ok().filter(|gib| *gib >= 0.0);
    gib.map(|gib| (gib * (1u64 << 30) as f64) as u64).ok_or_else(|| "expected a number of at least 0".to_owned())
}

fn weight_format(text: &str) -> Result<kinfolk::WeightFormat, String> {
    kinfolk::WeightFormat::parse(text).ok_or_else(|| "expected gguf or safetensors".to_owned())
}
