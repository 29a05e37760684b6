//! Memory for what operations hand to one another.
//!
//! A pass over many tokens needs megabytes for each operation. From the system they would come as pages to be zeroed and mapped each time, a
//! tenth of a prefill; here a buffer goes back to the team when it is dropped and serves the next operation of its size. Large ones are in large
//! pages, which are worth another tenth.

use std::{
    fmt, mem,
    ops::{Deref, DerefMut, Range},
    sync::{Arc, Mutex, PoisonError},
};

use crate::arena::prefer_large_pages;

/// Buffers kept: more than are alive at once, of the sizes that a layer has.
const KEPT: usize = 12;

/// Buffers that nobody uses now.
#[derive(Debug)]
pub(crate) struct Buffers<T>(Arc<Mutex<Kept<T>>>);

type Kept<T> = Vec<Vec<T>>;

/// What a buffer starts at a multiple of: a line of the cache, and a vector register.
const ALIGN: usize = 64;

/// `n` elements, which go back when dropped.
pub(crate) struct Buffer<'a, T> {
    elements: Vec<T>,
    /// Where the elements start.
    first: usize,
    n: usize,
    buffers: &'a Buffers<T>,
}

/// As [`Buffer`], for whoever outlives the team.
pub(crate) struct Detached<T> {
    elements: Vec<T>,
    range: Range<usize>,
    kept: Arc<Mutex<Kept<T>>>,
}

impl<T> Default for Buffers<T> {
    fn default() -> Buffers<T> {
        Buffers(Arc::default())
    }
}

impl<T: Clone> Buffers<T> {
    /// `n` elements, of which it is not known what is in them: `empty` or what they were last used for.
    pub fn take(&self, n: usize, empty: T) -> Buffer<'_, T> {
        let with_start = n.saturating_add(ALIGN / size_of::<T>().max(1));
        let fits = |kept: &Vec<Vec<T>>| {
            // The smallest that is large enough, unless most of it would be idle.
            let range = with_start..=with_start.saturating_mul(4);
            let large_enough = kept.iter().enumerate().filter(|(_, b)| range.contains(&b.len()));
            large_enough.min_by_key(|(_, b)| b.len()).map(|(i, _)| i)
        };
        let kept = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            fits(&kept).map(|i| kept.remove(i))
        };
        let elements = kept.unwrap_or_else(|| {
            let mut elements = Vec::with_capacity(with_start);
            prefer_large_pages(elements.spare_capacity_mut());
            elements.resize(with_start, empty);
            elements
        });
        // Of a type that is not as large as a divisor of it, elements start anywhere.
        let first = elements.as_ptr().align_offset(ALIGN).min(elements.len() - n);
        Buffer { elements, first, n, buffers: self }
    }
}

impl<T> Buffer<'_, T> {
    pub fn detach(mut self) -> Detached<T> {
        let (elements, range) = (mem::take(&mut self.elements), self.first..self.first + self.n);
        Detached { elements, range, kept: Arc::clone(&self.buffers.0) }
    }
}

impl<T> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        give_back(&mut self.elements, &self.buffers.0);
    }
}

impl<T> Drop for Detached<T> {
    fn drop(&mut self) {
        give_back(&mut self.elements, &self.kept);
    }
}

fn give_back<T>(elements: &mut Vec<T>, kept: &Mutex<Kept<T>>) {
    let elements = mem::take(elements);
    if elements.is_empty() {
        // They are somebody else's by now.
        return;
    }
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == KEPT {
        // The one that was not asked for the longest.
        kept.remove(0);
    }
    kept.push(elements);
}

impl<T> AsRef<[T]> for Detached<T> {
    fn as_ref(&self) -> &[T] {
        &self.elements[self.range.clone()]
    }
}

impl<T> Deref for Buffer<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements[self.first..][..self.n]
    }
}

impl<T> DerefMut for Buffer<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements[self.first..][..self.n]
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_serves_again_where_it_fits_and_is_not_too_large() {
        let buffers = Buffers::<u32>::default();
        let address = |n| buffers.take(n, 0).as_ptr();
        let first = address(100);
        assert_eq!((address(100), address(30)), (first, first));
        assert_ne!(address(10), first);
        assert_eq!(buffers.take(50, 0).len(), 50);
        let both = (buffers.take(100, 0), buffers.take(100, 0));
        assert_ne!(both.0.as_ptr(), both.1.as_ptr());
    }

    #[test]
    fn a_detached_buffer_serves_again_once_it_is_dropped_and_outlives_its_team() {
        let buffers = Buffers::<u32>::default();
        let mut buffer = buffers.take(100, 0);
        buffer.fill(7);
        let address = buffer.as_ptr();
        let detached = buffer.detach();
        assert_ne!(buffers.take(100, 0).as_ptr(), address);
        assert_eq!((detached.as_ref(), detached.as_ref().as_ptr()), (&[7; 100][..], address));
        drop(detached);
        let (first, second) = (buffers.take(100, 0), buffers.take(100, 0));
        assert!([first.as_ptr(), second.as_ptr()].contains(&address));
        let detached = first.detach();
        drop(second);
        drop(buffers);
        assert_eq!(detached.as_ref().len(), 100);
    }

    #[test]
    fn no_more_are_kept_than_are_of_use() {
        let buffers = Buffers::<u8>::default();
        let all: Vec<_> = (0..3 * KEPT).map(|_| buffers.take(5, 0)).collect();
        drop(all);
        assert_eq!(buffers.0.lock().unwrap().len(), KEPT);
    }
}
