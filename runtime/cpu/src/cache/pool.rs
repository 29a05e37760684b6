//! Memory for the keys and values of a model's sequences.
//!
//! New memory is pages that the system clears when they are first written to, which took a tenth of a prefill and more. So the blocks of sequences that
//! are gone, and of what they have let go, serve the next ones. Nothing else is kept: a block is new only where all of its size are in use, so
//! a model never holds more of any size than its sequences once had at the same time.
//!
//! A block comes with whatever was in it last. Nobody may read a position that was not written since, not even to multiply it by zero.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use kinfolk_decoder::{ForwardError, LoadError};

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
    pub fn take(self: &Arc<Pool>, sizes: &[usize]) -> Result<Vec<Pooled>, ForwardError> {
        let again: Vec<Option<Pooled>> = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let again = |n| Some(self.pooled(free.get_mut(n)?.pop()?));
            sizes.iter().map(again).collect()
        };
        let new = sizes.iter().zip(&again).filter(|(_, again)| again.is_none());
        self.new.expect(new.map(|(n, _)| *n).fold(0, usize::saturating_add));
        let new = |n: usize| {
            let out_of_memory = |_: LoadError| ForwardError::OutOfMemory { needed_bytes: n as u64 };
            Ok(self.pooled(self.new.take(n).map_err(out_of_memory)?))
        };
        let or_new = |(again, n): (Option<Pooled>, &usize)| again.map_or_else(|| new(*n), Ok);
        let mut all: Vec<Pooled> = again.into_iter().zip(sizes).map(or_new).collect::<Result<_, ForwardError>>()?;
        if cfg!(debug_assertions) {
            // So that tests show who reads what he has not written.
            all.iter_mut().for_each(|pooled| pooled.floats_mut().fill(f32::NAN));
        }
        Ok(all)
    }

    fn pooled(self: &Arc<Pool>, bytes: Bytes) -> Pooled {
        Pooled { bytes, pool: Arc::clone(self) }
    }
}

impl Pooled {
    pub fn floats(&self) -> &[f32] {
        self.bytes.floats()
    }

    /// As [`floats`](Self::floats), some of them.
    pub fn some(&self, range: Range<usize>) -> &[f32] {
        self.bytes.some_floats(range)
    }

    /// As [`some`](Self::some), to write to while others are used.
    ///
    /// # Safety
    /// Nothing else may use these until the result is gone, which includes all that borrows the whole.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for it")]
    pub unsafe fn some_mut(&self, range: Range<usize>) -> &mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.bytes.some_floats_mut(range) }
    }

    /// Where number `i` is, for those who ask for memory that others may write to.
    pub fn address(&self, i: usize) -> *const f32 {
        self.bytes.address(i)
    }

    pub fn floats_mut(&mut self) -> &mut [f32] {
        self.bytes.floats_mut()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let bytes = self.bytes.take();
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(bytes.len()).or_default().push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_back_serves_again_and_nobody_elses() {
        let pool = Pool::new();
        let addresses = |all: &[Pooled]| all.iter().map(|p| p.floats().as_ptr().addr()).collect::<Vec<_>>();
        let held = pool.take(&[256, 4096]).unwrap();
        let mut first = pool.take(&[256, 256, 4096]).unwrap();
        let before = addresses(&first);
        assert!(addresses(&held).iter().all(|held| !before.contains(held)));
        first.pop();
        drop(first);
        let second = pool.take(&[4096, 256, 512, 256, 256]).unwrap();
        let after = addresses(&second);
        assert!(second.iter().map(|p| p.floats().len() * 4).eq([4096, 256, 512, 256, 256]));
        let again: Vec<_> = after.iter().filter(|at| before.contains(at)).collect();
        assert_eq!(again, [&before[2], &before[1], &before[0]], "the large one and two small ones");
        assert!(addresses(&held).iter().all(|held| !after.contains(held)));
    }

    #[test]
    fn what_was_taken_before_there_was_not_enough_goes_back() {
        let pool = Pool::new();
        let first = pool.take(&[64]).unwrap();
        let address = first[0].floats().as_ptr();
        drop(first);
        assert!(pool.take(&[64, usize::MAX]).is_err());
        assert_eq!(pool.take(&[64]).unwrap()[0].floats().as_ptr(), address);
    }
}
