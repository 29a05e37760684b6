//! `kinfolk inspect`.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use kinfolk::{
    LoadRole, Registry, WeightFormat,
    admission::{self, AdmissionOptions, Assessment, Basis, Listing, Memory, Model, Remedies, SchemeShare, Verdict},
    decoder::{Config, Decoder, Ffn, Mask, Mixer, Source},
    registry::Decision,
    text::Text,
};
use serde::Serialize;

use crate::{args::InspectArgs, open, print};

#[derive(Serialize)]
struct Inspection {
    path: String,
    format: String,
    /// Files of weights.
    n_files: usize,
    /// Those of them that are not there, though an index names them.
    absent: Vec<String>,
    architectures: Vec<String>,
    family: Option<&'static str>,
    executor: Option<&'static str>,
    n_tensors: Option<usize>,
    n_parameters: Option<u64>,
    tensor_bytes: Option<u64>,
    /// By group of tensors: bytes per type.
    quantization: BTreeMap<&'static str, BTreeMap<String, u64>>,
    stored: Option<Stored>,
    sizes: Option<Sizes>,
    text: Option<TextInfo>,
    memory: Option<Needed>,
    /// What is in the way of running it, if anything.
    problems: Vec<String>,
}

/// How the weights that a load takes are stored.
#[derive(Serialize)]
struct Stored {
    schemes: Vec<SchemeShare>,
    bits_per_weight: f64,
    /// What that was told from.
    basis: Basis,
}

#[derive(Serialize)]
struct Sizes {
    context_length: usize,
    vocab_size: usize,
    hidden_size: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    ffn: String,
    attention: String,
}

#[derive(Serialize)]
struct TextInfo {
    vocab_size: usize,
    bos: Option<String>,
    /// Whether the tokenizer puts it before every text.
    add_bos: bool,
    ends: Vec<String>,
    /// Names of the chat templates.
    templates: Vec<String>,
}

#[derive(Serialize)]
struct Needed {
    context_length: usize,
    n_sequences: usize,
    #[serde(flatten)]
    memory: Memory,
    available_bytes: Option<u64>,
    /// Unknown if the system does not say what is available.
    fits: Option<bool>,
    /// What would make it fit, if it does not.
    remedies: Option<Remedies>,
}

pub fn run(args: &InspectArgs) -> Result<ExitCode> {
    let inspection = match open::source(&args.model, &args.open) {
        Ok(source) => of_source(args, &source),
        // A download that is not there yet, or not all of it.
        Err(error) => match listing(args) {
            Some(listing) => of_listing(args, &listing)?,
            None => return Err(error),
        },
    };
    if args.json {
        print::json(&inspection)?;
    } else {
        print::out(&in_words(&inspection))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The listing of a directory that says what its model is but does not hold its weights.
fn listing(args: &InspectArgs) -> Option<Listing> {
    let listing = Listing::of_directory(&args.model).ok()?;
    let chosen = listing.choose(&args.open.options()).ok()?;
    let is_partial = chosen.format == WeightFormat::Safetensors && chosen.n_bytes.is_none();
    (listing.config().is_some() && is_partial).then_some(listing)
}

/// Says what can be said; what is in the way of saying more is listed among the problems.
fn of_source(args: &InspectArgs, source: &Source) -> Inspection {
    let claim = match &args.family {
        Some(name) => Registry::linked().pin(name, source),
        None => Registry::linked().claim(source),
    };
    let decision = claim.ok();
    let turn_ends = decision.as_ref().map_or(&[][..], |decision| decision.family.conventions.turn_ends);
    let mut inspection = Inspection {
        path: args.model.display().to_string(),
        format: source.format().to_string(),
        n_files: source.files().len(),
        n_tensors: Some(source.tensors().count()),
        n_parameters: Some(source.tensors().map(|t| t.n_elements() as u64).sum()),
        tensor_bytes: Some(source.tensor_bytes()),
        quantization: quantization(source),
        ..assessed(args, source, source.config(), decision.as_ref())
    };
    match Text::from_source(source, turn_ends) {
        Ok(text) => inspection.text = Some(text_info(&text)),
        Err(error) => inspection.problems.push(error.to_string()),
    }
    inspection
}

/// The same of a model whose weights are not there.
fn of_listing(args: &InspectArgs, listing: &Listing) -> Result<Inspection> {
    let chosen = listing.choose(&args.open.options())?;
    let empty = Config::from_json(listing.path(), "{}")?;
    let config = listing.config().unwrap_or(&empty);
    let claim = match &args.family {
        Some(name) => Registry::linked().pin_config(name, config, listing.path()),
        None => Registry::linked().claim_config(config, listing.path()),
    };
    Ok(Inspection {
        path: args.model.display().to_string(),
        format: chosen.format.to_string(),
        n_files: chosen.files.len(),
        absent: chosen.absent,
        ..assessed(args, listing, config, claim.ok().as_ref())
    })
}

/// What an admission says, and what the description alone does where it refuses.
fn assessed<'a>(
    args: &InspectArgs,
    model: impl Into<Model<'a>>,
    config: &Config,
    decision: Option<&Decision>,
) -> Inspection {
    let mut options = AdmissionOptions::default();
    options.open = args.open.options();
    options.context_length = args.context;
    options.n_sequences = args.sequences;
    options.role = if args.embeddings { LoadRole::Embedding } else { LoadRole::Text };
    options.family = args.family.clone();
    options.executor = args.executor.clone();
    options.available_bytes = args.memory;
    let assessment = admission::examine(Registry::linked(), model, &options);
    let mut problems: Vec<String> = assessment.as_ref().err().map(ToString::to_string).into_iter().collect();
    if let Ok(Assessment { verdict: Verdict::TooLarge(too_large), .. }) = &assessment {
        problems.push(too_large.to_string());
    }
    let assessment = assessment.ok();
    let describe = || decision?.family.describe?(config).ok();
    let decoder = assessment.as_ref().map(|found| (*found.decoder).clone()).or_else(describe);
    Inspection {
        path: String::new(),
        format: String::new(),
        n_files: 0,
        absent: Vec::new(),
        architectures: config.architectures(),
        family: decision.map(|decision| decision.family.name),
        executor: assessment.as_ref().map(|found| found.executor),
        n_tensors: None,
        n_parameters: assessment.as_ref().map(|found| found.n_parameters),
        tensor_bytes: None,
        quantization: BTreeMap::new(),
        sizes: decoder.as_ref().and_then(sizes),
        text: None,
        stored: assessment.as_ref().map(stored),
        memory: assessment.map(needed),
        problems,
    }
}

fn stored(assessment: &Assessment) -> Stored {
    let quantisation = &assessment.quantisation;
    Stored {
        schemes: quantisation.schemes.clone(),
        bits_per_weight: quantisation.bits_per_weight,
        basis: quantisation.basis,
    }
}

fn needed(assessment: Assessment) -> Needed {
    let (fits, remedies) = match assessment.verdict {
        Verdict::Fits => (Some(true), None),
        Verdict::TooLarge(too_large) => (Some(false), Some(too_large.remedies)),
        _ => (None, None),
    };
    Needed {
        context_length: assessment.context_length,
        n_sequences: assessment.n_sequences,
        memory: assessment.memory,
        available_bytes: assessment.available_bytes,
        fits,
        remedies,
    }
}

fn quantization(source: &Source) -> BTreeMap<&'static str, BTreeMap<String, u64>> {
    let mut groups: BTreeMap<_, BTreeMap<String, u64>> = BTreeMap::new();
    for tensor in source.tensors() {
        *groups.entry(group(&tensor.name)).or_default().entry(tensor.dtype.to_string()).or_default() +=
            tensor.n_bytes() as u64;
    }
    groups
}

/// Which part of a decoder a tensor belongs to, by the words all checkpoints use.
fn group(name: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["norm"]) {
        "norms"
    } else if has(&["embd", "embed", "wte"]) {
        "embedding"
    } else if has(&["exps", "experts"]) {
        "experts"
    } else if has(&["attn", "attention"]) {
        "attention"
    } else if has(&["ffn", "mlp", "feed_forward", "block_sparse_moe"]) {
        "feed-forward"
    } else if has(&["lm_head"]) || name.starts_with("output.") {
        "head"
    } else {
        "other"
    }
}

fn sizes(decoder: &Decoder) -> Option<Sizes> {
    let attentions = || {
        decoder.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Attention(a) => Some(a),
            _ => None,
        })
    };
    let first = attentions().next()?;
    let sliding = attentions().filter(|a| a.mask != Mask::Causal).count();
    let attention = match attentions().find_map(|a| if let Mask::Window(w) = a.mask { Some(w) } else { None }) {
        None => "every layer sees the whole context".to_owned(),
        Some(window) => format!("{sliding} of {} layers see a window of {window} tokens", decoder.layers.len()),
    };
    let ffn = decoder.layers.iter().find_map(|layer| match &layer.ffn {
        Ffn::Moe(moe) => Some(format!(
            "{} of {} experts of width {}{}",
            moe.top_k,
            moe.n_experts,
            moe.expert.intermediate_size,
            moe.shared.map_or(String::new(), |s| format!(" and a shared one of width {}", s.expert.intermediate_size)),
        )),
        _ => None,
    });
    let dense = decoder.layers.iter().find_map(|layer| match &layer.ffn {
        Ffn::Gated(mlp) => Some(format!("width {}", mlp.intermediate_size)),
        _ => None,
    });
    Some(Sizes {
        context_length: decoder.context_length,
        vocab_size: decoder.embedding.vocab_size,
        hidden_size: decoder.embedding.hidden_size,
        n_layers: decoder.layers.len(),
        n_heads: first.n_heads,
        n_kv_heads: first.n_kv_heads,
        head_dim: first.head_dim,
        ffn: [dense, ffn].into_iter().flatten().collect::<Vec<_>>().join(", "),
        attention,
    })
}

fn text_info(text: &Text) -> TextInfo {
    let tokenizer = &text.tokenizer;
    let spelled = |id: u32| tokenizer.token_text(id).unwrap_or_else(|| id.to_string());
    TextInfo {
        vocab_size: tokenizer.vocab_size(),
        bos: tokenizer.bos().map(spelled),
        add_bos: tokenizer.add_bos(),
        ends: text.ends.iter().map(spelled).collect(),
        templates: text.template.as_ref().map(|t| t.names().to_vec()).unwrap_or_default(),
    }
}

fn in_words(i: &Inspection) -> String {
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let mut rows = vec![
        ("path", i.path.clone()),
        ("format", format!("{}, {} file{}", i.format, i.n_files, plural(i.n_files))),
        ("architecture", i.architectures.join(", ")),
        ("family", i.family.unwrap_or("none").to_owned()),
        ("executor", i.executor.unwrap_or("none").to_owned()),
    ];
    if !i.absent.is_empty() {
        rows.push(("absent", format!("{} of {} file{}", i.absent.len(), i.n_files, plural(i.n_files))));
    }
    if let Some(n_parameters) = i.n_parameters {
        let tensors = i.n_tensors.map(|n| format!(" in {n} tensors")).unwrap_or_default();
        let bytes = i.tensor_bytes.map(|n| format!(", {}", print::bytes(n))).unwrap_or_default();
        rows.push(("parameters", format!("{:.1} M{tensors}{bytes}", n_parameters as f64 / 1e6)));
    }
    if let Some(s) = &i.sizes {
        rows.push(("layers", format!("{} of width {}, feed-forward {}", s.n_layers, s.hidden_size, s.ffn)));
        let heads =
            format!("{} heads of {} over {} key/value heads; {}", s.n_heads, s.head_dim, s.n_kv_heads, s.attention);
        rows.push(("attention", heads));
        rows.push(("context", format!("{} tokens", s.context_length)));
        rows.push(("vocabulary", format!("{} tokens", s.vocab_size)));
    }
    for (group, types) in &i.quantization {
        let types: Vec<_> = types.iter().map(|(dtype, n)| format!("{dtype} {}", print::bytes(*n))).collect();
        rows.push((group, types.join(", ")));
    }
    if let Some(s) = &i.stored {
        let types: Vec<_> = s.schemes.iter().map(|t| format!("{} {:.1} %", t.scheme, 100.0 * t.share)).collect();
        rows.push(("stored", format!("{}: {:.2} bits per weight, {}", types.join(", "), s.bits_per_weight, s.basis)));
    }
    if let Some(t) = &i.text {
        let first = t.bos.as_deref().filter(|_| t.add_bos).unwrap_or("nothing");
        rows.push(("tokenizer", format!("{} tokens, puts {first} before a text", t.vocab_size)));
        rows.push(("ends", t.ends.join(" ")));
        let templates = if t.templates.is_empty() { "none".to_owned() } else { t.templates.join(", ") };
        rows.push(("chat template", templates));
    }
    if let Some(needed) = &i.memory {
        rows.push(("memory", needed.in_words()));
        let fits = match needed.fits {
            Some(true) => "it fits",
            Some(false) => "it does not fit",
            None => "unknown",
        };
        let available = needed.available_bytes.map(|n| format!("{}: ", print::bytes(n))).unwrap_or_default();
        rows.push(("available", format!("{available}{fits}")));
    }
    rows.extend(i.problems.iter().map(|p| ("problem", p.clone())));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    print::table(&rows)
}

impl Needed {
    fn in_words(&self) -> String {
        let m = &self.memory;
        let [weights, cache, scratch, host, total] =
            [m.weight_bytes, m.cache_bytes, m.scratch_bytes, m.host_bytes, m.total_bytes].map(print::bytes);
        let times = if self.n_sequences > 1 { format!("{} × ", self.n_sequences) } else { String::new() };
        let tokens = self.context_length;
        format!(
            "{weights} weights + {cache} for {times}{tokens} tokens + {scratch} to compute in + {host} of program and vocabulary = {total}"
        )
    }
}
