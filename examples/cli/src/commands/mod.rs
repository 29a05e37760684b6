//! One file per command.

pub mod bench;
pub mod chat;
pub mod embed;
pub mod families;
pub mod inspect;
pub mod run;
pub mod score;
pub mod story;
pub mod template;
pub mod tokenize;
pub mod verify;
