//! One file per command.

pub mod families;
pub mod inspect;
pub mod run;
pub mod story;
pub mod template;
pub mod tokenize;
pub mod verify;
