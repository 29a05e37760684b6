//! What can be typed.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use kinfolk::{
    embedding::{Pooling, Prompt},
    sampling::{LogitBias, SampleOpts, StageKind},
};

const ENVIRONMENT: &str = "Environment:
  KINFOLK_CPU_LEVEL  Instruction set to use, where it is not to be the best: scalar, avx2, avx-vnni, avx512-vnni, amx, neon, neon-dotprod, neon-i8mm";

/// Runs local language models. Without a command, tells a story with the model inside this program.
#[derive(Debug, Parser)]
#[command(version, about, after_help = ENVIRONMENT)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generates text from a prompt.
    Run(RunArgs),
    /// Talks with a model, turn by turn.
    Chat(ChatArgs),
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
    /// Measures how fast a model runs, and how much of the machine that takes.
    Bench(BenchArgs),
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
    #[arg(short, long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Family to load the model with, instead of the one its architecture asks for.
    #[arg(long, value_name = "NAME")]
    pub family: Option<String>,
    /// Executor to run the model on.
    #[arg(long, value_name = "NAME")]
    pub executor: Option<String>,
    /// Round most activations of long prompts to 8 bits instead of 16 where that is faster: with AVX-512 VNNI and no matrix unit.
    #[arg(long)]
    pub narrow_activations: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}

impl LoadArgs {
    /// A model, loaded as it comes.
    pub fn of(model: &Path) -> LoadArgs {
        let open = OpenArgs { prefer_gguf: None, format: None };
        LoadArgs {
            model: model.to_owned(),
            ctx: None,
            threads: None,
            family: None,
            executor: None,
            narrow_activations: false,
            open,
        }
    }
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
    /// Move the temperature by up to this much to either side, as the model is sure or not; 0 does not [default: 0].
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub dynamic_temp_range: Option<f32>,
    /// Above 1 keeps a moving temperature low for longer [default: 1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub dynamic_temp_exponent: Option<f32>,
    /// Keep the likeliest tokens up to this probability; 1 keeps all [default: 0.95].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Keep this many likeliest tokens; 0 keeps all [default: 40].
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Keep tokens at least this fraction as likely as the likeliest; 0 keeps all [default: 0.05].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Keep the tokens of the most ordinary surprise up to this probability; 1 keeps all [default: 1].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub typical_p: Option<f32>,
    /// Keep tokens at most this many standard deviations below the likeliest; 0 keeps all [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top_n_sigma: Option<f32>,
    /// Keep the likeliest tokens up to this share of the entropy; 0 keeps all [default: 0].
    #[arg(long, value_name = "H", allow_negative_numbers = true)]
    pub top_h: Option<f32>,
    /// Keep tokens of at least this probability; 0 keeps all [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub epsilon_cutoff: Option<f32>,
    /// Keep tokens of at least this probability, or less where the model is unsure; 0 keeps all [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub eta_cutoff: Option<f32>,
    /// How often to drop the top choices but the least likely of them; 0 never does [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub xtc_probability: Option<f32>,
    /// The probability that makes a top choice [default: 0.1].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub xtc_threshold: Option<f32>,
    /// Hold the surprise of the reply at a target, by mirostat 1 or 2; 0 does not [default: 0].
    #[arg(long, value_name = "VERSION")]
    pub mirostat: Option<u8>,
    /// The surprise mirostat aims at, in bits [default: 5].
    #[arg(long, value_name = "BITS", allow_negative_numbers = true)]
    pub mirostat_tau: Option<f32>,
    /// How fast mirostat corrects [default: 0.1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub mirostat_eta: Option<f32>,
    /// Prefer tokens near this probability; below 0 does not [default: -1].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub adaptive_target: Option<f32>,
    /// How much of its average adaptive-p keeps with each token [default: 0.9].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub adaptive_decay: Option<f32>,
    /// Make recent tokens less likely by this factor; 1 does nothing [default: 1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Make recent tokens less likely, each time by this much; 0 does nothing [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// Make recent tokens less likely, once by this much; 0 does nothing [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// How many tokens are recent, the prompt's included; `all` for the whole context [default: 64].
    #[arg(long, value_name = "TOKENS", value_parser = window)]
    pub repetition_window: Option<usize>,
    /// Let no run of this many tokens occur twice; 0 lets all [default: 0].
    #[arg(long, value_name = "N")]
    pub no_repeat_ngram_size: Option<usize>,
    /// Make tokens that prolong a repetition less likely by this much; 0 does nothing [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub dry_multiplier: Option<f32>,
    /// Growth of that with each token more [default: 1.75].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub dry_base: Option<f32>,
    /// How many tokens may repeat [default: 2].
    #[arg(long, value_name = "TOKENS")]
    pub dry_allowed_length: Option<usize>,
    /// How many tokens are searched for repetitions; `all` for the whole context [default: all].
    #[arg(long, value_name = "TOKENS", value_parser = window)]
    pub dry_window: Option<usize>,
    /// A text that repetitions do not reach over, in place of the usual ones; may be given several times, or empty for none
    /// [default: line ends, colons, quotes and asterisks].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub dry_sequence_breaker: Option<Vec<String>>,
    /// Add this to the logit of a token; may be given several times.
    #[arg(long, value_name = "ID=BIAS", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Keep at least this many tokens whatever cuts them [default: 1].
    #[arg(long, value_name = "N")]
    pub min_keep: Option<usize>,
    /// The sampling stages in the order to run, separated by commas; those left out do not run.
    #[arg(long, value_name = "STAGES", value_delimiter = ',')]
    pub sampling_order: Option<Vec<StageKind>>,
    /// Same seed, same text [default: a new one each time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SampleArgs {
    /// The library's defaults with what was typed.
    ///
    /// # Errors
    /// A bias that is no number.
    pub fn options(&self) -> anyhow::Result<SampleOpts> {
        let d = SampleOpts::default();
        Ok(SampleOpts {
            temperature: self.temperature.unwrap_or(d.temperature),
            dynamic_temp_range: self.dynamic_temp_range.unwrap_or(d.dynamic_temp_range),
            dynamic_temp_exponent: self.dynamic_temp_exponent.unwrap_or(d.dynamic_temp_exponent),
            top_p: self.top_p.unwrap_or(d.top_p),
            top_k: self.top_k.unwrap_or(d.top_k),
            min_p: self.min_p.unwrap_or(d.min_p),
            typical_p: self.typical_p.unwrap_or(d.typical_p),
            top_n_sigma: self.top_n_sigma.unwrap_or(d.top_n_sigma),
            top_h: self.top_h.unwrap_or(d.top_h),
            epsilon_cutoff: self.epsilon_cutoff.unwrap_or(d.epsilon_cutoff),
            eta_cutoff: self.eta_cutoff.unwrap_or(d.eta_cutoff),
            xtc_probability: self.xtc_probability.unwrap_or(d.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(d.xtc_threshold),
            mirostat: self.mirostat.unwrap_or(d.mirostat),
            mirostat_tau: self.mirostat_tau.unwrap_or(d.mirostat_tau),
            mirostat_eta: self.mirostat_eta.unwrap_or(d.mirostat_eta),
            adaptive_target: self.adaptive_target.unwrap_or(d.adaptive_target),
            adaptive_decay: self.adaptive_decay.unwrap_or(d.adaptive_decay),
            repetition_penalty: self.repetition_penalty.unwrap_or(d.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(d.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(d.presence_penalty),
            repetition_window: self.repetition_window.unwrap_or(d.repetition_window),
            no_repeat_ngram_size: self.no_repeat_ngram_size.unwrap_or(d.no_repeat_ngram_size),
            dry_multiplier: self.dry_multiplier.unwrap_or(d.dry_multiplier),
            dry_base: self.dry_base.unwrap_or(d.dry_base),
            dry_allowed_length: self.dry_allowed_length.unwrap_or(d.dry_allowed_length),
            dry_window: self.dry_window.unwrap_or(d.dry_window),
            dry_sequence_breakers: match &self.dry_sequence_breaker {
                Some(texts) => texts.iter().filter(|text| !text.is_empty()).cloned().collect(),
                None => d.dry_sequence_breakers,
            },
            logit_bias: LogitBias::new(self.logit_bias.iter().copied())?,
            min_keep: self.min_keep.unwrap_or(d.min_keep),
            order: self.sampling_order.clone(),
            seed: self.seed,
        })
    }
}

/// When a reply ends, what it may be, and how it is sped up.
#[derive(Args, Debug)]
pub struct ReplyArgs {
    /// The longest reply, in tokens [default: as long as the context lasts].
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<usize>,
    /// A text that ends the reply where it appears; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Go on where the model would end its turn.
    #[arg(long)]
    pub ignore_eos: bool,
    /// End the reply after so many seconds, with what there is.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// When the context is full, drop the middle of it but for this many tokens at the beginning, instead of ending.
    #[arg(long, value_name = "KEEP")]
    pub shift: Option<usize>,
    /// Let the reply be JSON of this schema, a JSON file.
    #[arg(long, value_name = "FILE", group = "constraint")]
    pub json_schema: Option<PathBuf>,
    /// Let the reply be a text that this regular expression matches.
    #[arg(long, value_name = "PATTERN", group = "constraint")]
    pub regex: Option<String>,
    /// Let the reply be a text of this grammar, a file in Lark's notation.
    #[arg(long, value_name = "FILE", group = "constraint")]
    pub grammar: Option<PathBuf>,
    /// Guess ahead by what followed the last tokens before; the reply stays the same.
    #[arg(long, conflicts_with = "draft_model")]
    pub speculate: bool,
    /// Guess ahead with this smaller model of the same vocabulary; the reply stays the same.
    #[arg(long, value_name = "MODEL")]
    pub draft_model: Option<PathBuf>,
    /// Most tokens guessed at a time, up to 64.
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive)]
    pub draft_tokens: usize,
    /// Go on from this file, if it is there, and save what is computed to it at the end: a long prompt is computed once.
    #[arg(long, value_name = "FILE")]
    pub session: Option<PathBuf>,
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
    #[command(flatten)]
    pub reply: ReplyArgs,
    #[command(flatten)]
    pub sample: Box<SampleArgs>,
}

#[derive(Args, Debug)]
pub struct ChatArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// A system message before the conversation.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    pub reply: ReplyArgs,
    #[command(flatten)]
    pub sample: Box<SampleArgs>,
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

#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Tokens of the prompt; 0 leaves it out.
    #[arg(short, long, value_name = "TOKENS", default_value_t = 512, value_parser = few)]
    pub prompt: usize,
    /// Tokens to decode in each sequence; 0 leaves decoding out.
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 128, value_parser = few)]
    pub decode: usize,
    /// How many sequences decode at once; several numbers separated by commas.
    #[arg(short, long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = sequences)]
    pub batch: Vec<usize>,
    /// Tokens in the context before decoding; several numbers separated by commas.
    #[arg(long, value_name = "TOKENS", default_value = "0", value_delimiter = ',', value_parser = few)]
    pub depth: Vec<usize>,
    /// How often to measure, after once to warm up.
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = repetitions)]
    pub repetitions: usize,
    /// Show how long each kind of operation takes.
    #[arg(long)]
    pub profile: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    /// Tokens of the longest sequence.
    pub fn longest(&self) -> usize {
        let decoded = self.depth.iter().filter(|_| self.decode > 0).map(|depth| depth + self.decode);
        decoded.chain([self.prompt]).max().unwrap_or(0)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    // A year is as good as no limit, and more could not be added to a clock.
    let within = |seconds: &f64| *seconds > 0.0 && *seconds <= 31_536_000.0;
    text.parse().ok().filter(within).ok_or_else(|| "expected a number of seconds above 0, at most a year".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number of at least 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

/// Tokens to measure with: more than any context holds would only be refused later.
fn few(text: &str) -> Result<usize, String> {
    at_most(text, 0, 1 << 24)
}

fn sequences(text: &str) -> Result<usize, String> {
    at_most(text, 1, 1024)
}

fn repetitions(text: &str) -> Result<usize, String> {
    at_most(text, 1, 1000)
}

fn at_most(text: &str, min: usize, max: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("expected a whole number from {min} to {max}"))
}

/// A number of tokens, or all there are.
fn window(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(usize::MAX),
        _ => text.parse().map_err(|_| "expected a whole number, or `all`".to_owned()),
    }
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("expected a token id, `=` and a number")?;
    let id = id.trim().parse().map_err(|_| "expected a token id before the `=`")?;
    let bias = bias.trim().parse().map_err(|_| "expected a number after the `=`")?;
    Ok((id, bias))
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_sampling_flag_reaches_the_options() {
        let flags = SampleArgs::augment_args(clap::Command::new("flags"));
        let mut n = 0;
        for flag in flags.get_arguments().filter_map(clap::Arg::get_long) {
            let value = match flag {
                "logit-bias" => "3=-1.5",
                "sampling-order" => "min-p,temperature",
                "dry-sequence-breaker" => "",
                "repetition-window" => "all",
                // No other default is this number, or this whole number.
                "mirostat" | "seed" | "top-k" | "min-keep" | "no-repeat-ngram-size" => "2",
                "dry-allowed-length" | "dry-window" => "7",
                _ => "0.37",
            };
            let typed = ["kinfolk", "run", "model", "prompt", &format!("--{flag}"), value];
            let Cli { command: Some(Command::Run(args)), .. } = Cli::parse_from(typed) else { panic!("{flag}") };
            let options = args.sample.options().unwrap();
            assert_ne!(options, SampleOpts::default(), "--{flag}");
            options.validate().unwrap();
            n += 1;
        }
        assert_eq!(n, 32, "flags");
    }

    #[test]
    fn a_bias_or_a_window_that_cannot_be_read_is_refused() {
        for bad in
            ["--logit-bias=3", "--logit-bias=x=1", "--logit-bias=3=x", "--dry-window=-1", "--sampling-order=top_q"]
        {
            assert!(Cli::try_parse_from(["kinfolk", "run", "model", "prompt", bad]).is_err(), "{bad}");
        }
        let args = Cli::parse_from(["kinfolk", "run", "model", "prompt", "--logit-bias=3=nan"]);
        let Some(Command::Run(args)) = args.command else { panic!("a command") };
        assert!(args.sample.options().is_err());
    }

    #[test]
    fn the_flags_are_sound() {
        Cli::command().debug_assert();
    }
}
