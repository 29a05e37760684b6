//! Text for local language models: tokenizers, the streaming detokenizer, chat templates, and what ends a reply.

mod detokenizer;
mod ends;
mod error;
mod template;
mod text;
mod tokenizer;

pub use detokenizer::Detokenizer;
pub use ends::Ends;
pub use error::{Result, TextError};
pub use template::{ChatTemplate, Clock, RenderOptions};
pub use text::Text;
pub use tokenizer::{EncodeOptions, GgufVocabulary, Token, Tokenizer, TokenizerConfig};
