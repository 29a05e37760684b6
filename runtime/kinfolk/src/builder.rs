//! Opening a model step by step, with the names hosts know.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use kinfolk_decoder::{Cancel, Config, LoadProgress, LoadRole, Source};
use kinfolk_text::Text;
use kinfolk_weights::{OpenOptions, WeightFormat};

use crate::{
    embedding::{Embedder, EmbeddingConventions},
    family::Family,
    load::{LoadOptions, LoadRequest},
    registry::Registry,
    runner::LmRunner,
    sampling::SampleOpts,
    scheduler::{Scheduler, SchedulerOptions},
    session::Session,
};

/// Where a model's configuration comes from.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ConfigSource {
    /// The checkpoint's own: GGUF metadata, or the `config.json` beside the weights.
    #[default]
    Embedded,
    /// A `config.json` elsewhere.
    JsonFile(PathBuf),
    /// One the host has made.
    Explicit(Box<Config>),
}

/// Receives each piece of text as it is generated.
pub type TextCallback = Box<dyn FnMut(&str) + Send>;

/// Opens a model: `LmRunnerBuilder::new().weights(path).build()`.
///
/// [`build`](Self::build) gives the bare runner, [`session`](Self::session) one that speaks text.
#[derive(Default)]
pub struct LmRunnerBuilder {
    weights: Option<PathBuf>,
    given: Option<Source>,
    config: ConfigSource,
    options: LoadOptions,
    sample: Option<SampleOpts>,
    stream: Option<TextCallback>,
    opened: Option<Arc<Source>>,
}

impl LmRunnerBuilder {
    /// Nothing chosen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The model: a GGUF or safetensors file, or a directory that holds one.
    pub fn weights(mut self, path: impl Into<PathBuf>) -> Self {
        self.weights = Some(path.into());
        self
    }

    /// A model that is already open, such as one inside the program.
    pub fn source(mut self, source: Source) -> Self {
        self.given = Some(source);
        self
    }

    /// Where the configuration comes from; the checkpoint itself by default.
    pub fn config(mut self, config: ConfigSource) -> Self {
        self.config = config;
        self
    }

    /// Pins a device of the executor, such as `cpu`.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.options.device = Some(device.into());
        self
    }

    /// Room for this many tokens instead of the model's own context length.
    pub fn max_seq(mut self, tokens: usize) -> Self {
        self.options.max_seq = Some(tokens);
        self
    }

    /// Refuses a model that would take more memory than this, in GiB.
    pub fn max_memory_gb(mut self, gib: f32) -> Self {
        self.options.max_memory_gb = Some(gib);
        self
    }

    /// Receives text as a [`session`](Self::session) generates it.
    pub fn stream(mut self, on_text: impl FnMut(&str) + Send + 'static) -> Self {
        self.stream = Some(Box::new(on_text));
        self
    }

    /// How a [`session`](Self::session) chooses tokens.
    pub fn sample(mut self, sample: SampleOpts) -> Self {
        self.sample = Some(sample);
        self
    }

    /// Insists on a format where a directory holds several.
    pub fn format(mut self, format: WeightFormat) -> Self {
        self.options.open.format = Some(format);
        self
    }

    /// Keeps quantised weights packed, or decodes them to f32 once.
    pub fn packed_weights(mut self, packed: bool) -> Self {
        self.options.packed_weights = Some(packed);
        self
    }

    /// Allows coarser activations where prompts are faster with them: see [`LoadOptions::narrow_activations`].
    pub fn narrow_activations(mut self, narrow: bool) -> Self {
        self.options.narrow_activations = narrow;
        self
    }

    /// Measures where the model spends its time, for [`Model::profile`](kinfolk_decoder::Model::profile).
    pub fn profile(mut self, profile: bool) -> Self {
        self.options.profile = profile;
        self
    }

    /// Picks one of several GGUF files in a directory; `Q4_K_M` by default.
    pub fn prefer_gguf(mut self, name: impl Into<String>) -> Self {
        self.options.open.prefer_gguf = Some(name.into());
        self
    }

    /// What the model is for; text by default.
    pub fn role(mut self, role: LoadRole) -> Self {
        self.options.role = role;
        self
    }

    /// Pins a family by name.
    pub fn family(mut self, name: impl Into<String>) -> Self {
        self.options.family = Some(name.into());
        self
    }

    /// Pins an executor by name.
    pub fn executor(mut self, name: impl Into<String>) -> Self {
        self.options.executor = Some(name.into());
        self
    }

    /// Threads to compute with.
    pub fn threads(mut self, n: usize) -> Self {
        self.options.threads = Some(n);
        self
    }

    /// Told how far the load is.
    pub fn progress(mut self, report: impl Fn(LoadProgress) + Send + Sync + 'static) -> Self {
        self.options.progress = Some(Arc::new(report));
        self
    }

    /// Ends the load, and every later call, once cancelled.
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.options.cancel = cancel;
        self
    }

    /// The format the weights turn out to have.
    ///
    /// # Errors
    /// If they cannot be opened.
    pub fn resolved_format(&mut self) -> Result<WeightFormat> {
        Ok(self.open()?.format())
    }

    /// Whether quantised weights will stay packed in memory.
    ///
    /// # Errors
    /// If the weights cannot be opened.
    pub fn resolved_packed(&mut self) -> Result<bool> {
        let quantised = self.open()?.tensors().any(|t| t.dtype.block_len() > 1);
        Ok(quantised && self.options.packed_weights != Some(false))
    }

    /// Loads the model with whichever linked family runs it.
    ///
    /// # Errors
    /// Whatever is wrong with the path, the files, the choices or the fit of all three; a `stream` or `sample` that only a session
    /// could honour.
    pub fn build(mut self) -> Result<Box<dyn LmRunner>> {
        anyhow::ensure!(self.stream.is_none(), "`stream` needs text: expected `session()`, found `build()`");
        anyhow::ensure!(self.sample.is_none(), "`sample` needs a generation: expected `session()`, found `build()`");
        let source = self.open()?;
        load(&claim(&source, &self.options)?, &source, &self.options)
    }

    /// Loads the model and its text layer.
    ///
    /// # Errors
    /// As [`build`](Self::build), and what the tokenizer or chat template object to.
    pub fn session(mut self) -> Result<Session> {
        let source = self.open()?;
        let family = claim(&source, &self.options)?;
        let runner = load(&family, &source, &self.options)?;
        let mut session = Session::new(runner, text_layer(&family, &source)?);
        session.set_convention(family.conventions.tool_calls);
        session.set_reload(Some(Box::new(move || load(&family, &source, &self.options))));
        session.set_sample(self.sample.unwrap_or_default())?;
        session.set_stream(self.stream);
        Ok(session)
    }

    /// Loads the model for embeddings, without its head, with its text layer and the conventions of its checkpoint.
    ///
    /// # Errors
    /// As [`session`](Self::session), and conventions that this runtime cannot follow; a `stream` or `sample` that only a session could
    /// honour.
    pub fn embedder(mut self) -> Result<Embedder> {
        anyhow::ensure!(self.stream.is_none(), "`stream` needs text: expected `session()`, found `embedder()`");
        anyhow::ensure!(self.sample.is_none(), "`sample` needs a generation: expected `session()`, found `embedder()`");
        self.options.role = LoadRole::Embedding;
        let source = self.open()?;
        let conventions =
            EmbeddingConventions::from_source(&source).with_context(|| format!("`{}`", source.path().display()))?;
        let family = claim(&source, &self.options)?;
        let runner = load(&family, &source, &self.options)?;
        Ok(Embedder::new(runner, text_layer(&family, &source)?, conventions))
    }

    /// Loads the model and its text layer to serve many requests, on a thread of its own. The sampling of requests that do not say is this
    /// builder's, if it has one, and otherwise that of `options`. A `cancel` ends loads alone: requests have their own.
    ///
    /// # Errors
    /// As [`session`](Self::session) and [`Scheduler::start`]; a `stream`, since there are many.
    pub fn scheduler(mut self, mut options: SchedulerOptions) -> Result<Scheduler> {
        anyhow::ensure!(self.stream.is_none(), "`stream` needs one reply: expected `session()`, found `scheduler()`");
        let source = self.open()?;
        let family = claim(&source, &self.options)?;
        let text = text_layer(&family, &source)?;
        options.sample = self.sample.unwrap_or(options.sample);
        Scheduler::start(Box::new(move || load(&family, &source, &self.options)), text, options)
    }

    fn open(&mut self) -> Result<Arc<Source>> {
        if let Some(source) = &self.opened {
            return Ok(Arc::clone(source));
        }
        let opens = self.weights.is_some() || self.options.open != OpenOptions::default();
        let mut source = match (self.given.take(), &self.weights) {
            (Some(_), _) if opens => {
                anyhow::bail!(
                    "`source` is open already: expected no `weights`, `format` or `prefer_gguf`, found one of them"
                )
            }
            (Some(source), _) => source,
            (None, Some(path)) => Source::open_with(path, &self.options.open)?,
            (None, None) => anyhow::bail!("no weights: expected `weights(path)` or `source(source)`, found neither"),
        };
        match &self.config {
            ConfigSource::Embedded => {}
            ConfigSource::JsonFile(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
                source.set_config(Config::from_json(path, &text)?);
            }
            ConfigSource::Explicit(config) => source.set_config((**config).clone()),
        }
        Ok(Arc::clone(self.opened.insert(Arc::new(source))))
    }
}

/// The family that runs a checkpoint: the one pinned, or the one that its architecture asks for.
fn claim(source: &Source, options: &LoadOptions) -> Result<Family> {
    let registry = Registry::linked();
    Ok(match &options.family {
        Some(name) => registry.pin(name, source)?.family,
        None => registry.claim(source)?.family,
    })
}

fn load(family: &Family, source: &Arc<Source>, options: &LoadOptions) -> Result<Box<dyn LmRunner>> {
    (family.load)(LoadRequest::new(Arc::clone(source), options.clone()))
}

fn text_layer(family: &Family, source: &Source) -> Result<Text> {
    Text::from_source(source, family.conventions.turn_ends).with_context(|| format!("`{}`", source.path().display()))
}

#[cfg(test)]
mod tests;
