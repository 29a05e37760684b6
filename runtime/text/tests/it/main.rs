//! Integration tests: vectors of other implementations, fixtures, and the ways a file or a stream can go wrong.

mod shared;
mod templates;
mod vectors;
