//! Keys and values of requests that have ended, for those that begin alike.

use std::collections::VecDeque;

use kinfolk_decoder::Cache;

use crate::session::common_prefix;

/// Sequences that nobody runs, the least recently used first.
#[derive(Default)]
pub(super) struct Prefixes {
    kept: VecDeque<Prefix>,
}

struct Prefix {
    /// What the cache holds.
    tokens: Vec<u32>,
    cache: Box<dyn Cache>,
}

impl Prefixes {
    /// Keeps a sequence, and lets the oldest ones go beyond `most`.
    pub fn keep(&mut self, tokens: Vec<u32>, cache: Box<dyn Cache>, most: usize) {
        // One that another goes on from is no use any more.
        self.kept.retain(|prefix| !tokens.starts_with(&prefix.tokens));
        self.kept.push_back(Prefix { tokens, cache });
        while self.kept.len() > most {
            self.kept.pop_front();
        }
    }

    /// How many tokens of `context` the best of them holds.
    pub fn shared(&self, context: &[u32]) -> usize {
        self.kept.iter().map(|prefix| common_prefix(&prefix.tokens, context)).max().unwrap_or(0)
    }

    /// The one that holds the most of `context`, cut to that: itself if that is most of it, and otherwise a copy.
    pub fn take(&mut self, context: &[u32]) -> Option<Box<dyn Cache>> {
        let shared = |prefix: &Prefix| common_prefix(&prefix.tokens, context);
        let (at, n) = self.kept.iter().map(shared).enumerate().max_by_key(|(_, n)| *n)?;
        let prefix = self.kept.remove(at)?;
        if n * 2 >= prefix.tokens.len() {
            let mut cache = prefix.cache;
            cache.truncate(n);
            return Some(cache);
        }
        let cache = prefix.cache.fork(n);
        self.kept.push_back(prefix);
        Some(cache)
    }

    /// Lets the least recently used one go. Returns whether there was one.
    pub fn evict(&mut self) -> bool {
        self.kept.pop_front().is_some()
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|prefix| prefix.cache.bytes() as u64).sum()
    }
}
