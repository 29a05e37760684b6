//! Tests that link every family.

mod dispatch;
mod hints;
mod macros_ui;
mod parity;
