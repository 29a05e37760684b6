//! Vocabularies that live in GGUF metadata.

use std::sync::Arc;

use kinfolk_weights::GgufMetadata;

use super::{
    Model, Tokenizer,
    added::{AddedTokens, Strip},
    bpe::Bpe,
    pre_tokenizer::{Alphabet, GENERIC, PreTokenizer},
    spm::Spm,
    vocabulary::{Spelling, TokenKind, Vocabulary, WORD_MARK, byte_token},
};
use crate::{Result, TextError};

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// The kinds of `tokenizer.ggml.model` that have an implementation.
const KINDS: &str = "`gpt2`, `llama`, `gemma4`";

/// Tokens that end a turn or frame code infilling, whatever type the file gives them. Converters are known to leave some of
/// them as ordinary text; llama.cpp then takes them for control tokens by name, and so does this runtime, because text
/// from a user must not be able to spell them.
const CONTROL_NAMES: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// A vocabulary as a GGUF file holds it.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: the kind.
    pub kind: String,
    /// `tokenizer.ggml.pre`: the rule that cuts text into words.
    pub pre: Option<String>,
    /// Spellings, by id.
    pub tokens: Vec<String>,
    /// One score per token.
    pub scores: Option<Vec<f32>>,
    /// One type per token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Option<Vec<i64>>,
    /// Pairs of tokens, separated by a space, first merge first.
    pub merges: Option<Vec<String>>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u64>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u64>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<u64>,
    /// Whether a text starts with BOS.
    pub add_bos: Option<bool>,
    /// Whether a text ends with EOS.
    pub add_eos: Option<bool>,
    /// Whether a text, and the text after an added token, is read as if a space stood before it.
    pub add_space_prefix: Option<bool>,
    /// `general.name`: Phi-3's files do not say what their tokens do to the white space after them.
    pub model_name: Option<String>,
}

impl GgufVocabulary {
    /// Reads the metadata. `None` if there is no vocabulary in it.
    ///
    /// # Errors
    /// `Config` if a key has the wrong type.
    pub fn from_metadata(metadata: &GgufMetadata) -> Result<Option<GgufVocabulary>> {
        let (Some(kind), Some(tokens)) = (metadata.str("tokenizer.ggml.model")?, metadata.strs(TOKENS)?) else {
            return Ok(None);
        };
        let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        Ok(Some(GgufVocabulary {
            kind: kind.to_owned(),
            pre: metadata.str("tokenizer.ggml.pre")?.map(str::to_owned),
            tokens: owned(tokens),
            scores: metadata.f32s(SCORES)?,
            types: metadata.i64s(TYPES)?,
            merges: metadata.strs(MERGES)?.map(owned),
            bos: metadata.u64("tokenizer.ggml.bos_token_id")?,
            eos: metadata.u64("tokenizer.ggml.eos_token_id")?,
            unknown: metadata.u64("tokenizer.ggml.unknown_token_id")?,
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?,
            model_name: metadata.str("general.name")?.map(str::to_owned),
        }))
    }

    /// Builds the tokenizer.
    ///
    /// # Errors
    /// `UnknownTokenizer`, `UnknownPreTokenizer`; `Vocabulary` with the key for lengths that do not agree, ids outside the
    /// vocabulary and damaged merges.
    pub fn build(self) -> Result<Tokenizer> {
        self.check_lengths()?;
        match self.kind.as_str() {
            "gpt2" | "gemma4" => self.build_bpe(),
            "llama" => self.build_spm(),
            _ => Err(TextError::UnknownTokenizer { found: self.kind, known: KINDS.to_owned() }),
        }
    }

    fn check_lengths(&self) -> Result<()> {
        let n_tokens = self.tokens.len();
        let lengths = [(SCORES, self.scores.as_ref().map(Vec::len)), (TYPES, self.types.as_ref().map(Vec::len))];
        for (key, len) in lengths {
            if let Some(len) = len
                && len != n_tokens
            {
                let reason = format!("expected {n_tokens} entries, one per entry of `{TOKENS}`, found {len}");
                return Err(TextError::vocabulary(key, reason));
            }
        }
        Ok(())
    }

    fn build_bpe(self) -> Result<Tokenizer> {
        let pre_tokenizer = match self.pre.as_deref() {
            _ if self.kind == "gemma4" => PreTokenizer::named("gemma4")?,
            None | Some("" | "default") => {
                tracing::warn!(
                    "the vocabulary does not say how text is cut into words (`tokenizer.ggml.pre`): a generic rule is used \
                     and the model may see other tokens than it was trained with"
                );
                GENERIC
            }
            Some(name) => PreTokenizer::named(name)?,
        };
        let spelling = match pre_tokenizer.alphabet {
            Alphabet::ByteLevel => Spelling::ByteLevel,
            Alphabet::WordMarks => word_marks(),
            Alphabet::Text => Spelling::Pieces { replacements: Vec::new(), added_verbatim: true },
        };
        let vocabulary = self.vocabulary(spelling, false)?;
        let merges =
            self.merges.as_deref().ok_or_else(|| TextError::vocabulary(MERGES, "expected an array, found nothing"))?;
        let bpe = Box::new(Bpe::new(&vocabulary, merges, &pre_tokenizer)?);
        self.finish(vocabulary, pre_tokenizer.add_bos, |user_defined| Model::Bpe { user_defined, bpe })
    }

    fn build_spm(mut self) -> Result<Tokenizer> {
        let space_prefix = self.add_space_prefix.unwrap_or(true);
        let vocabulary = self.vocabulary(word_marks(), space_prefix)?;
        let scores = match self.scores.take() {
            Some(scores) => scores,
            None => self.scores_of_merges(&vocabulary)?,
        };
        let unknown = self.id("tokenizer.ggml.unknown_token_id", self.unknown)?;
        let spm = Spm::new(&vocabulary, scores, unknown);
        self.finish(vocabulary, true, |user_defined| Model::Spm { user_defined, spm, space_prefix })
    }

    /// Scores for a vocabulary that has a merge list instead: earlier merges score higher.
    fn scores_of_merges(&self, vocabulary: &Vocabulary) -> Result<Vec<f32>> {
        let merges = self
            .merges
            .as_ref()
            .ok_or_else(|| TextError::vocabulary(SCORES, format!("expected an array, or `{MERGES}`, found neither")))?;
        let mut scores = vec![f32::NEG_INFINITY; vocabulary.len()];
        for (rank, merge) in merges.iter().enumerate().rev() {
            let (left, right) = super::bpe::halves(rank, merge)?;
            let id = vocabulary.id(&format!("{left}{right}"));
            if let Some(score) = id.and_then(|id| scores.get_mut(id as usize)) {
                *score = -(rank as f32);
            }
        }
        Ok(scores)
    }

    fn vocabulary(&self, spelling: Spelling, strips_first_space: bool) -> Result<Vocabulary> {
        let mut vocabulary = Vocabulary::new(spelling, strips_first_space);
        for (place, text) in self.tokens.iter().enumerate() {
            // An empty spelling can be neither matched nor written: a hole.
            if text.is_empty() {
                continue;
            }
            let id = u32::try_from(place).unwrap_or(u32::MAX);
            vocabulary.insert(TOKENS, id, text, self.token_kind(place, text)?)?;
        }
        Ok(vocabulary)
    }

    fn token_kind(&self, place: usize, text: &str) -> Result<TokenKind> {
        if CONTROL_NAMES.contains(&text) {
            return Ok(TokenKind::Control);
        }
        Ok(match self.types.as_ref().and_then(|types| types.get(place)) {
            Some(2) => TokenKind::Unknown,
            Some(3) => TokenKind::Control,
            Some(4) => TokenKind::UserDefined,
            Some(5) => TokenKind::Unused,
            Some(6) => {
                let reason =
                    || format!("entry {place} is a byte token: expected a spelling like `<0x0A>`, found `{text}`");
                TokenKind::Byte(byte_token(text).ok_or_else(|| TextError::vocabulary(TOKENS, reason()))?)
            }
            _ => TokenKind::Normal,
        })
    }

    /// Checks a special id against the vocabulary.
    fn id(&self, key: &str, id: Option<u64>) -> Result<Option<u32>> {
        let n_tokens = self.tokens.len();
        match id {
            None => Ok(None),
            Some(id) => match u32::try_from(id) {
                Ok(id) if (id as usize) < n_tokens => Ok(Some(id)),
                _ => Err(TextError::vocabulary(key, format!("expected an id below {n_tokens}, found {id}"))),
            },
        }
    }

    fn finish(
        self,
        vocabulary: Vocabulary,
        add_bos_by_default: bool,
        model: impl FnOnce(AddedTokens) -> Model,
    ) -> Result<Tokenizer> {
        let bos = self.id("tokenizer.ggml.bos_token_id", self.bos)?;
        let eos = self.id("tokenizer.ggml.eos_token_id", self.eos)?;
        let prefix = ends("bos", bos, self.add_bos, add_bos_by_default)?;
        let suffix = ends("eos", eos, self.add_eos, false)?;
        let name = self.model_name.unwrap_or_default().to_lowercase();
        let is_phi3 = name.contains("phi-3") || name.contains("phi3");
        let strip =
            |_, text: &str| Strip { left: false, right: is_phi3 && !matches!(text, "<unk>" | "<s>" | "<|endoftext|>") };
        let control = AddedTokens::new(&vocabulary, TokenKind::is_special, strip)?;
        let user_defined = AddedTokens::new(&vocabulary, |kind| kind == TokenKind::UserDefined, strip)?;
        Ok(Tokenizer {
            vocabulary: Arc::new(vocabulary),
            control,
            model: model(user_defined),
            bos,
            eos,
            prefix,
            suffix,
        })
    }
}

/// SentencePiece's spelling, in which added tokens are written as they are.
fn word_marks() -> Spelling {
    Spelling::Pieces { replacements: vec![(WORD_MARK.to_string(), " ".to_owned())], added_verbatim: true }
}

/// The tokens put before (or after) every text.
fn ends(role: &str, id: Option<u32>, add: Option<bool>, by_default: bool) -> Result<Vec<u32>> {
    match (add.unwrap_or(by_default), id) {
        (true, None) if add.is_some() => Err(TextError::vocabulary(
            format!("tokenizer.ggml.{role}_token_id"),
            format!("expected an id, since `tokenizer.ggml.add_{role}_token` is true, found nothing"),
        )),
        (true, id) => Ok(id.into_iter().collect()),
        (false, _) => Ok(Vec::new()),
    }
}
