//! Text for local language models: tokenizers, the streaming detokenizer, chat templates, and what ends a reply.
//!
//! A host holds a [`Text`] beside its model:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use kinfolk_text::{RenderOptions, Text};
//! use kinfolk_weights::Source;
//!
//! let text = Text::from_source(&Source::open("model.gguf")?, &["<|im_end|>"])?;
//! let messages = [serde_json::json!({"role": "user", "content": "Hello"})];
//! let mut options = RenderOptions::default();
//! options.add_generation_prompt = true;
//! let prompt = text.chat_tokens(&messages, &options)?;
//!
//! let mut detokenizer = text.tokenizer.detokenizer(true);
//! # let (mut reply, generated) = (String::new(), prompt);
//! for id in generated {
//!     if text.ends.contains(id) {
//!         break;
//!     }
//!     reply.push_str(&detokenizer.push(id));
//! }
//! reply.push_str(&detokenizer.finish());
//! # Ok(())
//! # }
//! ```

mod detokenizer;
mod ends;
mod error;
mod reasoning;
mod stop;
mod template;
mod text;
mod tokenizer;
mod tools;

pub use detokenizer::Detokenizer;
pub use ends::Ends;
pub use error::{Result, TextError};
pub use reasoning::ReasoningTags;
pub use stop::{Pushed, StopStrings};
pub use template::{ChatTemplate, Clock, RenderOptions};
pub use text::Text;
pub use tokenizer::{EncodeOptions, GgufVocabulary, Token, Tokenizer, TokenizerConfig, VocabularyOptions};
pub use tools::{
    AllowedTypes, Broken, Ending, IsToken, ParsedReply, Piece, Read, Reading, ReplyDecoder, ReplyEvent, ReplyOptions,
    ReplyParser, Scanner, ToolCall, ToolFormat, ToolFormats, ToolSchemas,
};

/// What the macros of this crate expand to.
#[doc(hidden)]
pub mod __private {
    pub use inventory;

    pub use crate::tools::Enrolled;
}
