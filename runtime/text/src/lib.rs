//! Text for local language models: tokenizers, the streaming detokenizer, chat templates, and what ends a reply.

mod detokenizer;
mod error;
mod tokenizer;

pub use detokenizer::Detokenizer;
pub use error::{Result, TextError};
pub use tokenizer::{EncodeOptions, GgufVocabulary, Token, Tokenizer, TokenizerConfig};
