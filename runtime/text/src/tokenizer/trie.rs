//! A trie of byte strings: which tokens does a text start with?

use std::collections::VecDeque;

use crate::{Result, TextError};

/// The longest token that is looked for, in bytes. It bounds the work per byte of text; published vocabularies stay below 1024.
pub(super) const MAX_TOKEN_BYTES: usize = 1 << 12;

/// Tokens by their bytes. Children of a node lie side by side, ascending.
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// Per node, the byte that leads to it.
    labels: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Node {
    /// Where its children start; they end where those of the next node start.
    children: u32,
    id: Option<u32>,
}

impl std::fmt::Debug for Trie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trie").field("n_nodes", &self.nodes.len()).finish()
    }
}

impl Trie {
    /// Collects tokens. Of two with the same bytes the one with the higher id stays.
    ///
    /// # Errors
    /// `Vocabulary` if a token is longer than [`MAX_TOKEN_BYTES`], or all of them together are out of all proportion.
    pub(super) fn new<B: AsRef<[u8]>>(tokens: impl IntoIterator<Item = (B, u32)>) -> Result<Trie> {
        let mut tokens: Vec<(B, u32)> = tokens.into_iter().filter(|(bytes, _)| !bytes.as_ref().is_empty()).collect();
        let too_long = |found: usize| {
            let reason = format!("expected tokens of at most {MAX_TOKEN_BYTES} bytes, found one of {found}");
            TextError::vocabulary("tokenizer.ggml.tokens", reason)
        };
        if let Some((bytes, _)) = tokens.iter().find(|(bytes, _)| bytes.as_ref().len() > MAX_TOKEN_BYTES) {
            return Err(too_long(bytes.as_ref().len()));
        }
        tokens.sort_by(|(a, a_id), (b, b_id)| a.as_ref().cmp(b.as_ref()).then(b_id.cmp(a_id)));
        tokens.dedup_by(|(a, _), (b, _)| a.as_ref() == b.as_ref());

        let mut trie = Trie { nodes: vec![Node { children: 0, id: None }], labels: vec![0] };
        // Nodes are laid out breadth first, so that a node's children are added together.
        let mut open = VecDeque::from([(0usize, tokens.as_slice(), 0usize)]);
        while let Some((node, mut below, depth)) = open.pop_front() {
            trie.nodes[node].children = u32::try_from(trie.nodes.len()).map_err(|_| too_long(usize::MAX))?;
            while let Some((first, _)) = below.first() {
                let label = first.as_ref()[depth];
                let (group, rest) = below.split_at(below.partition_point(|(bytes, _)| bytes.as_ref()[depth] == label));
                // The shortest comes first, and only it can end here.
                let ends = group.first().filter(|(bytes, _)| bytes.as_ref().len() == depth + 1);
                open.push_back((trie.nodes.len(), &group[usize::from(ends.is_some())..], depth + 1));
                trie.nodes.push(Node { children: 0, id: ends.map(|&(_, id)| id) });
                trie.labels.push(label);
                below = rest;
            }
        }
        Ok(trie)
    }

    /// The tokens that a text starts with, shortest first: lengths in bytes, and ids.
    pub(super) fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = 0;
        text.iter()
            .map_while(move |&byte| {
                node = self.child(node, byte)?;
                Some(self.nodes[node].id)
            })
            .enumerate()
            .filter_map(|(at, id)| Some((at + 1, id?)))
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        let start = self.nodes[node].children as usize;
        let end = self.nodes.get(node + 1).map_or(self.nodes.len(), |next| next.children as usize);
        let nth = self.labels.get(start..end)?.binary_search(&byte).ok()?;
        Some(start + nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(trie: &Trie, text: &str, expected: &[(usize, u32)]) {
        assert_eq!(trie.prefixes(text.as_bytes()).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn every_token_a_text_starts_with_is_found() {
        let trie = Trie::new([("a", 0), ("abc", 1), ("b", 2), ("", 3), ("é", 4), ("ab", 5), ("a", 6)]).unwrap();
        check(&trie, "abcd", &[(1, 6), (2, 5), (3, 1)]);
        check(&trie, "abd", &[(1, 6), (2, 5)]);
        check(&trie, "éa", &[(2, 4)]);
        check(&trie, "bb", &[(1, 2)]);
        check(&trie, "cab", &[]);
        check(&trie, "", &[]);
        check(&Trie::new::<&str>([]).unwrap(), "a", &[]);
    }

    #[test]
    fn a_token_out_of_all_proportion_is_an_error() {
        assert!(Trie::new([("a".repeat(MAX_TOKEN_BYTES), 0)]).is_ok());
        assert!(Trie::new([("a".repeat(MAX_TOKEN_BYTES + 1), 0)]).is_err());
    }
}
