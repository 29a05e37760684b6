//! Where there is no matrix unit.

use super::segment::Scores;
use crate::{cache::LayerCache, columns::Cell};

#[expect(dead_code, reason = "nobody looks at them")]
pub(super) struct Keys<'a> {
    pub scores: Scores,
    pub cache: &'a LayerCache,
    pub head: usize,
    pub window: usize,
}

pub(super) struct Workspace;

pub(super) fn is_available() -> bool {
    false
}

pub(super) fn n_tokens_of_cell(_: usize, _: usize, _: usize) -> usize {
    1
}

pub(super) fn n_bytes(_: usize, _: usize, _: usize, _: usize) -> u64 {
    0
}

impl Workspace {
    pub const fn new() -> Workspace {
        Workspace
    }

    pub fn attend(&mut self, _: &Keys<'_>, _: usize, _: &mut Cell<'_>) {
        unreachable!("it is not available")
    }
}
