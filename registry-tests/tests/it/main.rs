//! Tests that link every family.

mod absences;
mod conformance;
mod conventions;
mod dispatch;
mod generation;
mod hints;
mod linking;
mod macros_ui;
mod parity;
