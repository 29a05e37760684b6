//! Memory for the keys and values of a model's sequences.
//!
//! New memory is pages that the system clears when they are first written to, which took a tenth of a prefill and more. So the blocks of sequences that
//! are gone, and of what they have let go, serve the next ones. Nothing else is kept: a block is new only where all of its size are in use, so
//! a model never holds more of any size than its sequences once had at the same time.
//!
//! A block comes with whatever was in it last. Nobody may read a position that was not written since, not even to multiply it by zero.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use kinfolk_decoder::LoadError;

use crate::arena::{Arena, Bytes};

/// Hands out memory and takes it back.
#[derive(Debug)]
pub(crate) struct Pool {
    new: Arena,
    /// By their size.
    free: Mutex<BTreeMap<usize, Vec<Bytes>>>,
}

/// Memory that goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Pooled {
    bytes: Bytes,
    pool: Arc<Pool>,
}

impl Pool {
    pub fn new() -> Arc<Pool> {
        Arc::new(Pool { new: Arena::new(0), free: Mutex::default() })
    }

    /// As many bytes as each of `sizes` says, whatever is in them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn take(self: &Arc<Pool>, sizes: &[usize]) -> Result<Vec<Pooled>, LoadError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let again: Vec<_> = sizes.iter().map(|n| free.get_mut(n).and_then(Vec::pop)).collect();
        drop(free);
        let new = sizes.iter().zip(&again).filter(|(_, again)| again.is_none());
        self.new.expect(new.map(|(n, _)| *n).fold(0, usize::saturating_add));
        let pooled = |(again, n): (Option<Bytes>, &usize)| {
            let bytes = again.map_or_else(|| self.new.take(*n), Ok)?;
            Ok(Pooled { bytes, pool: Arc::clone(self) })
        };
        again.into_iter().zip(sizes).map(pooled).collect()
    }
}

impl Pooled {
    pub fn floats(&self) -> &[f32] {
        self.bytes.floats()
    }

    pub fn floats_mut(&mut self) -> &mut [f32] {
        self.bytes.floats_mut()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut bytes = self.bytes.take();
        if cfg!(debug_assertions) {
            // So that tests show who reads what he has not written.
            bytes.floats_mut().fill(f32::NAN);
        }
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(bytes.len()).or_default().push(bytes);
    }
}
