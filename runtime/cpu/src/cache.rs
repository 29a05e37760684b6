//! Keys and values of one sequence.

use std::any::Any;

use kinfolk_decoder::{Cache, ForwardError};

/// State of one sequence: per layer the keys and values of the tokens that can still be seen.
#[derive(Clone, Debug)]
pub(crate) struct CpuCache {
    /// Which model it belongs to.
    pub model: u64,
    pub layers: Vec<LayerCache>,
    /// Every token, so that a sequence can be computed anew where its cached keys no longer hold.
    pub tokens: Vec<u32>,
    /// Length of the sequence that the keys were rotated for, at least that of `tokens`. Going back does not turn keys back.
    pub rotated_for: usize,
}

/// Keys and values of one layer, `[positions, width]` each, from position `first` on.
#[derive(Clone, Debug)]
pub(crate) struct LayerCache {
    width: usize,
    /// Most keys a query sees; older ones are let go.
    window: Option<usize>,
    first: usize,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// A cache that grows takes this fraction of what it holds as room to spare.
pub(crate) const SPARE: usize = 8;

impl LayerCache {
    pub fn new(width: usize, window: Option<usize>) -> LayerCache {
        LayerCache { width, window, first: 0, k: Vec::new(), v: Vec::new() }
    }

    /// Makes room for `n` more positions, so that [`append`](Self::append) cannot fail.
    pub fn reserve(&mut self, n: usize) -> Result<(), ForwardError> {
        for rows in [&mut self.k, &mut self.v] {
            let needed = n * self.width;
            if rows.capacity() - rows.len() < needed {
                // Not twice as much, as a vector would: keys and values are most of what a server's sequences take.
                let room = needed.max(rows.len() / SPARE);
                let failed = |_| ForwardError::OutOfMemory { needed_bytes: 2 * 4 * room as u64 };
                rows.try_reserve_exact(room).map_err(failed)?;
            }
        }
        Ok(())
    }

    pub fn append(&mut self, k: &[f32], v: &[f32]) {
        self.k.extend_from_slice(k);
        self.v.extend_from_slice(v);
    }

    /// The key and value of position `p`, which must not be forgotten.
    pub fn k(&self, p: usize) -> &[f32] {
        let at = (p - self.first) * self.width;
        &self.k[at..at + self.width]
    }

    pub fn v(&self, p: usize) -> &[f32] {
        let at = (p - self.first) * self.width;
        &self.v[at..at + self.width]
    }

    /// Lets go of what no later query sees. Waits until as much again as the window has piled up, so that moving the rest costs a
    /// constant per token.
    pub fn forget(&mut self) {
        let Some(window) = self.window else { return };
        let held = self.k.len() / self.width;
        if held / 2 >= window {
            let gone = held - window;
            self.k.drain(..gone * self.width);
            self.v.drain(..gone * self.width);
            self.first += gone;
        }
    }

    /// Whether the first `n` positions are enough for the query at `n`.
    fn can_go_back_to(&self, n: usize) -> bool {
        self.first == 0 || self.window.is_some_and(|window| self.first.saturating_add(window) <= n + 1)
    }

    /// A copy of the first `n` positions, to which it must be able to go back.
    fn fork(&self, n: usize) -> LayerCache {
        let kept = n.saturating_sub(self.first) * self.width;
        let first = if n < self.first { 0 } else { self.first };
        LayerCache { first, k: self.k[..kept].to_vec(), v: self.v[..kept].to_vec(), ..*self }
    }

    pub fn truncate(&mut self, n: usize) {
        let kept = n.saturating_sub(self.first) * self.width;
        self.k.truncate(kept);
        self.v.truncate(kept);
        if n < self.first {
            self.first = 0;
        }
    }
}

impl CpuCache {
    /// The length nearest to `n` that the sequence can go back to.
    fn reachable(&self, n: usize) -> usize {
        match n {
            n if n >= self.tokens.len() => self.tokens.len(),
            n if self.layers.iter().all(|layer| layer.can_go_back_to(n)) => n,
            _ => 0,
        }
    }

    /// Drops whatever lies beyond the tokens on record: what an unfinished forward has left.
    pub fn roll_back(&mut self) {
        let n = self.tokens.len();
        self.layers.iter_mut().for_each(|layer| layer.truncate(n));
    }
}

impl Cache for CpuCache {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn truncate(&mut self, n: usize) -> usize {
        let n = self.reachable(n);
        self.tokens.truncate(n);
        self.layers.iter_mut().for_each(|layer| layer.truncate(n));
        n
    }

    fn fork(&self, n: usize) -> Box<dyn Cache> {
        let n = self.reachable(n);
        let tokens = self.tokens[..n].to_vec();
        let layers = self.layers.iter().map(|layer| layer.fork(n)).collect();
        Box::new(CpuCache { model: self.model, layers, tokens, rotated_for: self.rotated_for })
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() + 64);
        out.extend_from_slice(SNAPSHOT_MAGIC);
        put(&mut out, self.tokens.len());
        put(&mut out, self.layers.len());
        put(&mut out, self.rotated_for);
        self.tokens.iter().for_each(|t| out.extend_from_slice(&t.to_le_bytes()));
        for layer in &self.layers {
            put(&mut out, layer.width);
            put(&mut out, layer.first);
            layer.k.iter().chain(&layer.v).for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }
        out
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        let mut rest = snapshot
            .strip_prefix(SNAPSHOT_MAGIC)
            .ok_or("expected a snapshot of the cpu executor, found something else")?;
        let n_tokens = take(&mut rest)?;
        let n_layers = take(&mut rest)?;
        let rotated_for = take(&mut rest)?;
        if rotated_for < n_tokens {
            return Err(format!("expected keys of a sequence of at least {n_tokens} tokens, found {rotated_for}"));
        }
        if n_layers != self.layers.len() {
            return Err(format!("expected {} layers, found {n_layers}", self.layers.len()));
        }
        let tokens = take_words(&mut rest, n_tokens)?.map(u32::from_le_bytes).collect();
        let mut layers = Vec::with_capacity(n_layers);
        for own in &self.layers {
            let (width, first) = (take(&mut rest)?, take(&mut rest)?);
            if width != own.width {
                return Err(format!("expected keys of {} elements, found {width}", own.width));
            }
            let n = n_tokens.checked_sub(first).and_then(|n| n.checked_mul(width)).ok_or("the snapshot is damaged")?;
            let layer = LayerCache {
                first,
                k: take_words(&mut rest, n)?.map(f32::from_le_bytes).collect(),
                v: take_words(&mut rest, n)?.map(f32::from_le_bytes).collect(),
                ..*own
            };
            if !layer.can_go_back_to(n_tokens) {
                return Err(format!(
                    "expected keys of every position that can still be seen, found those from {first} on"
                ));
            }
            layers.push(layer);
        }
        if !rest.is_empty() {
            return Err(format!("expected the end of the snapshot, found {} more bytes", rest.len()));
        }
        (self.tokens, self.layers, self.rotated_for) = (tokens, layers, rotated_for);
        Ok(())
    }

    fn bytes(&self) -> usize {
        let floats: usize = self.layers.iter().map(|l| l.k.capacity() + l.v.capacity()).sum();
        4 * (floats + self.tokens.capacity())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Names the layout; a change of it changes the number.
const SNAPSHOT_MAGIC: &[u8] = b"kinfolk cpu cache 2\n";

fn put(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&(n as u64).to_le_bytes());
}

fn take(rest: &mut &[u8]) -> Result<usize, String> {
    let (head, tail) = rest.split_first_chunk::<8>().ok_or("the snapshot is cut short")?;
    *rest = tail;
    usize::try_from(u64::from_le_bytes(*head)).map_err(|_| "the snapshot is damaged".to_owned())
}

/// `n` little-endian words of four bytes.
fn take_words<'a>(rest: &mut &'a [u8], n: usize) -> Result<impl Iterator<Item = [u8; 4]> + use<'a>, String> {
    let len = n.checked_mul(4).filter(|len| *len <= rest.len()).ok_or("the snapshot is cut short")?;
    let (head, tail) = rest.split_at(len);
    *rest = tail;
    Ok(head.as_chunks::<4>().0.iter().copied())
}
