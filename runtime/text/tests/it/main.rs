//! Integration tests: vectors of other implementations, fixtures, and the ways a file or a stream can go wrong.

mod fixtures;
mod gguf;
mod hostile;
mod kinds;
mod reasoning;
mod shared;
mod stop;
mod streaming;
mod templates;
mod text;
mod tools;
mod toy;
mod vectors;
mod vocabularies;
mod warnings;
