//! Tests that link every family.

mod parity;
