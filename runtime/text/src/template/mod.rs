//! Chat templates: a conversation written as the text the model was trained to continue.
//!
//! Templates are Jinja2 programs that come with the model. They run in minijinja, in the environment transformers gives
//! them, and print what they print there.

mod clock;
mod concat;
mod conversation;
mod environment;
mod filters;
mod generator;
mod methods;
mod percent;
mod prefill;
mod python;
mod rewrite;

use std::sync::OnceLock;

use kinfolk_weights::Source;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::{Map, Value as Json};

pub use self::clock::Clock;
use self::{conversation::Abilities, environment::Raised};
use crate::{Result, TextError, TokenizerConfig};

/// The longest prompt a template may write, in bytes.
const MAX_OUTPUT_BYTES: usize = 1 << 28;

/// Steps a template may take, of which one also pays for 64 bytes it makes. Templates are files from strangers.
const FUEL: u64 = 1 << 22;

/// Steps it may take on top of that for each message and tool. The longest of the known templates takes some hundreds.
const FUEL_PER_ITEM: u64 = 1 << 12;

/// Steps it may take while its abilities are tried out on a conversation of three messages.
const PROBE_FUEL: u64 = 1 << 16;

/// The name of the template that is used when nothing asks for another.
const DEFAULT: &str = "default";

/// The name of the template that is used when tools are declared, where a model has one.
const TOOL_USE: &str = "tool_use";

/// A model's chat template, or its several templates with names.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// In the order given; never empty.
    names: Vec<String>,
    /// `bos_token` and its like.
    special_tokens: Map<String, Json>,
    abilities: OnceLock<Abilities>,
}

/// What a conversation is rendered with.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RenderOptions {
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leave the last message open, so that the model goes on writing it. Not together with `add_generation_prompt`.
    pub continue_final_message: bool,
    /// Tools the model may call, in OpenAI form. `None`: there are none, and the template sees a null.
    pub tools: Option<Vec<Json>>,
    /// Documents for retrieval templates. `None` as for `tools`.
    pub documents: Option<Vec<Json>>,
    /// Further variables for the template, such as `enable_thinking`.
    pub variables: Map<String, Json>,
    /// Which of the model's templates. `None`: `tool_use` if there is one and tools are given, else the default.
    pub template: Option<String>,
    /// What time it is.
    pub clock: Clock,
}

impl ChatTemplate {
    /// Compiles a template. `special_tokens` are the variables `bos_token`, `eos_token` and so on.
    ///
    /// # Errors
    /// `Template` if it is not one.
    pub fn new(source: &str, special_tokens: &TokenizerConfig) -> Result<ChatTemplate> {
        ChatTemplate::named(&[(DEFAULT.to_owned(), source.to_owned())], special_tokens)
    }

    /// Compiles several templates with names, of which `default` is used unless something asks for another (the first, if
    /// none has that name).
    ///
    /// # Errors
    /// `Template` if one is not a template, or there is none.
    pub fn named(sources: &[(String, String)], special_tokens: &TokenizerConfig) -> Result<ChatTemplate> {
        let mut environment = environment::environment();
        for (name, source) in sources {
            environment
                .add_template_owned(name.clone(), rewrite::rewrite(source))
                .map_err(|error| engine_error(name, &error))?;
        }
        if sources.is_empty() {
            return Err(TextError::Template {
                name: DEFAULT.to_owned(),
                reason: "expected at least one template, found none".to_owned(),
            });
        }
        let special_tokens = special_tokens
            .special_tokens
            .iter()
            .map(|(role, text)| (role.clone(), Json::from(text.as_str())))
            .collect();
        let names = sources.iter().map(|(name, _)| name.clone()).collect();
        Ok(ChatTemplate { environment, names, special_tokens, abilities: OnceLock::new() })
    }

    /// Finds and compiles a model's template: that in the metadata of a GGUF file, since it travels with the weights; then
    /// `chat_template.jinja`, `chat_template.json` and `tokenizer_config.json` beside the model.
    ///
    /// # Errors
    /// `Template` if there is one and it is not a template.
    pub fn from_source(source: &Source, special_tokens: &TokenizerConfig) -> Result<Option<ChatTemplate>> {
        let mut sources = gguf_templates(source)?;
        if sources.is_empty()
            && let Some(text) = source.sidecar("chat_template.jinja")?
        {
            sources.push((DEFAULT.to_owned(), text));
        }
        if sources.is_empty()
            && let Some(text) = source.sidecar("chat_template.json")?
        {
            sources = TokenizerConfig::from_json(Some(&text), None).chat_templates;
        }
        if sources.is_empty() {
            sources.clone_from(&special_tokens.chat_templates);
        }
        if sources.is_empty() {
            return Ok(None);
        }
        ChatTemplate::named(&sources, special_tokens).map(Some)
    }

    /// The names of the templates.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The text of all templates, by which conventions are recognised.
    pub(crate) fn text(&self) -> String {
        let named = self.names.iter().filter_map(|name| self.environment.get_template(name).ok());
        named.map(|template| template.source().to_owned() + "\n").collect()
    }

    /// Writes a conversation as the model's prompt.
    ///
    /// Messages are objects in OpenAI form. Before the template sees them they are brought into the one form templates
    /// agree on:
    ///
    /// * keys whose value is null are dropped, as transformers does;
    /// * a message with tool calls and no content has the content `""`, or null if the template leaves the calls out otherwise;
    /// * reasoning is found under `reasoning_content` and under `thinking`, whichever it came under;
    /// * arguments of tool calls are objects if the template can take them, text of JSON if it cannot. Text that is not
    ///   JSON stays as it is: a client cannot repair its history;
    /// * content in parts is passed in parts if the template can take them, joined by line ends if it cannot.
    ///
    /// # Errors
    /// `TemplateRaised` if the template refuses, in its own words; `NoToolSupport` if there are tools and the template does not
    /// read them; `Template` if it fails or exceeds the limits on its time
    /// and output; `Conversation` if the messages are not messages or the options contradict each other.
    pub fn render(&self, messages: &[Json], options: &RenderOptions) -> Result<String> {
        if options.add_generation_prompt && options.continue_final_message {
            return Err(TextError::Conversation {
                reason: "expected `add_generation_prompt` or `continue_final_message`, found both".to_owned(),
            });
        }
        let name = self.choose(options)?;
        if has_tools(options) && !self.reads_tools(name, options) {
            return Err(TextError::NoToolSupport { name: name.to_owned() });
        }
        let abilities =
            self.abilities.get_or_init(|| Abilities::probe(|messages, tools| self.try_out(messages, tools)));
        let messages = conversation::normalise(messages, abilities)?;
        let render =
            |messages: Vec<Json>| self.render_variables(name, &self.variables(messages, options), options.clock);
        if options.continue_final_message { prefill::render(messages, render) } else { render(messages) }
    }

    /// Runs a template on exactly these variables (and the special tokens, where they are not among them).
    ///
    /// # Errors
    /// As [`render`](Self::render), less `Conversation`.
    pub fn render_variables(&self, name: &str, variables: &Map<String, Json>, clock: Clock) -> Result<String> {
        let lists = ["messages", "tools"].into_iter().filter_map(|list| variables.get(list)?.as_array());
        let n_items: usize = lists.map(Vec::len).sum();
        let fuel = FUEL.saturating_add(FUEL_PER_ITEM.saturating_mul(n_items as u64));
        self.run(name, variables, clock, fuel)
    }

    fn run(&self, name: &str, variables: &Map<String, Json>, clock: Clock, fuel: u64) -> Result<String> {
        let mut environment = self.environment.clone();
        environment::prepare(&mut environment, clock, fuel);
        let given = self.special_tokens.iter().filter(|(role, _)| !variables.contains_key(*role)).chain(variables);
        let context = Value::from_pairs(given.map(|(name, value)| (name.as_str(), from_json(value))));

        let template = environment.get_template(name).map_err(|error| engine_error(name, &error))?;
        let mut output = Output(Vec::new());
        template.render_captured_to(context, &mut output).map_err(|error| engine_error(name, &error))?;
        String::from_utf8(output.0)
            .map_err(|error| TextError::Template { name: name.to_owned(), reason: error.to_string() })
    }

    fn choose(&self, options: &RenderOptions) -> Result<&str> {
        let known = |name: &str| self.names.iter().find(|known| *known == name).map(String::as_str);
        if let Some(name) = &options.template {
            return known(name).ok_or_else(|| TextError::Conversation {
                reason: format!("expected one of the templates `{}`, found `{name}`", self.names.join("`, `")),
            });
        }
        let tool_use = if has_tools(options) { known(TOOL_USE) } else { None };
        Ok(tool_use.or_else(|| known(DEFAULT)).or(self.names.first().map(String::as_str)).unwrap_or(DEFAULT))
    }

    /// Whether a template reads the tools, or what a host gives under the older name for them.
    fn reads_tools(&self, name: &str, options: &RenderOptions) -> bool {
        const OLDER_NAME: &str = "functions";
        let Ok(template) = self.environment.get_template(name) else { return false };
        let reads = template.undeclared_variables(false);
        reads.contains("tools") || options.variables.contains_key(OLDER_NAME) && reads.contains(OLDER_NAME)
    }

    fn variables(&self, messages: Vec<Json>, options: &RenderOptions) -> Map<String, Json> {
        let mut variables = Map::new();
        variables.insert("messages".to_owned(), Json::from(messages));
        variables.insert("tools".to_owned(), Json::from(options.tools.clone()));
        variables.insert("documents".to_owned(), Json::from(options.documents.clone()));
        variables.insert("add_generation_prompt".to_owned(), Json::from(options.add_generation_prompt));
        variables.extend(options.variables.clone());
        variables
    }

    fn try_out(&self, messages: Vec<Json>, tools: Option<Vec<Json>>) -> Option<String> {
        // Some templates fail on a model without BOS, whatever the messages.
        let variables = ["bos_token", "eos_token"].into_iter().filter(|role| !self.special_tokens.contains_key(*role));
        let variables = variables.map(|role| (role.to_owned(), Json::from(""))).collect();
        let options = RenderOptions { tools, variables, ..RenderOptions::default() };
        let name = self.choose(&options).ok()?;
        self.run(name, &self.variables(messages, &options), Clock::Local, PROBE_FUEL).ok()
    }
}

fn has_tools(options: &RenderOptions) -> bool {
    options.tools.as_ref().is_some_and(|tools| !tools.is_empty())
}

/// `tokenizer.chat_template`, and `tokenizer.chat_template.NAME`.
fn gguf_templates(source: &Source) -> Result<Vec<(String, String)>> {
    const KEY: &str = "tokenizer.chat_template";
    let Some(metadata) = source.gguf() else { return Ok(Vec::new()) };
    let mut templates = Vec::new();
    for key in metadata.keys() {
        let Some(name) = key.strip_prefix(KEY) else { continue };
        let name = match name.strip_prefix('.') {
            Some(name) => name,
            None if name.is_empty() => DEFAULT,
            // `tokenizer.chat_templates` lists the names.
            None => continue,
        };
        if let Some(text) = metadata.str(key)? {
            templates.push((name.to_owned(), text.to_owned()));
        }
    }
    Ok(templates)
}

/// A JSON value for the engine, keys in their order.
fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(switch) => Value::from(*switch),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(members) => Value::from_pairs(members.iter().map(|(key, value)| (key.as_str(), from_json(value)))),
    }
}

/// Output with a limit.
struct Output(Vec<u8>);

impl std::io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(std::io::Error::other(format!("expected at most {MAX_OUTPUT_BYTES} bytes, found more")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn engine_error(name: &str, error: &minijinja::Error) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref::<Raised>() {
            return TextError::TemplateRaised { message: message.clone() };
        }
        cause = current.source();
    }
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let reason = match error.detail() {
        Some(detail) if error.kind() != ErrorKind::WriteFailure => format!("{}: {detail}{line}", error.kind()),
        _ => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{}{cause}{line}", error.kind())
        }
    };
    TextError::Template { name: name.to_owned(), reason }
}

/// JSON text laid out as `json.dumps` does.
fn to_python_json(value: &Json) -> String {
    let style = python::JsonStyle {
        indent: None,
        item_separator: ", ".to_owned(),
        key_separator: ": ".to_owned(),
        ensure_ascii: false,
        sort_keys: false,
    };
    // Only a value nested deeper than JSON text can be would fail.
    python::json(&from_json(value), &style).unwrap_or_else(|_| value.to_string())
}
