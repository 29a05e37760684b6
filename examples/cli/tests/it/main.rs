//! Drives the real `kinfolk` command.

mod bad_input;
mod bench;
mod commands;
mod embed;
mod kinfolk;
mod replies;
mod score;
