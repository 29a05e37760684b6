//! Vocabularies that live in GGUF metadata.

use std::sync::Arc;

use kinfolk_weights::GgufMetadata;

use super::{
    Algorithm, Model, Tokenizer,
    added::{AddedTokens, Strip},
    bpe::Bpe,
    charsmap::Charsmap,
    pre_tokenizer::{Alphabet, GENERIC, PreTokenizer},
    rwkv::Rwkv,
    spm::Spm,
    unigram::{Spacing, Unigram},
    vocabulary::{MAX_TOKENS, Spelling, TokenKind, Vocabulary, WORD_MARK, byte_token},
    word_piece::WordPiece,
};
use crate::{Result, TextError};

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";

/// The kinds of `tokenizer.ggml.model` that have an implementation.
const KINDS: &str = "`gpt2`, `llama`, `gemma4`, `bert`, `t5`, `rwkv`, `no_vocab`";

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
    /// `tokenizer.ggml.cls_token_id`: what starts a text of a BERT model.
    pub cls: Option<u64>,
    /// `tokenizer.ggml.seperator_token_id` (so spelled): what ends one.
    pub sep: Option<u64>,
    /// Whether a text starts with BOS.
    pub add_bos: Option<bool>,
    /// Whether a text ends with EOS.
    pub add_eos: Option<bool>,
    /// Whether a text ends with the separator.
    pub add_sep: Option<bool>,
    /// Whether a text, and the text after an added token, is read as if a space stood before it.
    pub add_space_prefix: Option<bool>,
    /// Whether spaces at the ends of a text are dropped, and all but one of several between words.
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether a WordPiece vocabulary knows small letters only.
    pub lowercase: Option<bool>,
    /// Whether a WordPiece vocabulary knows no accents.
    pub strip_accents: Option<bool>,
    /// What stands for which characters in a unigram vocabulary, as SentencePiece compiles it.
    pub charsmap: Option<Vec<u8>>,
    /// `ARCHITECTURE.vocab_size`, for a model without vocabulary.
    pub n_tokens: Option<u64>,
    /// `general.name`: Phi-3's files do not say what their tokens do to the white space after them.
    pub model_name: Option<String>,
}

/// What a host or a family decides about a vocabulary that leaves it open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VocabularyOptions {
    /// The rule that cuts text into words (a name of `tokenizer.ggml.pre`) for files that name none: the one the family's models
    /// are trained with. `None`: a generic rule, with a warning.
    pub default_pre: Option<String>,
    /// Cut by the generic rule, with a warning, where a file names a rule that is not known. Off, such a file is refused: the
    /// model would see other tokens than it was trained with.
    pub generic_for_unknown_pre: bool,
}

impl GgufVocabulary {
    /// Reads the metadata. `None` if there is no vocabulary in it.
    ///
    /// # Errors
    /// `Config` if a key has the wrong type.
    pub fn from_metadata(metadata: &GgufMetadata) -> Result<Option<GgufVocabulary>> {
        let Some(kind) = metadata.str("tokenizer.ggml.model")? else { return Ok(None) };
        let tokens = match metadata.strs(TOKENS)? {
            Some(tokens) => tokens,
            None if is_absent(kind) => Vec::new(),
            None => return Ok(None),
        };
        let n_tokens = match metadata.str("general.architecture")? {
            Some(architecture) => metadata.u64(&format!("{architecture}.vocab_size"))?,
            None => None,
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
            unknown: metadata.u64(UNKNOWN)?,
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?,
            cls: metadata.u64("tokenizer.ggml.cls_token_id")?,
            sep: metadata.u64("tokenizer.ggml.seperator_token_id")?,
            add_sep: metadata.bool("tokenizer.ggml.add_sep_token")?,
            add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?,
            remove_extra_whitespaces: metadata.bool("tokenizer.ggml.remove_extra_whitespaces")?,
            lowercase: metadata.bool("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: metadata.bool("tokenizer.ggml.normalizer.strip_accents")?,
            charsmap: metadata.i64s(CHARSMAP)?.map(bytes).transpose()?,
            n_tokens,
            model_name: metadata.str("general.name")?.map(str::to_owned),
        }))
    }

    /// Builds the tokenizer.
    ///
    /// # Errors
    /// `UnknownTokenizer`, `UnknownPreTokenizer`; `Vocabulary` with the key for lengths that do not agree, ids outside the
    /// vocabulary and damaged merges.
    pub fn build(self) -> Result<Tokenizer> {
        self.build_with(&VocabularyOptions::default())
    }

    /// [`build`](Self::build), with what a host or a family decides.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with(self, options: &VocabularyOptions) -> Result<Tokenizer> {
        self.check_lengths()?;
        match self.kind.as_str() {
            "gpt2" | "gemma4" => self.build_bpe(options),
            "llama" => self.build_spm(),
            "bert" => self.build_word_piece(),
            "t5" => self.build_unigram(),
            "rwkv" => self.build_rwkv(),
            kind if is_absent(kind) => self.build_nothing(),
            _ => Err(TextError::UnknownTokenizer { found: self.kind, known: KINDS.to_owned() }),
        }
    }

    /// Whether the file says that there is no vocabulary.
    pub(crate) fn is_absent(&self) -> bool {
        is_absent(&self.kind)
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

    fn build_bpe(self, options: &VocabularyOptions) -> Result<Tokenizer> {
        let pre_tokenizer = self.pre_tokenizer(options)?;
        let spelling = match pre_tokenizer.alphabet {
            Alphabet::ByteLevel => Spelling::ByteLevel,
            Alphabet::WordMarks => word_marks(),
            Alphabet::Text => Spelling::Pieces { replacements: Vec::new(), added_verbatim: true },
        };
        let vocabulary = self.vocabulary(spelling, false)?;
        let merges =
            self.merges.as_deref().ok_or_else(|| TextError::vocabulary(MERGES, "expected an array, found nothing"))?;
        let bpe = Box::new(Bpe::new(&vocabulary, merges, &pre_tokenizer)?);
        let by_default = Ends { bos: pre_tokenizer.add_bos, ..Ends::default() };
        self.finish(vocabulary, by_default, Algorithm::Bpe(bpe))
    }

    /// The rule that cuts text into words.
    fn pre_tokenizer(&self, options: &VocabularyOptions) -> Result<PreTokenizer> {
        let named = self.pre.as_deref().filter(|name| !matches!(*name, "" | "default"));
        let Some(name) = named.or(options.default_pre.as_deref()).filter(|_| self.kind != "gemma4") else {
            if self.kind == "gemma4" {
                return PreTokenizer::named("gemma4");
            }
            tracing::warn!(
                "the vocabulary does not say how text is cut into words (`tokenizer.ggml.pre`): a generic rule is used \
                 and the model may see other tokens than it was trained with"
            );
            return Ok(GENERIC);
        };
        match PreTokenizer::named(name) {
            Err(error) if options.generic_for_unknown_pre => {
                tracing::warn!(
                    "a generic rule is used and the model may see other tokens than it was trained with: {error}"
                );
                Ok(GENERIC)
            }
            found => found,
        }
    }

    fn build_spm(mut self) -> Result<Tokenizer> {
        let space_prefix = self.add_space_prefix.unwrap_or(true);
        let vocabulary = self.vocabulary(word_marks(), space_prefix)?;
        let scores = match self.scores.take() {
            Some(scores) => scores,
            None => self.scores_of_merges(&vocabulary)?,
        };
        let unknown = self.id(UNKNOWN, self.unknown)?;
        let spm = Spm::new(&vocabulary, scores, unknown);
        self.finish(vocabulary, Ends { bos: true, ..Ends::default() }, Algorithm::Spm { spm, space_prefix })
    }

    fn build_word_piece(mut self) -> Result<Tokenizer> {
        // Where a file names none, BERT's own ids are meant.
        self.unknown = self.unknown.or(self.id_within(100));
        self.sep = self.sep.or(self.id_within(102));
        self.bos = self.bos.or(self.cls).or(self.id_within(101));
        let vocabulary = self.vocabulary(word_marks(), false)?;
        let unknown = self.id(UNKNOWN, self.unknown)?;
        let lowercase = self.lowercase.unwrap_or(true);
        let strip_accents = self.strip_accents.unwrap_or(lowercase);
        let word_piece = WordPiece::new(&vocabulary, unknown, lowercase, strip_accents)?;
        let by_default = Ends { bos: true, sep: true, ..Ends::default() };
        self.finish(vocabulary, by_default, Algorithm::WordPiece(word_piece))
    }

    fn build_unigram(mut self) -> Result<Tokenizer> {
        // Where a file names none, T5's own ids are meant.
        self.unknown = self.unknown.or(self.id_within(2));
        self.eos = self.eos.or(self.id_within(1));
        let spacing = Spacing {
            prefix: self.add_space_prefix.unwrap_or(false),
            merge: self.remove_extra_whitespaces.unwrap_or(false),
        };
        let vocabulary = self.vocabulary(word_marks(), spacing.prefix)?;
        let scores =
            self.scores.take().ok_or_else(|| TextError::vocabulary(SCORES, "expected an array, found nothing"))?;
        let unknown = self
            .id(UNKNOWN, self.unknown)?
            .ok_or_else(|| TextError::vocabulary(UNKNOWN, "expected an id, found nothing"))?;
        let charsmap = Charsmap::new(self.charsmap.as_deref().unwrap_or_default())?;
        let unigram = Unigram::new(&vocabulary, &scores, unknown, charsmap, spacing)?;
        let by_default = Ends { eos: true, ..Ends::default() };
        self.finish(vocabulary, by_default, Algorithm::Unigram(Box::new(unigram)))
    }

    fn build_rwkv(self) -> Result<Tokenizer> {
        let vocabulary = self.vocabulary(Spelling::Escaped, false)?;
        let unknown = self.id(UNKNOWN, self.unknown)?;
        let rwkv = Rwkv::new(&vocabulary, unknown)?;
        self.finish(vocabulary, Ends::default(), Algorithm::Rwkv(rwkv))
    }

    /// A tokenizer for ids that stand for nothing.
    fn build_nothing(mut self) -> Result<Tokenizer> {
        let n_tokens = self.n_tokens.unwrap_or(0);
        let n_tokens = usize::try_from(n_tokens).ok().filter(|n| *n <= MAX_TOKENS).ok_or_else(|| {
            TextError::vocabulary("vocab_size", format!("expected at most {MAX_TOKENS} tokens, found {n_tokens}"))
        })?;
        self.tokens = vec![String::new(); n_tokens];
        let mut vocabulary = Vocabulary::new(Spelling::Escaped, false);
        vocabulary.leave_holes(n_tokens);
        self.finish(vocabulary, Ends::default(), Algorithm::None)
    }

    /// An id, if the vocabulary reaches that far.
    fn id_within(&self, id: u64) -> Option<u64> {
        (id < self.tokens.len() as u64).then_some(id)
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

    fn finish(self, vocabulary: Vocabulary, by_default: Ends, algorithm: Algorithm) -> Result<Tokenizer> {
        let bos = self.id("tokenizer.ggml.bos_token_id", self.bos)?;
        let eos = self.id("tokenizer.ggml.eos_token_id", self.eos)?;
        let sep = self.id("tokenizer.ggml.seperator_token_id", self.sep)?;
        let prefix = ends("bos", bos, self.add_bos, by_default.bos)?;
        let mut suffix = ends("eos", eos, self.add_eos, by_default.eos)?;
        // The separator ends the texts of models that have one; for others a file may name one all the same.
        if by_default.sep {
            suffix.extend(ends("sep", sep, self.add_sep, true)?);
        }
        let name = self.model_name.unwrap_or_default().to_lowercase();
        let is_phi3 = name.contains("phi-3") || name.contains("phi3");
        let strip =
            |_, text: &str| Strip { left: false, right: is_phi3 && !matches!(text, "<unk>" | "<s>" | "<|endoftext|>") };
        let control = AddedTokens::new(&vocabulary, TokenKind::is_special, strip)?;
        let user_defined = AddedTokens::new(&vocabulary, |kind| kind == TokenKind::UserDefined, strip)?;
        Ok(Tokenizer {
            vocabulary: Arc::new(vocabulary),
            control,
            model: Model::Vocabulary { user_defined, algorithm },
            bos,
            eos,
            prefix,
            suffix,
        })
    }
}

/// Which tokens are put around a text where the file does not say.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    bos: bool,
    eos: bool,
    sep: bool,
}

/// Whether a kind says that there is no vocabulary.
fn is_absent(kind: &str) -> bool {
    matches!(kind, "no_vocab" | "none")
}

/// Bytes that a file stores as an array of numbers, signed or not.
fn bytes(numbers: Vec<i64>) -> Result<Vec<u8>> {
    let byte = |number: i64| {
        let unsigned = u8::try_from(number).ok().or_else(|| Some(i8::try_from(number).ok()?.cast_unsigned()));
        unsigned.ok_or_else(|| TextError::vocabulary(CHARSMAP, format!("expected bytes, found {number}")))
    };
    numbers.into_iter().map(byte).collect()
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
