//! `kinfolk inspect`.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use kinfolk::{
    MemoryNeed, Registry,
    decoder::{Decoder, Ffn, Mask, Mixer, Source},
    text::Text,
};
use serde::Serialize;

use crate::{args::InspectArgs, open, print};

#[derive(Serialize)]
struct Inspection {
    path: String,
    format: String,
    n_files: usize,
    architectures: Vec<String>,
    family: Option<&'static str>,
    n_tensors: usize,
    n_parameters: u64,
    tensor_bytes: u64,
    /// By group of tensors: bytes per type.
    quantization: BTreeMap<&'static str, BTreeMap<String, u64>>,
    sizes: Option<Sizes>,
    text: Option<TextInfo>,
    memory: Option<Memory>,
    /// What is in the way of running it, if anything.
    problems: Vec<String>,
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
struct Memory {
    context_length: usize,
    weight_bytes: u64,
    cache_bytes: u64,
    total_bytes: u64,
}

pub fn run(args: &InspectArgs) -> Result<ExitCode> {
    let source = open::source(&args.model, &args.open)?;
    let inspection = inspect(args, &source);
    if args.json {
        print::json(&inspection)?;
    } else {
        print::out(&in_words(&inspection))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what can be said; what is in the way of saying more is listed among the problems.
fn inspect(args: &InspectArgs, source: &Source) -> Inspection {
    let mut problems = Vec::new();
    let registry = Registry::linked();
    let claim = match &args.family {
        Some(name) => registry.pin(name, source),
        None => registry.claim(source),
    };
    let family = claim.map_err(|e| problems.push(e.to_string())).ok().map(|decision| decision.family);
    let decoder = family.and_then(|f| f.describe).and_then(|describe| {
        let decoder = describe(source.config()).map_err(|e| problems.push(e.to_string())).ok()?;
        decoder.bind(source).map_err(|e| problems.push(e.to_string())).ok();
        Some(decoder)
    });
    let turn_ends = family.map_or(&[][..], |f| f.conventions.turn_ends);
    let text = Text::from_source(source, turn_ends).map_err(|e| problems.push(e.to_string())).ok();
    Inspection {
        path: args.model.display().to_string(),
        format: source.format().to_string(),
        n_files: source.files().len(),
        architectures: source.config().architectures(),
        family: family.map(|f| f.name),
        n_tensors: source.tensors().count(),
        n_parameters: source.tensors().map(|t| t.n_elements() as u64).sum(),
        tensor_bytes: source.tensor_bytes(),
        quantization: quantization(source),
        sizes: decoder.as_ref().and_then(sizes),
        text: text.as_ref().map(text_info),
        memory: decoder.as_ref().map(|decoder| memory(decoder, source, args.ctx)),
        problems,
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

fn memory(decoder: &Decoder, source: &Source, ctx: Option<usize>) -> Memory {
    let context_length = ctx.unwrap_or(decoder.context_length);
    let MemoryNeed { weight_bytes, cache_bytes } = MemoryNeed::of(decoder, source, context_length, None);
    Memory { context_length, weight_bytes, cache_bytes, total_bytes: weight_bytes.saturating_add(cache_bytes) }
}

fn in_words(i: &Inspection) -> String {
    let mut rows = vec![
        ("path", i.path.clone()),
        ("format", format!("{}, {} file{}", i.format, i.n_files, if i.n_files == 1 { "" } else { "s" })),
        ("architecture", i.architectures.join(", ")),
        ("family", i.family.unwrap_or("none").to_owned()),
        (
            "parameters",
            format!(
                "{:.1} M in {} tensors, {}",
                i.n_parameters as f64 / 1e6,
                i.n_tensors,
                print::bytes(i.tensor_bytes)
            ),
        ),
    ];
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
    if let Some(t) = &i.text {
        let first = t.bos.as_deref().filter(|_| t.add_bos).unwrap_or("nothing");
        rows.push(("tokenizer", format!("{} tokens, puts {first} before a text", t.vocab_size)));
        rows.push(("ends", t.ends.join(" ")));
        let templates = if t.templates.is_empty() { "none".to_owned() } else { t.templates.join(", ") };
        rows.push(("chat template", templates));
    }
    if let Some(m) = &i.memory {
        let (weights, cache, total) =
            (print::bytes(m.weight_bytes), print::bytes(m.cache_bytes), print::bytes(m.total_bytes));
        rows.push(("memory", format!("{weights} weights + {cache} for {} tokens = {total}", m.context_length)));
    }
    rows.extend(i.problems.iter().map(|p| ("problem", p.clone())));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    print::table(&rows)
}
