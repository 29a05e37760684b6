//! Keys and values of 64 positions.
//!
//! ```text
//! for each head   keys    4 groups of 16 positions: [group][element / 16], and then
//!                           [element % 16][position % 16]   where the group is closed, which is when its last position comes
//!                           [position % 16][element % 16]   before
//!                 values  [position][element]
//! ```
//! Both have as many elements as are a multiple of 16, the last of them zeros. A query's products with 16 keys, and its mixture of 16 elements of values,
//! are vectors; and a head's keys and values are one run of memory.
//!
//! Until it is closed a group takes a few lines of the processor's cache for each key, where one number in each of hundreds of lines would be slower to
//! write than all of the group is to turn.

use std::ops::Range;

use super::{
    pool::Pooled,
    tile::{Tile, turn},
};
use crate::level::Level;

/// Positions of a block.
pub(crate) const BLOCK: usize = 64;
/// Numbers handled as one, and positions of a group.
pub(crate) const LANES: usize = 16;

/// What a layer keeps of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvShape {
    pub n_heads: usize,
    pub head_dim: usize,
}

impl KvShape {
    /// Elements of a head's key or value with what fills it up.
    pub fn width(self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements of a block. Saturating, as sizes are a config's.
    pub fn block_len(self) -> usize {
        let width = self.head_dim.checked_next_multiple_of(LANES).unwrap_or(usize::MAX);
        width.saturating_mul(2).saturating_mul(self.n_heads).saturating_mul(BLOCK)
    }

    fn keys(self, head: usize) -> Range<usize> {
        let start = 2 * head * BLOCK * self.width();
        start..start + BLOCK * self.width()
    }

    fn values(self, head: usize) -> Range<usize> {
        let start = self.keys(head).end;
        start..start + BLOCK * self.width()
    }
}

/// Keys and values of [`BLOCK`] positions.
#[derive(Debug)]
pub(crate) struct Block(Pooled);

impl Block {
    /// In memory of the shape's [`block_len`](KvShape::block_len).
    pub(super) fn new(memory: Pooled) -> Block {
        Block(memory)
    }

    /// Makes this a copy.
    pub(super) fn copy_from(&mut self, other: &Block) {
        self.0.floats_mut().copy_from_slice(other.0.floats());
    }

    /// A head's keys, `[BLOCK / 16, width]` vectors of 16 positions where groups are closed.
    pub fn keys(&self, shape: KvShape, head: usize) -> &[[f32; LANES]] {
        self.0.some(shape.keys(head)).as_chunks().0
    }

    /// A head's values, `[BLOCK, width / 16]` vectors of 16 elements.
    pub fn values(&self, shape: KvShape, head: usize) -> &[[f32; LANES]] {
        self.0.some(shape.values(head)).as_chunks().0
    }

    /// Where a head's keys and values begin, for those who ask for memory that others may write to.
    pub fn addresses(&self, shape: KvShape, head: usize) -> [*const [f32; LANES]; 2] {
        [shape.keys(head), shape.values(head)].map(|range| self.0.address(range.start).cast())
    }

    /// Asks for the memory of a head's key at `place`, whose group is open, as `ask` does for a line.
    pub fn ask_for_key(&self, shape: KvShape, head: usize, place: usize, ask: impl Fn(*const [f32; LANES])) {
        let [keys, _] = self.addresses(shape, head);
        let group = keys.wrapping_add(place / LANES * shape.width());
        (0..shape.width()).step_by(LANES).for_each(|tile| ask(group.wrapping_add(tile + place % LANES)));
    }

    /// As [`ask_for_key`](Self::ask_for_key), of a head's value.
    pub fn ask_for_value(&self, shape: KvShape, head: usize, place: usize, ask: impl Fn(*const [f32; LANES])) {
        let [_, values] = self.addresses(shape, head);
        let n_vectors = shape.width() / LANES;
        (place * n_vectors..(place + 1) * n_vectors).for_each(|vector| ask(values.wrapping_add(vector)));
    }

    /// A head's keys of a group.
    pub fn group(&self, shape: KvShape, head: usize, group: usize) -> &[Tile] {
        let n_tiles = shape.width() / LANES;
        &self.keys(shape, head).as_chunks().0[group * n_tiles..][..n_tiles]
    }

    /// Puts keys and values of successive positions, `[positions, n_heads, head_dim]` each, at `places`, which follow what is there. Closes groups.
    pub fn write(&mut self, level: Level, shape: KvShape, places: Range<usize>, k: &[f32], v: &[f32]) {
        let KvShape { n_heads, head_dim } = shape;
        for head in 0..n_heads {
            let rows = k.chunks_exact(n_heads * head_dim).zip(v.chunks_exact(n_heads * head_dim));
            let rows = rows.map(|(k, v)| [k, v].map(|row| &row[head * head_dim..][..head_dim]));
            // SAFETY: the block is borrowed for writing.
            unsafe { self.write_head(level, shape, head, places.clone(), rows) };
        }
    }

    /// As [`write`](Self::write), a key and a value of a head for each place.
    ///
    /// # Safety
    /// Nothing else may use this head's keys and values meanwhile, nor the whole block.
    pub unsafe fn write_head<'a>(
        &self,
        level: Level,
        shape: KvShape,
        head: usize,
        places: Range<usize>,
        rows: impl Iterator<Item = [&'a [f32]; 2]>,
    ) {
        let width = shape.width();
        // SAFETY: the caller's promise.
        let [keys, values] = [shape.keys(head), shape.values(head)].map(|range| unsafe { self.0.some_mut(range) });
        for (place, [k, v]) in places.zip(rows) {
            let group = group_mut(keys, width, place / LANES);
            let (vectors, rest) = k.as_chunks();
            for (tile, vector) in group.iter_mut().zip(vectors) {
                tile[place % LANES] = *vector;
            }
            if !rest.is_empty() {
                group[vectors.len()][place % LANES] = filled_up(rest);
            }
            if (place + 1).is_multiple_of(LANES) {
                turn(level, group);
            }
            let value = &mut values[place * width..][..width];
            value[..v.len()].copy_from_slice(v);
            value[v.len()..].fill(0.0);
        }
    }

    /// Opens a group that was closed.
    pub(super) fn open(&mut self, shape: KvShape, group: usize) {
        for head in 0..shape.n_heads {
            let keys = &mut self.0.floats_mut()[shape.keys(head)];
            turn(Level::current(), group_mut(keys, shape.width(), group));
        }
    }

    /// Appends keys and values of all heads at `place`, whose group is open or not.
    pub(super) fn read(&self, shape: KvShape, place: usize, is_open: bool, k: &mut Vec<f32>, v: &mut Vec<f32>) {
        let KvShape { n_heads, head_dim } = shape;
        for head in 0..n_heads {
            let tiles = self.group(shape, head, place / LANES);
            let (group, element) = (tiles.as_flattened(), |i: usize| (i - i % LANES, i % LANES));
            k.extend((0..head_dim).map(|i| match element(i) {
                (tile, i) if is_open => group[tile + place % LANES][i],
                (tile, i) => group[tile + i][place % LANES],
            }));
            v.extend_from_slice(&self.0.some(shape.values(head))[place * shape.width()..][..head_dim]);
        }
    }
}

/// A group of a head's keys.
fn group_mut(keys: &mut [f32], width: usize, group: usize) -> &mut [Tile] {
    let vectors = keys[group * LANES * width..][..LANES * width].as_chunks_mut().0;
    vectors.as_chunks_mut().0
}

fn filled_up(rest: &[f32]) -> [f32; LANES] {
    let mut vector = [0.0; LANES];
    vector[..rest.len()].copy_from_slice(rest);
    vector
}
