//! `tokenizer.json`, through the `tokenizers` crate.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{AddedVocabulary, Encoding, Model as _, OffsetType, PostProcessor, PreTokenizedString};

use super::{
    Model, Tokenizer, TokenizerConfig,
    added::{AddedTokens, Strip},
    vocabulary::{Joint, Spelling, TokenKind, Vocabulary, WORD_MARK, byte_token},
    words::Words,
};
use crate::{Result, TextError};

/// A pipeline of the `tokenizers` crate.
pub(crate) struct Pipeline {
    tokenizer: tokenizers::Tokenizer,
    words: Words,
    /// The added tokens without the special ones, for text that may not produce any.
    text_only: AddedVocabulary,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

/// The parts that say how tokens are spelled. The rest of the file is skipped, not stored.
#[derive(Deserialize)]
struct Sections {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelSection,
}

#[derive(Deserialize)]
struct ModelSection {
    byte_fallback: Option<bool>,
    continuing_subword_prefix: Option<String>,
}

/// Builds a tokenizer from the text of `tokenizer.json` and what the files beside it say.
///
/// # Errors
/// `TokenizerJson` with the section that cannot be used.
pub(crate) fn build(text: &str, config: &TokenizerConfig) -> Result<Tokenizer> {
    let sections: Sections =
        serde_json::from_str(text).map_err(|error| TextError::json("(whole file)", error.to_string()))?;
    check_subword_prefix(text, &sections)?;
    let disagree = || TextError::json("(whole file)", "expected sections that fit each other, found that they do not");
    without_panic(|| assemble(text, &sections, config)).unwrap_or_else(|| Err(disagree()))
}

/// `None` if the code panics. The crate indexes its tables with what a file says, in sections that it does not check against
/// each other.
fn without_panic<T>(code: impl FnOnce() -> T) -> Option<T> {
    // What is shared with the code is not looked at again: the tokenizer, if any, is dropped or keeps only its own cache.
    catch_unwind(AssertUnwindSafe(code)).ok()
}

/// Checks what the crate slices unchecked: with a prefix for subwords, the second half of every merge starts with it.
fn check_subword_prefix(text: &str, sections: &Sections) -> Result<()> {
    let Some(prefix) = sections.model.continuing_subword_prefix.as_deref().filter(|prefix| !prefix.is_empty()) else {
        return Ok(());
    };
    let root: Value = serde_json::from_str(text).map_err(|error| TextError::json("model", error.to_string()))?;
    let merges = root.get("model").and_then(|model| model.get("merges")).and_then(Value::as_array);
    for merge in merges.into_iter().flatten() {
        let second = match merge {
            Value::String(line) => line.split_once(' ').map(|(_, second)| second),
            pair => pair.get(1).and_then(Value::as_str),
        };
        if !second.is_some_and(|second| second.starts_with(prefix)) {
            let reason = format!("expected merges whose second half starts with `{prefix}`, found {merge}");
            return Err(TextError::json("model", reason));
        }
    }
    Ok(())
}

fn assemble(text: &str, sections: &Sections, config: &TokenizerConfig) -> Result<Tokenizer> {
    let tokenizer = parse(text)?;
    let vocabulary = vocabulary(&tokenizer, sections)?;
    let (prefix, suffix) = added_ends(&tokenizer)?;
    let role = |role: &str| config.special_token(role).and_then(|text| vocabulary.id(text));
    let bos = role("bos_token").or_else(|| prefix.first().copied());
    let eos = role("eos_token").or_else(|| suffix.last().copied());
    let prefix = overridden(prefix, config.add_bos, bos);
    let suffix = overridden(suffix, config.add_eos, eos);

    let added = tokenizer.get_added_tokens_decoder();
    let control = AddedTokens::new(&vocabulary, TokenKind::is_special, |id, _| match added.get(&id) {
        Some(token) => Strip { left: token.lstrip, right: token.rstrip },
        None => Strip::default(),
    })?;
    let mut text_only = tokenizer.get_added_vocabulary().clone();
    text_only.set_encode_special_tokens(true);
    let words = Words::new(&sections.pre_tokenizer)?;
    let pipeline = Pipeline { tokenizer, words, text_only };
    Ok(Tokenizer {
        vocabulary: Arc::new(vocabulary),
        control,
        model: Model::Json(Box::new(pipeline)),
        bos,
        eos,
        prefix,
        suffix,
    })
}

/// Reads the file; if the crate refuses it, again without the keys that the crate does not know, over which it stumbles.
fn parse(text: &str) -> Result<tokenizers::Tokenizer> {
    text.parse().or_else(|error: tokenizers::Error| {
        let damaged = || damaged_section(text, &error.to_string());
        without_unknown_keys(text).and_then(|text| text.parse().ok()).ok_or_else(damaged)
    })
}

/// The file with only the keys of this version of the format; `None` if it has no others.
fn without_unknown_keys(text: &str) -> Option<String> {
    const ROOT: &[&str] = &[
        "version",
        "truncation",
        "padding",
        "added_tokens",
        "normalizer",
        "pre_tokenizer",
        "post_processor",
        "decoder",
        "model",
    ];
    const MODEL: &[&str] = &[
        "type",
        "dropout",
        "unk_token",
        "unk_id",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
        "max_input_chars_per_word",
        "vocab",
        "merges",
    ];
    let mut root: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let model = root.get_mut("model")?.as_object_mut()?;
    let n_model_keys = model.len();
    model.retain(|key, _| MODEL.contains(&key.as_str()));
    let mut pruned = model.len() < n_model_keys;
    root.retain(|key, _| {
        let known = ROOT.contains(&key.as_str());
        pruned |= !known;
        known
    });
    pruned.then(|| Value::Object(root).to_string())
}

impl Pipeline {
    /// Encodes a text; `emit` gets each token and the bytes of `text` it covers.
    ///
    /// The steps of the crate's own `encode`, less truncation and padding: those sections of the file describe how somebody
    /// trained, and would cut a prompt without a word.
    ///
    /// # Errors
    /// `Encode` as the pipeline says.
    pub(crate) fn encode(
        &self,
        text: &str,
        parse_special: bool,
        mut emit: impl FnMut(u32, Range<usize>),
    ) -> Result<()> {
        let disagree =
            || TextError::Encode { reason: "the sections of `tokenizer.json` do not fit each other".to_owned() };
        let encoding =
            without_panic(|| self.encoding(text, parse_special)).ok_or_else(disagree)?.map_err(encode_error)?;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            emit(id, start..end);
        }
        Ok(())
    }

    fn encoding(&self, text: &str, parse_special: bool) -> tokenizers::Result<Encoding> {
        let added = if parse_special { self.tokenizer.get_added_vocabulary() } else { &self.text_only };
        let mut pieces: PreTokenizedString = added.extract_and_normalize(self.tokenizer.get_normalizer(), text);
        self.words.cut(&mut pieces)?;
        pieces.tokenize(|piece| self.tokenizer.get_model().tokenize(piece.get()))?;
        pieces.into_encoding(None, 0, OffsetType::Byte)
    }
}

fn encode_error(error: tokenizers::Error) -> TextError {
    TextError::Encode { reason: error.to_string() }
}

fn vocabulary(tokenizer: &tokenizers::Tokenizer, sections: &Sections) -> Result<Vocabulary> {
    let byte_fallback = sections.model.byte_fallback == Some(true) || mentions(&sections.decoder, "ByteFallback");
    let mut vocabulary = Vocabulary::new(spelling(sections), strips_first_space(&sections.decoder));
    if !matches!(vocabulary.spelling(), Spelling::ByteLevel) {
        vocabulary.joint = joint(&sections.decoder);
    }
    for (text, id) in tokenizer.get_vocab(false) {
        let kind = match byte_token(&text) {
            Some(byte) if byte_fallback => TokenKind::Byte(byte),
            _ => TokenKind::Normal,
        };
        vocabulary.insert("model.vocab", id, &text, kind)?;
    }
    for (id, token) in tokenizer.get_added_tokens_decoder() {
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        vocabulary.insert("added_tokens", id, &token.content, kind)?;
    }
    Ok(vocabulary)
}

/// How the file spells its tokens.
///
/// A vocabulary cut by a `ByteLevel` pre-tokenizer is spelled in bytes whatever the decoder section claims: files are
/// published whose decoder was copied from a SentencePiece model.
fn spelling(sections: &Sections) -> Spelling {
    let byte_level = [&sections.pre_tokenizer, &sections.normalizer, &sections.decoder]
        .map(|section| mentions(section, "ByteLevel"));
    if byte_level.contains(&true) {
        return Spelling::ByteLevel;
    }
    let mut replacements = Vec::new();
    for step in steps(&sections.decoder) {
        match step.get("type").and_then(Value::as_str) {
            Some("Metaspace") => {
                let mark = step.get("replacement").and_then(Value::as_str);
                replacements.push((mark.map_or_else(|| WORD_MARK.to_string(), str::to_owned), " ".to_owned()));
            }
            Some("Replace") => {
                let from = step.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
                let to = step.get("content").and_then(Value::as_str);
                match from.zip(to) {
                    Some((from, to)) if !from.is_empty() => replacements.push((from.to_owned(), to.to_owned())),
                    _ => tracing::warn!(
                        "`tokenizer.json`: a `Replace` step of section `decoder` is ignored: not a string"
                    ),
                }
            }
            Some("ByteFallback" | "Fuse" | "Strip" | "WordPiece" | "BPEDecoder" | "CTC") | None => {}
            Some(other) => tracing::warn!(
                "`tokenizer.json`: step `{other}` of section `decoder` is not known, tokens are written as they are spelled"
            ),
        }
    }
    Spelling::Pieces { replacements, added_verbatim: false }
}

/// What the decoder does between tokens. Defaults are those of `tokenizers`.
fn joint(decoder: &Value) -> Joint {
    if decoder.is_null() {
        return Joint::Space;
    }
    let text =
        |step: &Value, key: &str, default: &str| step.get(key).and_then(Value::as_str).unwrap_or(default).to_owned();
    let tidy = |step: &Value| step.get("cleanup").and_then(Value::as_bool).unwrap_or(true);
    let found = steps(decoder).into_iter().find_map(|step| match step.get("type").and_then(Value::as_str)? {
        "WordPiece" => Some(Joint::WordPiece { prefix: text(step, "prefix", "##"), tidy: tidy(step) }),
        "BPEDecoder" => Some(Joint::WordEnd { suffix: text(step, "suffix", "</w>") })
            .filter(|joint| !matches!(joint, Joint::WordEnd { suffix } if suffix.is_empty())),
        "CTC" => Some(Joint::Ctc {
            padding: text(step, "pad_token", "<pad>"),
            delimiter: text(step, "word_delimiter_token", "|"),
            tidy: tidy(step),
        }),
        _ => None,
    });
    found.unwrap_or_default()
}

/// Whether decoding drops the space that encoding put in front.
fn strips_first_space(decoder: &Value) -> bool {
    steps(decoder).iter().any(|step| match step.get("type").and_then(Value::as_str) {
        Some("Strip") => {
            step.get("content").and_then(Value::as_str) == Some(" ")
                && step.get("start").and_then(Value::as_u64).is_some_and(|n| n > 0)
        }
        Some("Metaspace") => match step.get("prepend_scheme").and_then(Value::as_str) {
            Some(scheme) => scheme != "never",
            None => step.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(true),
        },
        _ => false,
    })
}

/// The steps of a section: itself, or the members of a `Sequence`.
fn steps(section: &Value) -> Vec<&Value> {
    let members = ["normalizers", "pretokenizers", "decoders"]
        .iter()
        .find_map(|members| section.get(members).and_then(Value::as_array));
    match members {
        Some(members) => members.iter().collect(),
        None => vec![section],
    }
}

/// Whether a step of this type is among a section's.
fn mentions(section: &Value, step_type: &str) -> bool {
    steps(section).iter().any(|step| step.get("type").and_then(Value::as_str) == Some(step_type))
}

/// The tokens the post-processor puts before and after a text, found by letting it process a token no vocabulary has.
fn added_ends(tokenizer: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    const PLACE: u32 = u32::MAX;
    let Some(post_processor) = tokenizer.get_post_processor() else { return Ok((Vec::new(), Vec::new())) };
    let token = tokenizers::Token::new(PLACE, "a".to_owned(), (0, 1));
    let processed = post_processor
        .process(Encoding::from_tokens(vec![token], 0), None, true)
        .map_err(|error| TextError::json("post_processor", error.to_string()))?;
    let mut parts = processed.get_ids().split(|&id| id == PLACE);
    let mut next = || parts.next().unwrap_or_default().to_vec();
    Ok((next(), next()))
}

/// What `add_bos_token` and its like make of the ends: the switch, where there is one, has the last word.
fn overridden(ends: Vec<u32>, add: Option<bool>, token: Option<u32>) -> Vec<u32> {
    match (add, token) {
        (Some(true), Some(token)) if !ends.contains(&token) => vec![token],
        (Some(false), Some(token)) => ends.into_iter().filter(|&id| id != token).collect(),
        _ => ends,
    }
}

/// The error for a file the crate refuses. Its own message is that of an untagged enum, so the sections are tried one by
/// one to find the one at fault.
fn damaged_section(text: &str, message: &str) -> TextError {
    use tokenizers::{
        DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, models::bpe::BPE,
    };

    let root: Value = match serde_json::from_str(text) {
        Ok(root) => root,
        Err(error) => return TextError::json("(whole file)", format!("expected JSON, found {error}")),
    };
    let Some(model) = root.get("model") else {
        return TextError::json("model", "expected an object, found nothing");
    };
    let is_bpe = model.get("type").and_then(Value::as_str).is_none_or(|kind| kind == "BPE");
    let failure = |section: &str| -> Option<serde_json::Error> {
        // Read from text again: some of the crate's types borrow from it.
        let text = root.get(section).filter(|value| !value.is_null())?.to_string();
        match section {
            "normalizer" => serde_json::from_str::<NormalizerWrapper>(&text).err(),
            "pre_tokenizer" => serde_json::from_str::<PreTokenizerWrapper>(&text).err(),
            "post_processor" => serde_json::from_str::<PostProcessorWrapper>(&text).err(),
            "decoder" => serde_json::from_str::<DecoderWrapper>(&text).err(),
            "model" if is_bpe => serde_json::from_str::<BPE>(&text).err(),
            _ => serde_json::from_str::<ModelWrapper>(&text).err(),
        }
    };
    for section in ["normalizer", "pre_tokenizer", "post_processor", "decoder", "model"] {
        if let Some(reason) = failure(section) {
            return TextError::json(section, reason.to_string());
        }
    }
    TextError::json("(whole file)", message)
}
