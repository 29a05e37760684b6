//! Everything about a model's text in one value.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use kinfolk_weights::Source;
use serde_json::{Map, Value as Json};

use crate::{
    ChatTemplate, EncodeOptions, Ends, RenderOptions, Result, TextError, Tokenizer, TokenizerConfig, VocabularyOptions,
};

/// A model's tokenizer, chat template and ends: what a host holds beside the model.
#[derive(Debug)]
#[non_exhaustive]
pub struct Text {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Conversations to text, if the model is made for conversations.
    pub template: Option<ChatTemplate>,
    /// What ends a reply.
    pub ends: Ends,
    /// The model's path, for messages.
    path: String,
}

impl Text {
    /// Reads what the model's files say. `turn_ends` are the tokens the family ends its turns with.
    ///
    /// # Errors
    /// As [`Tokenizer::from_source`] and [`ChatTemplate::from_source`].
    pub fn from_source(source: &Source, turn_ends: &[&str]) -> Result<Text> {
        Text::from_source_with(source, turn_ends, &VocabularyOptions::default())
    }

    /// [`from_source`](Self::from_source), with what a host or a family decides about a vocabulary inside a GGUF file.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source).
    pub fn from_source_with(source: &Source, turn_ends: &[&str], options: &VocabularyOptions) -> Result<Text> {
        let mut config = TokenizerConfig::from_source(source)?;
        let tokenizer = Tokenizer::from_source_with(source, options)?;
        let ends = Ends::from_source(source, &tokenizer, &config, turn_ends)?;
        // What templates are told is what the tokenizer does: files beside a GGUF model may belong to its neighbour.
        for (role, id) in [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos())] {
            if let Some(text) = id.and_then(|id| tokenizer.token_text(id)) {
                config.special_tokens.insert(role.to_owned(), text);
            }
        }
        let template = ChatTemplate::from_source(source, &config)?;
        Ok(Text { tokenizer, template, ends, path: source.path().display().to_string() })
    }

    /// Encodes a rendered prompt: control tokens in it are read as such. It starts with one BOS, if the tokenizer wants one,
    /// whether or not the template wrote it.
    ///
    /// # Errors
    /// `Encode` as the tokenizer says.
    pub fn prompt_tokens(&self, rendered: &str) -> Result<Vec<u32>> {
        let ids = self.tokenizer.encode(rendered, EncodeOptions { add_special: false, parse_special: true })?;
        Ok(self.with_one_bos(ids))
    }

    /// Encodes text that is no conversation: BOS (or whatever the model expects in front of a text) first, and control
    /// tokens written in the text are ordinary characters. Nothing is put at the end, since the model is to go on there.
    ///
    /// # Errors
    /// `Encode` as the tokenizer says.
    pub fn raw_tokens(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.tokenizer.prefix().to_vec();
        ids.extend(self.tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false })?);
        Ok(ids)
    }

    /// Renders a conversation and encodes it. Control tokens come from the template only: those spelled out in messages,
    /// tools or documents stay text, also where a spelling is spread over texts that the template puts side by side. Without such spellings this is [`prompt_tokens`](Self::prompt_tokens) of the
    /// rendered prompt.
    ///
    /// # Errors
    /// `NoTemplate` if the model has none; as [`ChatTemplate::render`] and [`prompt_tokens`](Self::prompt_tokens).
    pub fn chat_tokens(&self, messages: &[Json], options: &RenderOptions) -> Result<Vec<u32>> {
        let template = self.template.as_ref().ok_or_else(|| TextError::NoTemplate { path: self.path.clone() })?;
        let mut mask = Mask::new(&self.tokenizer, messages, options);
        let masked_messages: Vec<Json> = messages.iter().map(|message| mask.hide_in(message, Edges::Hidden)).collect();
        let mut masked_options = options.clone();
        for list in [&mut masked_options.tools, &mut masked_options.documents].into_iter().flatten() {
            list.iter_mut().for_each(|value| *value = mask.hide_in(value, Edges::Hidden));
        }
        if mask.hidden.is_empty() {
            return self.prompt_tokens(&template.render(messages, options)?);
        }
        let (rendered, literals) = mask.reveal(&template.render(&masked_messages, &masked_options)?);
        Ok(self.with_one_bos(self.tokenizer.encode_with_literals(&rendered, &literals)?))
    }

    fn with_one_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        let Some(bos) = self.tokenizer.bos() else { return ids };
        let n_bos = ids.iter().take_while(|&&id| id == bos).count();
        if n_bos > 1 {
            ids.drain(1..n_bos);
        } else if n_bos == 0 && self.tokenizer.add_bos() {
            ids.insert(0, bos);
        }
        ids
    }
}

/// Stands in for control tokens in a conversation while a template runs, so that those the template writes and those that
/// came with the messages can be told apart.
///
/// A stand-in is a word that nobody outside can guess, and templates handle it like any other: what they trim, escape or
/// indent around it comes out the same. (A template that looks for such tokens in messages, as some do for reasoning marks,
/// does not find control tokens. Reasoning marks are not control tokens where templates look for them.)
struct Mask<'a> {
    tokenizer: &'a Tokenizer,
    word: String,
    /// What each stand-in stands for.
    hidden: Vec<String>,
}

/// Whether parts of control tokens at the edges of a text get stand-ins, too: what the template puts beside them may be the
/// rest of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edges {
    Hidden,
    Shown,
}

/// Keys whose values templates compare with words of their own, and build control tokens of (`<|` role `|>`).
const NAMES: [&str; 2] = ["role", "type"];

/// Digits of a stand-in's number.
const NUMBER_LEN: usize = 8;

impl Mask<'_> {
    /// A mask whose stand-ins are in none of the texts.
    fn new<'a>(tokenizer: &'a Tokenizer, messages: &[Json], options: &RenderOptions) -> Mask<'a> {
        let mut texts = Vec::new();
        let lists = [Some(messages), options.tools.as_deref(), options.documents.as_deref()];
        lists.into_iter().flatten().flatten().for_each(|value| collect_texts(value, &mut texts));
        let mut word = unguessable_word();
        while texts.iter().any(|text| text.contains(&word)) {
            word = unguessable_word();
        }
        Mask { tokenizer, word, hidden: Vec::new() }
    }

    /// A copy of a value with stand-ins for the control tokens in its texts.
    fn hide_in(&mut self, value: &Json, edges: Edges) -> Json {
        match value {
            Json::String(text) => Json::String(self.hide(text, edges)),
            Json::Array(items) => items.iter().map(|item| self.hide_in(item, edges)).collect(),
            Json::Object(members) => {
                let hide = |(key, value): (&String, &Json)| {
                    let edges = if NAMES.contains(&key.as_str()) { Edges::Shown } else { edges };
                    (key.clone(), self.hide_in(value, edges))
                };
                Json::Object(members.iter().map(hide).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    fn hide(&mut self, text: &str, edges: Edges) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        let mut places = self.tokenizer.control_tokens_in(text);
        if edges == Edges::Hidden {
            for edge in self.tokenizer.open_edges(text) {
                let overlaps = places.iter().any(|place| place.start < edge.end && edge.start < place.end);
                if !edge.is_empty() && !overlaps {
                    places.push(edge);
                }
            }
            places.sort_unstable_by_key(|place| place.start);
        }
        for place in places {
            out.push_str(&text[done..place.start]);
            out.push_str(&format!("{}{:0NUMBER_LEN$}", self.word, self.hidden.len()));
            done = place.end;
            self.hidden.push(text[place].to_owned());
        }
        out.push_str(&text[done..]);
        out
    }

    /// Puts the spellings back; tells where they are.
    fn reveal(&self, rendered: &str) -> (String, Vec<Range<usize>>) {
        let mut out = String::with_capacity(rendered.len());
        let mut literals = Vec::new();
        let mut parts = rendered.split(self.word.as_str());
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let number = part.get(..NUMBER_LEN).and_then(|number| number.parse::<usize>().ok());
            match number.and_then(|number| self.hidden.get(number)) {
                Some(spelling) => {
                    literals.push(out.len()..out.len() + spelling.len());
                    out.push_str(spelling);
                    out.push_str(&part[NUMBER_LEN..]);
                }
                // Cut short by the template; what is left of a stand-in means nothing.
                None => out.push_str(part),
            }
        }
        (out, literals)
    }
}

fn collect_texts<'a>(value: &'a Json, texts: &mut Vec<&'a str>) {
    match value {
        Json::String(text) => texts.push(text),
        Json::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Json::Object(members) => members.values().for_each(|value| collect_texts(value, texts)),
        _ => {}
    }
}

/// A word from the randomness that seeds hash maps.
fn unguessable_word() -> String {
    let random = || RandomState::new().hash_one(0u8);
    format!("kf{:016x}{:016x}x", random(), random())
}
