//! Tests that link every family.

mod absences;
mod admission;
mod conformance;
mod conventions;
mod dispatch;
mod embedding;
mod generation;
mod hints;
mod linking;
mod macros_ui;
mod parity;
mod scoring;
mod serving;
