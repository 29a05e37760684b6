//! Keys and values of requests that have ended, for those that begin alike.

use std::collections::VecDeque;

use kinfolk_decoder::Cache;

use crate::runner::common_prefix;

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

impl Prefix {
    /// Whether its first `n` tokens are so much of it that the rest is not worth keeping.
    fn is_mostly(&self, n: usize) -> bool {
        n * 2 >= self.tokens.len()
    }
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

    /// Makes the one that [`take`](Self::take) would give the last to go. Returns how many bytes it would take over.
    pub fn favour(&mut self, context: &[u32]) -> u64 {
        let Some((prefix, n)) = self.remove_best(context) else { return 0 };
        let taken = if prefix.is_mostly(n) { prefix.cache.bytes() as u64 } else { 0 };
        self.kept.push_back(prefix);
        taken
    }

    /// The most of `context` that one of them holds or can go back to: itself if that is most of it, and otherwise a copy.
    pub fn take(&mut self, context: &[u32]) -> Option<Box<dyn Cache>> {
        let shared = |prefix: &Prefix| common_prefix(&prefix.tokens, context);
        let mut found: Vec<(usize, usize)> = self.kept.iter().map(shared).enumerate().filter(|(_, n)| *n > 0).collect();
        found.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        for (at, n) in found {
            let prefix = self.kept.get(at)?;
            if prefix.tokens.len() == n {
                return self.kept.remove(at).map(|prefix| prefix.cache);
            }
            // A copy first: what cannot go back stays whole for the conversation it is of.
            let cache = prefix.cache.fork(n);
            if cache.len() == n {
                let prefix = self.kept.remove(at)?;
                if !prefix.is_mostly(n) {
                    self.kept.push_back(prefix);
                }
                return Some(cache);
            }
        }
        None
    }

    /// The one that holds the most of `context`, and how much that is.
    fn remove_best(&mut self, context: &[u32]) -> Option<(Prefix, usize)> {
        let shared = |prefix: &Prefix| common_prefix(&prefix.tokens, context);
        let (at, n) = self.kept.iter().map(shared).enumerate().max_by_key(|(_, n)| *n)?;
        Some((self.kept.remove(at)?, n))
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
