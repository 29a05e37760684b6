//! Text to tokens, and what each token stands for.

mod added;
mod bpe;
mod byte_level;
mod charsmap;
mod config;
mod gguf;
mod json;
mod pre_tokenizer;
mod rwkv;
mod spm;
mod trie;
mod unigram;
pub(crate) mod vocabulary;
mod word_piece;
mod words;

use std::{borrow::Cow, ops::Range, sync::Arc};

use kinfolk_weights::Source;

use self::{
    added::{AddedTokens, Segment},
    bpe::Bpe,
    json::Pipeline,
    rwkv::Rwkv,
    spm::Spm,
    unigram::Unigram,
    vocabulary::Vocabulary,
    word_piece::WordPiece,
};
pub use self::{
    config::TokenizerConfig,
    gguf::{GgufVocabulary, VocabularyOptions},
};
use crate::{Detokenizer, Result, TextError};

/// A model's tokenizer, from `tokenizer.json` or from the vocabulary inside a GGUF file.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Arc<Vocabulary>,
    /// The control tokens, for texts that may hold some.
    control: AddedTokens,
    model: Model,
    bos: Option<u32>,
    eos: Option<u32>,
    /// Put before every text on request: BOS, as a rule.
    prefix: Vec<u32>,
    /// Put after every text on request: nothing, as a rule.
    suffix: Vec<u32>,
}

/// What makes tokens of text without control tokens.
#[derive(Debug)]
enum Model {
    Json(Box<Pipeline>),
    Vocabulary { user_defined: AddedTokens, algorithm: Algorithm },
}

/// What makes tokens of text without added tokens.
#[derive(Debug)]
pub(crate) enum Algorithm {
    Bpe(Box<Bpe>),
    Spm {
        spm: Spm,
        space_prefix: bool,
    },
    WordPiece(WordPiece),
    Unigram(Box<Unigram>),
    Rwkv(Rwkv),
    /// The model takes ids that are no text.
    None,
}

/// How a text is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put the tokens around it that the model expects around a text (BOS).
    pub add_special: bool,
    /// Read control tokens that are written out in the text as those tokens. Without it they are ordinary characters, which
    /// is what text from outside must be. Tokens that are user-defined, not control, are matched either way.
    pub parse_special: bool,
}

/// One token of an encoded text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The text it stands for; U+FFFD for bytes that are no text by themselves.
    pub piece: String,
    /// The bytes of the encoded text it covers; empty for tokens put around it.
    pub range: Range<usize>,
    /// Whether it is a special token.
    pub special: bool,
}

impl Tokenizer {
    /// Finds and reads a model's tokenizer: the vocabulary inside a GGUF file, else `tokenizer.json` beside the model.
    ///
    /// # Errors
    /// `NoTokenizer` if there is neither; what is wrong with the one that is there.
    pub fn from_source(source: &Source) -> Result<Tokenizer> {
        Tokenizer::from_source_with(source, &VocabularyOptions::default())
    }

    /// [`from_source`](Self::from_source), with what a host or a family decides about a vocabulary inside a GGUF file.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source).
    pub fn from_source_with(source: &Source, options: &VocabularyOptions) -> Result<Tokenizer> {
        let inside = match source.gguf() {
            Some(metadata) => GgufVocabulary::from_metadata(metadata)?,
            None => None,
        };
        match (inside, source.sidecar("tokenizer.json")?) {
            (Some(vocabulary), None) => vocabulary.build_with(options),
            (Some(vocabulary), Some(_)) if !vocabulary.is_absent() => vocabulary.build_with(options),
            (_, Some(text)) => Tokenizer::from_json(&text, &TokenizerConfig::from_source(source)?),
            (None, None) => Err(TextError::NoTokenizer { path: source.path().display().to_string() }),
        }
    }

    /// Reads the text of `tokenizer.json`. `config` is what the files beside it say.
    ///
    /// # Errors
    /// `TokenizerJson` with the section that cannot be used.
    pub fn from_json(text: &str, config: &TokenizerConfig) -> Result<Tokenizer> {
        json::build(text, config)
    }

    /// Makes tokens of a text.
    ///
    /// # Errors
    /// `Encode` as the tokenizer says.
    /// # Cost
    /// O(n log n) at worst in the bytes of the text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special {
            ids.extend(&self.prefix);
        }
        self.encode_each(text, options.parse_special, |id, _| ids.push(id))?;
        if options.add_special {
            ids.extend(&self.suffix);
        }
        Ok(ids)
    }

    /// [`encode`](Self::encode), with where in the text each token comes from.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_with_offsets(&self, text: &str, options: EncodeOptions) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        if options.add_special {
            tokens.extend(self.prefix.iter().map(|&id| self.describe(id, 0..0)));
        }
        self.encode_each(text, options.parse_special, |id, range| tokens.push(self.describe(id, range)))?;
        if options.add_special {
            tokens.extend(self.suffix.iter().map(|&id| self.describe(id, text.len()..text.len())));
        }
        Ok(tokens)
    }

    fn describe(&self, id: u32, range: Range<usize>) -> Token {
        let bytes = self.token_bytes(id).unwrap_or_default();
        Token { id, piece: String::from_utf8_lossy(&bytes).into_owned(), range, special: self.is_special(id) }
    }

    /// Encodes a prompt with control tokens, of which those in the `literals` (ascending ranges) are text all the same.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub(crate) fn encode_with_literals(&self, text: &str, literals: &[Range<usize>]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encode_segments(text, literals, |id, _| ids.push(id))?;
        Ok(ids)
    }

    /// Where in a text control tokens are spelled out.
    pub(crate) fn control_tokens_in(&self, text: &str) -> Vec<Range<usize>> {
        self.control.places(text)
    }

    /// Where at the edges of a text, white space aside, there are parts of control tokens that more text could complete.
    pub(crate) fn open_edges(&self, text: &str) -> [Range<usize>; 2] {
        let start = text.len() - text.trim_start().len();
        let end = text.trim_end().len();
        let at_start = start..start + self.control.open_start(text.trim_start()).len();
        [at_start, end - self.control.open_end(text.trim_end()).len()..end]
    }

    fn encode_each(&self, text: &str, parse_special: bool, emit: impl FnMut(u32, Range<usize>)) -> Result<()> {
        match &self.model {
            Model::Json(pipeline) => pipeline.encode(text, parse_special, emit),
            _ if parse_special => self.encode_segments(text, &[], emit),
            _ => self.encode_text(text, emit),
        }
    }

    fn encode_segments(
        &self,
        text: &str,
        literals: &[Range<usize>],
        mut emit: impl FnMut(u32, Range<usize>),
    ) -> Result<()> {
        for segment in self.control.split(text, literals) {
            match segment {
                Segment::Token { id, range } => emit(id, range),
                Segment::Text(range) => {
                    self.encode_text(&text[range.clone()], |id, at| emit(id, shifted(at, range.start)))?;
                }
            }
        }
        Ok(())
    }

    /// Encodes text without control tokens.
    fn encode_text(&self, text: &str, mut emit: impl FnMut(u32, Range<usize>)) -> Result<()> {
        let (user_defined, algorithm) = match &self.model {
            Model::Json(pipeline) => return pipeline.encode(text, false, emit),
            Model::Vocabulary { user_defined, algorithm } => (user_defined, algorithm),
        };
        for segment in user_defined.split(text, &[]) {
            match segment {
                Segment::Token { id, range } => emit(id, range),
                Segment::Text(range) => {
                    let emit = |id, at| emit(id, shifted(at, range.start));
                    algorithm.encode(&self.vocabulary, &text[range.clone()], emit)?;
                }
            }
        }
        Ok(())
    }

    /// Makes text of tokens. Bytes that are no text become U+FFFD; ids without a token add nothing.
    ///
    /// Spaces are not tidied up: what `clean_up_tokenization_spaces` does is not invertible, and a stream cannot do it.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut detokenizer = self.detokenizer(skip_special);
        let mut text = String::new();
        for &id in ids {
            detokenizer.push_to(id, &mut text);
        }
        text.push_str(&detokenizer.finish());
        text
    }

    /// Makes text of tokens as they come.
    pub fn detokenizer(&self, skip_special: bool) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.vocabulary), skip_special)
    }

    /// The bytes a token adds to a text; `None` for an id without a token.
    pub fn token_bytes(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        self.vocabulary.bytes(id)
    }

    /// A token as the vocabulary spells it; `None` for an id without a token.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.vocabulary.text(id).map(str::to_owned)
    }

    /// The id of a token by its spelling in the vocabulary.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.vocabulary.id(text)
    }

    /// One more than the highest id. The model's output may be wider.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// The token that starts a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if the tokenizer names one. What ends generation is [`Ends`](crate::Ends).
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether a text is to start with [`bos`](Self::bos).
    pub fn add_bos(&self) -> bool {
        self.bos.is_some_and(|bos| self.prefix.contains(&bos))
    }

    /// The table of tokens.
    pub(crate) fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// What is put before every text on request.
    pub fn prefix(&self) -> &[u32] {
        &self.prefix
    }

    /// What is put after every text on request.
    pub fn suffix(&self) -> &[u32] {
        &self.suffix
    }

    /// Whether the token is markup, not text: hidden when special tokens are skipped.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.kind(id).is_some_and(|kind| kind.is_special())
    }
}

impl TokenizerConfig {
    /// Reads the files beside a model.
    ///
    /// # Errors
    /// `Weights` if a file is there and cannot be read.
    pub fn from_source(source: &Source) -> Result<TokenizerConfig> {
        let tokenizer_config = source.sidecar("tokenizer_config.json")?;
        let special_tokens_map = source.sidecar("special_tokens_map.json")?;
        Ok(TokenizerConfig::from_json(tokenizer_config.as_deref(), special_tokens_map.as_deref()))
    }
}

impl Algorithm {
    fn encode(&self, vocabulary: &Vocabulary, text: &str, emit: impl FnMut(u32, Range<usize>)) -> Result<()> {
        match self {
            Algorithm::Bpe(bpe) => bpe.encode(vocabulary, text, emit),
            // The start or an added token precedes text here, never text: the space prefix is due.
            Algorithm::Spm { spm, space_prefix } => {
                spm.encode(vocabulary, text, *space_prefix, emit);
                Ok(())
            }
            Algorithm::WordPiece(word_piece) => word_piece.encode(text, emit),
            Algorithm::Unigram(unigram) => unigram.encode(text, emit),
            Algorithm::Rwkv(rwkv) => rwkv.encode(text, emit),
            Algorithm::None => Err(TextError::Encode {
                reason: "the model has no vocabulary: expected a prompt of token ids, found text".to_owned(),
            }),
        }
    }
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}
