//! What a host may count on, seen from outside.

#[cfg(feature = "grammar")]
mod grammar;
mod samplers;
