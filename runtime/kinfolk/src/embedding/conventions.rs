//! How a checkpoint was made to be used as an embedding model, read from its own files.
//!
//! Repositories of embedding models are laid out for sentence-transformers: `modules.json` lists the steps from text to vector, each with a
//! folder of its own, `config_sentence_transformers.json` has the prompts. GGUF files say only how to pool.

use std::{collections::BTreeMap, path::PathBuf};

use kinfolk_decoder::{ConfigError, Source};
use kinfolk_weights::{WeightsError, quoted};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    EmbedError, Prompt,
    pooling::{Pooling, PoolingMode},
};

/// What file systems take for a name.
const MAX_PATH_BYTES: usize = 255;
/// Each of these files is a kilobyte or so.
const MAX_FILE_BYTES: usize = 1 << 20;
const MODULES: &str = "modules.json";
const PROMPTS: &str = "config_sentence_transformers.json";

/// From a text's tokens to its vector.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EmbeddingConventions {
    /// How hidden states become one vector.
    pub pooling: Pooling,
    /// Whether the tokens of a prompt, and those before it, are pooled with the text's.
    pub include_prompt: bool,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// What to put before a text, by name.
    pub prompts: BTreeMap<String, String>,
    /// Name of the prompt that is used where none is asked for.
    pub default_prompt: Option<String>,
    /// Most tokens of a text, those around it included. `None`: what the context holds.
    pub max_seq_length: Option<usize>,
}

impl Default for EmbeddingConventions {
    /// The last token's hidden state at length 1, no prompts: how decoders without further word are used.
    fn default() -> EmbeddingConventions {
        EmbeddingConventions {
            pooling: PoolingMode::Last.into(),
            include_prompt: true,
            normalize: true,
            prompts: BTreeMap::new(),
            default_prompt: None,
            max_seq_length: None,
        }
    }
}

/// A checkpoint that does not say, or says something this runtime has no part for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConventionsError {
    /// A file cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A key of the GGUF metadata cannot.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file is not what its name says.
    #[error("`{path}`: {reason}", path = path.display())]
    Malformed {
        /// Below the model's directory.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// A step between text and vector that this runtime does not have. Vectors without it would be others.
    #[error("`{path}`: {what} is not supported", path = path.display())]
    Unsupported {
        /// The file that asks for it.
        path: PathBuf,
        /// The module or setting, by name.
        what: String,
    },
}

type Result<T> = std::result::Result<T, ConventionsError>;

impl EmbeddingConventions {
    /// Reads a checkpoint's own: the files of sentence-transformers beside safetensors, `<architecture>.pooling_type` of a GGUF file. (Files
    /// beside a GGUF file may belong to its neighbour.) What neither says is as in [`default`](Self::default).
    ///
    /// # Errors
    /// [`ConventionsError`]: damaged files, and modules, settings or ways to pool that this runtime lacks, by name.
    pub fn from_source(source: &Source) -> Result<EmbeddingConventions> {
        match source.gguf() {
            Some(_) => of_gguf(source),
            None => of_directory(source),
        }
    }

    /// The text that `prompt` puts before every text.
    ///
    /// # Errors
    /// `UnknownPrompt`.
    pub(super) fn prompt_text<'a>(&'a self, prompt: &'a Prompt) -> std::result::Result<&'a str, EmbedError> {
        /// What checkpoints call the prompt of documents.
        const DOCUMENT: [&str; 3] = ["document", "passage", "corpus"];
        let named = |name: &str| match self.prompts.get(name) {
            Some(text) => Ok(text.as_str()),
            None => {
                Err(EmbedError::UnknownPrompt { asked: name.to_owned(), known: self.prompts.keys().cloned().collect() })
            }
        };
        match prompt {
            Prompt::Default => self.default_prompt.as_deref().map_or(Ok(""), named),
            Prompt::None => Ok(""),
            // A checkpoint without one wants its queries, or documents, as they are.
            Prompt::Query => Ok(named("query").unwrap_or_default()),
            Prompt::Document => Ok(DOCUMENT.iter().find_map(|name| named(name).ok()).unwrap_or_default()),
            Prompt::Named(name) => named(name),
            Prompt::Literal(text) => Ok(text),
        }
    }
}

fn of_gguf(source: &Source) -> Result<EmbeddingConventions> {
    let conventions = EmbeddingConventions::default();
    let (Some(metadata), [architecture, ..]) = (source.gguf(), &source.config().architectures()[..]) else {
        return Ok(conventions);
    };
    let key = format!("{architecture}.pooling_type");
    let unsupported = |what: String| {
        Err(ConventionsError::Unsupported { path: source.path().to_owned(), what: format!("key `{key}`: {what}") })
    };
    let mode = match metadata.u64(&key)? {
        // 0: the maker did not say.
        None | Some(0) => return Ok(conventions),
        Some(1) => PoolingMode::Mean,
        Some(2) => PoolingMode::Cls,
        Some(3) => PoolingMode::Last,
        Some(4) => return unsupported("pooling `rank`, which makes scores of pairs and no vectors,".to_owned()),
        Some(other) => return unsupported(format!("pooling type {other}")),
    };
    Ok(EmbeddingConventions { pooling: mode.into(), ..conventions })
}

fn of_directory(source: &Source) -> Result<EmbeddingConventions> {
    let mut conventions = EmbeddingConventions::default();
    if let Some(modules) = read::<Vec<Module>>(source, MODULES)? {
        read_modules(source, &modules, &mut conventions)?;
    }
    if let Some(file) = read::<PromptsFile>(source, PROMPTS)? {
        if let Some(kind) = file.model_type.filter(|kind| kind != "SentenceTransformer") {
            return Err(unsupported(PROMPTS, format!("model type {}", quoted(&kind))));
        }
        conventions.prompts =
            file.prompts.unwrap_or_default().into_iter().map(|(name, text)| (name, text.unwrap_or_default())).collect();
        conventions.default_prompt = file.default_prompt_name;
        if let Some(name) = conventions.default_prompt.as_ref().filter(|name| !conventions.prompts.contains_key(*name))
        {
            let reason = format!("key `default_prompt_name`: expected a name of `prompts`, found {}", quoted(name));
            return Err(malformed(PROMPTS, reason));
        }
    }
    Ok(conventions)
}

/// A step from text to vector.
#[derive(Deserialize)]
struct Module {
    /// Its folder; empty for the model's own.
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    class: String,
}

impl Module {
    /// The class name, if it is one of the library itself: classes of a repository's own code are anybody's guess.
    fn kind(&self) -> Option<&str> {
        self.class.strip_prefix("sentence_transformers.")?.rsplit('.').next()
    }

    fn file(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path.trim_end_matches('/')) }
    }
}

#[derive(Deserialize)]
struct PromptsFile {
    prompts: Option<BTreeMap<String, Option<String>>>,
    default_prompt_name: Option<String>,
    model_type: Option<String>,
}

fn read_modules(source: &Source, modules: &[Module], conventions: &mut EmbeddingConventions) -> Result<()> {
    if let Some(module) = modules.iter().find(|module| module.path.len() > MAX_PATH_BYTES) {
        let reason = format!("expected paths of at most {MAX_PATH_BYTES} bytes, found {}", quoted(&module.path));
        return Err(malformed(MODULES, reason));
    }
    let kinds: Vec<Option<&str>> = modules.iter().map(Module::kind).collect();
    let mut rest = modules.iter().zip(kinds).peekable();
    let mut next = |wanted: &str| rest.next_if(|(_, kind)| *kind == Some(wanted)).map(|(module, _)| module);
    let transformer = next("Transformer");
    let pooling = transformer.and_then(|_| next("Pooling"));
    let normalize = pooling.and_then(|_| next("Normalize"));
    if let Some((module, _)) = rest.next() {
        return Err(unsupported(MODULES, format!("module {} at this place", quoted(&module.class))));
    }
    let (Some(transformer), Some(pooling)) = (transformer, pooling) else {
        return Err(malformed(MODULES, "expected modules `Transformer` and `Pooling`, found fewer".to_owned()));
    };
    conventions.max_seq_length = max_seq_length(source, transformer)?;
    (conventions.pooling, conventions.include_prompt) = read_pooling(source, &pooling.file("config.json"))?;
    conventions.normalize = normalize.is_some();
    if let Some(normalize) = normalize {
        check_normalize(source, &normalize.file("config.json"))?;
    }
    Ok(())
}

/// The file of the transformer's module has the limit, or else, since its version 5, the tokenizer's.
fn max_seq_length(source: &Source, transformer: &Module) -> Result<Option<usize>> {
    #[derive(Deserialize)]
    struct TransformerFile {
        max_seq_length: Option<usize>,
        do_lower_case: Option<bool>,
        transformer_task: Option<String>,
    }
    let path = transformer.file("sentence_bert_config.json");
    if let Some(file) = read::<TransformerFile>(source, &path)? {
        if file.do_lower_case == Some(true) {
            return Err(unsupported(&path, "`do_lower_case`".to_owned()));
        }
        if let Some(task) = file.transformer_task.filter(|task| task != "feature-extraction") {
            return Err(unsupported(&path, format!("`transformer_task` {}", quoted(&task))));
        }
        if file.max_seq_length == Some(0) {
            return Err(malformed(&path, "key `max_seq_length`: expected at least 1, found 0".to_owned()));
        }
        if file.max_seq_length.is_some() {
            return Ok(file.max_seq_length);
        }
    }
    #[derive(Deserialize)]
    struct TokenizerFile {
        model_max_length: Option<f64>,
    }
    let file = source.sidecar("tokenizer_config.json")?;
    // Other parts of the file are checked by whoever needs them.
    let limit = file.and_then(|text| serde_json::from_str::<TokenizerFile>(&text).ok()?.model_max_length);
    // A number beyond every context means that there is no limit.
    Ok(limit.filter(|n| (1.0..1e9).contains(n)).map(|n| n as usize))
}

/// The way to pool, and whether prompts are pooled too.
fn read_pooling(source: &Source, path: &str) -> Result<(Pooling, bool)> {
    const FLAG: &str = "pooling_mode_";
    /// One flag per mode, in the order of [`PoolingMode::ALL`]: how all but the latest versions write it.
    const FLAGS: [&str; 6] =
        ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"];
    let Some(file) = read::<Map<String, Value>>(source, path)? else {
        return Err(malformed(path, format!("expected the file that `{MODULES}` names, found none")));
    };
    check_width(source, path, &file)?;
    let include_prompt = match file.get("include_prompt") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(include)) => *include,
        Some(other) => return Err(mistyped(path, "include_prompt", "a boolean", other)),
    };
    let names: Vec<&str> = match file.get("pooling_mode") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            names.iter().filter_map(Value::as_str).collect()
        }
        None | Some(Value::Null) => {
            let mut names = Vec::new();
            for (mode, flag) in PoolingMode::ALL.into_iter().zip(FLAGS) {
                match file.get(&format!("{FLAG}{flag}")) {
                    Some(Value::Bool(true)) => names.push(mode.name()),
                    None | Some(Value::Bool(false) | Value::Null) => {}
                    Some(other) => return Err(mistyped(path, &format!("{FLAG}{flag}"), "a boolean", other)),
                }
            }
            let unknown = |(key, value): &(&String, &Value)| {
                key.strip_prefix(FLAG).is_some_and(|flag| !FLAGS.contains(&flag)) && **value != Value::Bool(false)
            };
            if let Some((key, _)) = file.iter().find(unknown) {
                return Err(unsupported(path, format!("key {}", quoted(key))));
            }
            // No flag at all is the library's own default.
            if names.is_empty() { vec![PoolingMode::Mean.name()] } else { names }
        }
        Some(other) => return Err(mistyped(path, "pooling_mode", "a name or a list of names", other)),
    };
    let pooling = Pooling::of_names(names).map_err(|e| unsupported(path, format!("pooling {}", quoted(&e.found))))?;
    Ok((pooling, include_prompt))
}

/// A pooling of hidden states of another width was made for another model.
fn check_width(source: &Source, path: &str, file: &Map<String, Value>) -> Result<()> {
    let width = ["word_embedding_dimension", "embedding_dimension"].iter().find_map(|key| Some((key, file.get(*key)?)));
    match (width, source.config().opt_usize("hidden_size")?) {
        (Some((key, found)), Some(expected)) if found.as_u64() != Some(expected as u64) => Err(malformed(
            path,
            format!("key `{key}`: expected the hidden size {expected}, found {}", quoted(&found.to_string())),
        )),
        _ => Ok(()),
    }
}

/// The module can be told to normalise something else than the pooled vector.
fn check_normalize(source: &Source, path: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct NormalizeFile {
        module_input_name: Option<String>,
        module_output_name: Option<String>,
    }
    let Some(file) = read::<NormalizeFile>(source, path)? else { return Ok(()) };
    match [file.module_input_name, file.module_output_name]
        .into_iter()
        .flatten()
        .find(|name| name != "sentence_embedding")
    {
        Some(name) => Err(unsupported(path, format!("normalisation of {}", quoted(&name)))),
        None => Ok(()),
    }
}

/// A JSON file of the model; `None` if there is none.
fn read<T: DeserializeOwned>(source: &Source, path: &str) -> Result<Option<T>> {
    let Some(text) = source.sidecar(path)? else { return Ok(None) };
    if text.len() > MAX_FILE_BYTES {
        return Err(malformed(path, format!("expected at most {MAX_FILE_BYTES} bytes, found {}", text.len())));
    }
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|e| malformed(path, format!("expected JSON of its kind, found {}", quoted(&e.to_string()))))
}

fn malformed(path: &str, reason: String) -> ConventionsError {
    ConventionsError::Malformed { path: path.into(), reason }
}

fn mistyped(path: &str, key: &str, expected: &str, found: &Value) -> ConventionsError {
    malformed(path, format!("key `{key}`: expected {expected}, found {}", quoted(&found.to_string())))
}

fn unsupported(path: &str, what: String) -> ConventionsError {
    ConventionsError::Unsupported { path: path.into(), what }
}

#[cfg(test)]
mod tests;
