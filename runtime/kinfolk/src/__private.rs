//! What the macros expand to. Not for people: it changes without notice.

pub use anyhow;
pub use inventory;
pub use kinfolk_decoder::{Decoder, Result};
pub use kinfolk_weights::Config;

pub use crate::load::load_described;
