//! Tests that link every family.

mod dispatch;
mod generation;
mod hints;
mod macros_ui;
mod parity;
