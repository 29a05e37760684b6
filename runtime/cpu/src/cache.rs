//! Keys and values of one sequence.
//!
//! ```text
//! layer: blocks of 64 positions, the first of which is a multiple of 64                          (block)
//! block: for each head   keys in groups of 16, turned once there are 16     values               (tile)
//! ```
//! Elements are f32: f16 moves the logits of the fixtures by up to 0.006 and of quantised models by more than their activations of 16 bits do.
//! Blocks behind a window are used again for what comes.
//!
//! A step touches a few lines of each layer's blocks, and where these are in pages of 4 KiB, finding out where the pages are takes longer than
//! the rest; so blocks share large ones, and are used again by the model's other sequences ([`Pool`]).

mod block;
mod pool;
mod tile;

use std::{any::Any, collections::VecDeque, ops::Range, sync::Arc};

use kinfolk_decoder::{Cache, ForwardError};

pub(crate) use self::block::{BLOCK, Block, KvShape, LANES};
use self::tile::turn;
pub(crate) use self::{pool::Pool, tile::Tile};
use crate::level::Level;

/// State of one sequence: per layer the keys and values of the tokens that can still be seen.
#[derive(Debug)]
pub(crate) struct CpuCache {
    /// Which model it belongs to.
    pub model: u64,
    pub layers: Vec<LayerCache>,
    /// Every token, so that a sequence can be computed anew where its cached keys no longer hold.
    pub tokens: Vec<u32>,
    /// Length of the sequence that the keys were rotated for, at least that of `tokens`. Going back does not turn keys back.
    pub rotated_for: usize,
    /// Where the layers' blocks are from.
    pool: Arc<Pool>,
}

/// Keys and values of one layer.
#[derive(Debug)]
pub(crate) struct LayerCache {
    shape: KvShape,
    /// Most keys a query sees; older ones are let go.
    window: Option<usize>,
    /// Position of the first block, a multiple of [`BLOCK`].
    first: usize,
    /// Positions of the sequence, those let go included.
    len: usize,
    /// From `first` on, as many as the positions take and perhaps some more.
    blocks: VecDeque<Block>,
}

impl LayerCache {
    pub fn new(shape: KvShape, window: Option<usize>) -> LayerCache {
        LayerCache { shape, window, first: 0, len: 0, blocks: VecDeque::new() }
    }

    /// As [`CpuCache::reserve`], for this layer alone.
    #[cfg(test)]
    pub fn reserve(&mut self, n: usize) -> Result<(), ForwardError> {
        let end = self.len + n;
        reserve(std::slice::from_mut(self), &Pool::new(), end)
    }

    /// Blocks that a sequence of `len` takes and that are not there yet.
    fn missing_blocks(&self, len: usize) -> usize {
        len.saturating_sub(self.first).div_ceil(BLOCK).saturating_sub(self.blocks.len())
    }

    /// Appends `n` positions, for which there is room, and which are to be written to their blocks.
    pub fn extend(&mut self, n: usize) {
        self.len += n;
    }

    /// As [`extend`](Self::extend), and returns the blocks they are in, each with its positions' places within it.
    pub fn grow(&mut self, n: usize) -> impl Iterator<Item = (&mut Block, Range<usize>)> {
        let new = self.len - self.first..self.len - self.first + n;
        self.extend(n);
        let in_block = move |i: usize| new.start.max(i * BLOCK) - i * BLOCK..new.end.min((i + 1) * BLOCK) - i * BLOCK;
        let blocks = new_blocks(&new);
        self.blocks.range_mut(blocks.clone()).zip(blocks).map(move |(block, i)| (block, in_block(i)))
    }

    /// The block that position `p` is in, which must not be forgotten.
    pub fn block(&self, p: usize) -> &Block {
        &self.blocks[(p - self.first) / BLOCK]
    }

    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Positions of the sequence, those that are forgotten included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where the last group of positions begins that is not closed yet, if there is one.
    pub fn open_group(&self) -> Option<usize> {
        Some(self.len - self.len % LANES).filter(|first| *first < self.len)
    }

    /// Puts a head's keys of the group that is not closed, if there is one, into `tiles` as if it were, zeros at positions that have not come.
    pub fn close(&self, level: Level, head: usize, tiles: &mut Vec<Tile>) {
        let Some(first) = self.open_group() else { return };
        tiles.clear();
        tiles.resize(self.shape.width() / LANES, [[0.0; LANES]; LANES]);
        let group = self.block(first).group(self.shape, head, first % BLOCK / LANES);
        let n = self.len - first;
        tiles.iter_mut().zip(group).for_each(|(to, from)| to[..n].copy_from_slice(&from[..n]));
        turn(level, tiles);
    }

    /// Lets go of blocks that no later query sees into, to be used again.
    pub fn forget(&mut self) {
        let Some(window) = self.window else { return };
        // The query at the last position may come again.
        while window.saturating_add(self.first + BLOCK) <= self.len {
            self.blocks.rotate_left(1);
            self.first += BLOCK;
        }
        self.trim();
    }

    /// Keeps no more room than a block.
    fn trim(&mut self) {
        self.blocks.truncate((self.len - self.first).div_ceil(BLOCK) + 1);
    }

    /// Whether the first `n` positions are enough for the query at `n`.
    fn can_go_back_to(&self, n: usize) -> bool {
        self.first == 0 || self.window.is_some_and(|window| self.first.saturating_add(window) <= n + 1)
    }

    /// The same layer with nothing in it, for a copy of the first `n` positions, to which it must be able to go back.
    fn without_blocks(&self, n: usize) -> LayerCache {
        let first = if n < self.first { 0 } else { self.first };
        LayerCache { first, len: first, blocks: VecDeque::new(), ..*self }
    }

    /// Makes this the copy, which there must be room for.
    fn copy_from(&mut self, other: &LayerCache, n: usize) {
        self.len = other.len;
        for (own, block) in self.blocks.iter_mut().zip(&other.blocks) {
            own.copy_from(block);
        }
        self.truncate(n);
    }

    pub fn truncate(&mut self, n: usize) {
        let before = self.open_group();
        self.len = self.len.min(n);
        if n < self.first {
            self.first = 0;
        }
        if let Some(now) = self.open_group()
            && before != Some(now)
        {
            let (shape, block) = (self.shape, (now - self.first) / BLOCK);
            self.blocks[block].open(shape, now % BLOCK / LANES);
        }
        self.trim();
    }
}

/// The blocks that a range of positions, counted from the first block's, lies in.
fn new_blocks(positions: &Range<usize>) -> Range<usize> {
    positions.start / BLOCK..positions.end.div_ceil(BLOCK)
}

impl CpuCache {
    /// Of a model whose layers are like these and whose sequences share `pool`.
    pub fn new(model: u64, pool: Arc<Pool>, layers: Vec<LayerCache>) -> CpuCache {
        CpuCache { model, layers, tokens: Vec::new(), rotated_for: 0, pool }
    }

    /// Makes room for `n` more positions in every layer, so that [`LayerCache::grow`] cannot fail.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&mut self, n: usize) -> Result<(), ForwardError> {
        reserve(&mut self.layers, &self.pool, self.tokens.len().saturating_add(n))
    }

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

/// Makes room for a sequence of `len` in every layer, position by position and not layer by layer, so that neighbours in memory are of one time.
fn reserve(layers: &mut [LayerCache], pool: &Arc<Pool>, len: usize) -> Result<(), ForwardError> {
    let n_most = layers.iter().map(|layer| layer.missing_blocks(len)).max().unwrap_or(0);
    let at = |n| layers.iter().enumerate().filter(move |(_, layer)| layer.missing_blocks(len) > n);
    let (owners, sizes): (Vec<_>, Vec<_>) =
        (0..n_most).flat_map(at).map(|(i, layer)| (i, layer.shape.block_len().saturating_mul(4))).unzip();
    for (owner, block) in owners.into_iter().zip(pool.take(&sizes)?) {
        layers[owner].blocks.push_back(Block::new(block));
    }
    Ok(())
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
        let empty = |n| {
            let layers = self.layers.iter().map(|layer| layer.without_blocks(n)).collect();
            CpuCache::new(self.model, Arc::clone(&self.pool), layers)
        };
        let mut fork = empty(n);
        if fork.reserve(n).is_err() {
            // What cannot be copied is computed anew.
            return Box::new(empty(0));
        }
        fork.layers.iter_mut().zip(&self.layers).for_each(|(fork, layer)| fork.copy_from(layer, n));
        (fork.tokens, fork.rotated_for) = (self.tokens[..n].to_vec(), self.rotated_for);
        Box::new(fork)
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() + 64);
        out.extend_from_slice(SNAPSHOT_MAGIC);
        put(&mut out, self.tokens.len());
        put(&mut out, self.layers.len());
        put(&mut out, self.rotated_for);
        self.tokens.iter().for_each(|t| out.extend_from_slice(&t.to_le_bytes()));
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for layer in &self.layers {
            let shape = layer.shape;
            put(&mut out, shape.n_heads * shape.head_dim);
            put(&mut out, layer.first);
            for p in layer.first..layer.len {
                k.clear();
                v.clear();
                let is_open = layer.open_group().is_some_and(|first| first <= p);
                layer.block(p).read(shape, p % BLOCK, is_open, &mut k, &mut v);
                k.iter().chain(&v).for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
            }
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
            let shape = own.shape;
            let expected = shape.n_heads * shape.head_dim;
            if width != expected {
                return Err(format!("expected keys of {expected} elements, found {width}"));
            }
            let n = n_tokens.checked_sub(first).ok_or("the snapshot is damaged")?;
            let n_bytes =
                n.checked_mul(2 * 4 * width).filter(|n| *n <= rest.len()).ok_or("the snapshot is cut short")?;
            let (rows, after) = rest.split_at(n_bytes);
            rest = after;
            let mut layer = LayerCache { first, len: first, blocks: VecDeque::new(), ..*own };
            if !layer.can_go_back_to(n_tokens) {
                return Err(format!(
                    "expected keys of every position that can still be seen, found those from {first} on"
                ));
            }
            if first % BLOCK != 0 {
                return Err(format!("expected a first position that is a multiple of {BLOCK}, found {first}"));
            }
            reserve(std::slice::from_mut(&mut layer), &self.pool, n_tokens).map_err(|error| error.to_string())?;
            let mut rows = rows.chunks_exact(2 * 4 * width);
            let mut row = vec![0.0; 2 * width];
            for (block, places) in layer.grow(n) {
                for (at, bytes) in places.zip(&mut rows) {
                    let values = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x));
                    row.iter_mut().zip(values).for_each(|(x, value)| *x = value);
                    let (k, v) = row.split_at(width);
                    block.write(Level::current(), shape, at..at + 1, k, v);
                }
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
        let elements: usize = self.layers.iter().map(|l| l.blocks.len() * l.shape.block_len()).sum();
        4 * (elements + self.tokens.capacity())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Names the layout; a change of it changes the number.
const SNAPSHOT_MAGIC: &[u8] = b"kinfolk cpu cache 3\n";

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

#[cfg(test)]
mod tests {
    use super::*;

    fn value(i: usize) -> f32 {
        ((i * 7919) % 65536) as f32
    }

    /// Keys and values of one position, the `n`-th that was ever written.
    fn rows(shape: KvShape, n: usize) -> (Vec<f32>, Vec<f32>) {
        let len = shape.n_heads * shape.head_dim;
        ((0..len).map(|i| value(n * len + i)).collect(), (0..len).map(|i| -value(n * len + i)).collect())
    }

    /// That every position has its own, that groups are closed which are full, and that the last one can be seen as if it were.
    #[track_caller]
    fn check(layer: &LayerCache, written: &[usize]) {
        let shape @ KvShape { n_heads, head_dim } = layer.shape;
        let mut tiles = Vec::new();
        for (p, n) in written.iter().enumerate() {
            let (k, v) = rows(shape, *n);
            let is_open = layer.open_group().is_some_and(|first| first <= p);
            assert_eq!(is_open, p >= written.len() - written.len() % LANES, "{p} of {}", written.len());
            let (mut found_k, mut found_v) = (Vec::new(), Vec::new());
            layer.block(p).read(shape, p % BLOCK, is_open, &mut found_k, &mut found_v);
            assert!((&found_k, &found_v) == (&k, &v), "{p} of {}", written.len());
            for head in 0..n_heads {
                let mut group = layer.block(p).group(shape, head, p % BLOCK / LANES);
                if is_open {
                    layer.close(Level::current(), head, &mut tiles);
                    group = &tiles;
                }
                let of_key = group.as_flattened().iter().map(|positions| positions[p % LANES]);
                let filled_up = k[head * head_dim..][..head_dim].iter().copied().chain([0.0; LANES]);
                assert!(of_key.eq(filled_up.take(shape.width())), "{p} of {}", written.len());
                let nothing = written.len() % LANES;
                let beyond = |positions: &[f32; LANES]| positions[nothing..].iter().all(|x| *x == 0.0);
                assert!(!is_open || group.as_flattened().iter().all(beyond), "{} positions", written.len());
            }
        }
    }

    #[test]
    fn positions_are_there_however_they_came_and_whatever_was_taken_back() {
        // Positions that come, and how many are left then.
        let steps =
            [(5, 5), (11, 16), (16, 32), (1, 33), (0, 31), (0, 17), (100, 117), (0, 64), (1, 65), (0, 63), (1, 64)];
        for head_dim in [5, 16, 40, 64] {
            let shape = KvShape { n_heads: 2, head_dim };
            let mut layer = LayerCache::new(shape, None);
            let (mut written, mut n) = (Vec::new(), 0);
            for (new, left) in steps {
                layer.reserve(new).unwrap();
                for (block, places) in layer.grow(new) {
                    let of_all = (n..n + places.len()).map(|n| rows(shape, n));
                    let (k, v): (Vec<_>, Vec<_>) = of_all.unzip();
                    written.extend(n..n + places.len());
                    n += places.len();
                    block.write(Level::current(), shape, places, &k.concat(), &v.concat());
                }
                check(&layer, &written);
                let mut copy = layer.without_blocks(left);
                reserve(std::slice::from_mut(&mut copy), &Pool::new(), left).unwrap();
                copy.copy_from(&layer, left);
                layer.truncate(left);
                written.truncate(left);
                check(&layer, &written);
                check(&copy, &written);
            }
        }
    }
}
