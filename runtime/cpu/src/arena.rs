//! Memory for weights, and for keys and values.
//!
//! A decoding step reads every weight once, and with pages of 4 KiB a good part of that time goes to looking up where the pages are: 350 MB
//! are read at 21 GB/s from such pages and at 29 from pages of 2 MiB. Matrices are often smaller than that, so a model's share a few large
//! mappings for which the system is asked to use large pages.

use std::{
    cell::UnsafeCell,
    mem::{self, MaybeUninit},
    ops::{Deref, Range},
    sync::{Arc, Mutex, PoisonError},
};

use kinfolk_decoder::LoadError;
use memmap2::{MmapMut, MmapRaw};

/// What a matrix starts at a multiple of: a line of the cache, and a vector register.
const ALIGN: usize = 64;

/// A large page. Models smaller than one get ordinary memory.
const LARGE_PAGE: usize = 2 << 20;

/// The most that is mapped at once, and so the most that is mapped and never used. Memory that is not written to takes no room.
const CHUNK: usize = 64 << 20;

/// Asks for large pages where `memory` is as large as some. Best before it is first written to.
pub(crate) fn prefer_large_pages<T>(memory: &mut [MaybeUninit<T>]) {
    #[cfg(target_os = "linux")]
    if size_of_val(memory) >= 2 * LARGE_PAGE {
        let first = memory.as_mut_ptr().addr().next_multiple_of(LARGE_PAGE);
        let end = (memory.as_mut_ptr().addr() + size_of_val(memory)) / LARGE_PAGE * LARGE_PAGE;
        // SAFETY: the range is within `memory`, and the advice changes nothing that a program sees.
        let status =
            unsafe { libc::madvise(memory.as_mut_ptr().with_addr(first).cast(), end - first, libc::MADV_HUGEPAGE) };
        if status != 0 {
            tracing::debug!("the system has no large pages");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Hands out the memory of one model.
#[derive(Debug)]
pub(crate) struct Arena {
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// About what is still to be asked for.
    expected_bytes: usize,
    chunk: Option<Arc<Chunk>>,
    /// What the chunk has left.
    range: Range<usize>,
}

#[derive(Debug)]
enum Chunk {
    Mapped(MmapRaw),
    Heap(HeapLines),
}

/// Lines that several hold parts of.
#[derive(Debug)]
struct HeapLines(Box<[UnsafeCell<Line>]>);

// SAFETY: it gives out a pointer and nothing else; who makes slices of it answers for them.
unsafe impl Sync for HeapLines {}

#[derive(Debug)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// Bytes that start at a multiple of 64.
#[derive(Debug)]
pub(crate) struct Bytes {
    chunk: Arc<Chunk>,
    range: Range<usize>,
}

impl Arena {
    /// For about `expected_bytes`.
    pub fn new(expected_bytes: usize) -> Arena {
        Arena { free: Mutex::new(Free { expected_bytes, chunk: None, range: 0..0 }) }
    }

    /// That so many more bytes will be asked for.
    pub fn expect(&self, n_bytes: usize) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.expected_bytes = free.expected_bytes.saturating_add(n_bytes);
    }

    /// `n` zeros.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn take(&self, n: usize) -> Result<Bytes, LoadError> {
        let out_of_memory = || LoadError::OutOfMemory { needed_bytes: n as u64 };
        let rounded = n.checked_next_multiple_of(ALIGN).ok_or_else(out_of_memory)?;
        // A panic between these lines leaves numbers that still are of one chunk.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let chunk = match &free.chunk {
            Some(chunk) if free.range.len() >= rounded => Arc::clone(chunk),
            _ => {
                let (chunk, len) = Chunk::new(free.expected_bytes.clamp(rounded, CHUNK.max(rounded)), rounded)
                    .ok_or_else(out_of_memory)?;
                let chunk = Arc::new(chunk);
                (free.chunk, free.range) = (Some(Arc::clone(&chunk)), 0..len);
                chunk
            }
        };
        let start = free.range.start;
        free.range.start += rounded;
        free.expected_bytes = free.expected_bytes.saturating_sub(rounded);
        Ok(Bytes { chunk, range: start..start + n })
    }
}

impl Chunk {
    /// Zeros, at least `least` and about `wanted`, and how many.
    fn new(wanted: usize, least: usize) -> Option<(Chunk, usize)> {
        if wanted >= LARGE_PAGE
            && let Some(mapped) = Chunk::mapped(wanted)
        {
            return Some(mapped);
        }
        Some((Chunk::heap(least)?, least))
    }

    /// `None` where the system maps no memory, or no more.
    fn mapped(wanted: usize) -> Option<(Chunk, usize)> {
        // A whole number of pages is what systems put where a large page can start.
        let len = wanted.checked_next_multiple_of(LARGE_PAGE)?;
        let map = MmapMut::map_anon(len).ok()?;
        #[cfg(target_os = "linux")]
        // What is wanted of the last page takes small ones, and no more of them than are used.
        if let Err(error) = map.advise_range(memmap2::Advice::HugePage, 0, wanted / LARGE_PAGE * LARGE_PAGE) {
            tracing::debug!(%error, "the system has no large pages");
        }
        Some((Chunk::Mapped(map.into()), len))
    }

    fn heap(n_bytes: usize) -> Option<Chunk> {
        let n_lines = n_bytes / ALIGN;
        let mut lines = Vec::new();
        lines.try_reserve_exact(n_lines).ok()?;
        lines.resize_with(n_lines, || UnsafeCell::new(Line([0; ALIGN])));
        Some(Chunk::Heap(HeapLines(lines.into_boxed_slice())))
    }

    fn first(&self) -> *mut u8 {
        match self {
            Chunk::Mapped(map) => map.as_mut_ptr(),
            Chunk::Heap(HeapLines(lines)) => UnsafeCell::raw_get(lines.as_ptr()).cast(),
        }
    }
}

impl Bytes {
    /// These bytes for somebody else, leaving none.
    pub fn take(&mut self) -> Bytes {
        Bytes { chunk: Arc::clone(&self.chunk), range: mem::replace(&mut self.range, 0..0) }
    }

    /// To fill them.
    pub fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: within the chunk, which lives as long as this does, and ranges are given out once, so nobody else has these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.first().add(self.range.start), self.range.len()) }
    }
}

impl Bytes {
    /// As numbers, of which there are a quarter as many.
    pub fn floats(&self) -> &[f32] {
        self.some_floats(0..self.len() / 4)
    }

    /// Some of the numbers.
    pub fn some_floats(&self, range: Range<usize>) -> &[f32] {
        let range = self.within(range);
        // SAFETY: they start at a multiple of 64, `within` leaves only whole numbers that are there, and any four bytes are a number. The others
        // are not looked at.
        unsafe { std::slice::from_raw_parts(self.first_float().add(range.start), range.len()) }
    }

    /// Some of the numbers, to write to while others are used.
    ///
    /// # Safety
    /// Nothing else may use these until the result is gone, which includes all that borrows the whole.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for it")]
    pub unsafe fn some_floats_mut(&self, range: Range<usize>) -> &mut [f32] {
        let range = self.within(range);
        // SAFETY: as in `some_floats`; the memory is given out for writing, and the caller promises that nobody else uses this part.
        unsafe { std::slice::from_raw_parts_mut(self.first_float().add(range.start), range.len()) }
    }

    /// Where number `i` is, for those who ask for memory that others may write to.
    pub fn address(&self, i: usize) -> *const f32 {
        // SAFETY: within the chunk or just behind it.
        unsafe { self.first_float().add(self.within(i..i).start) }
    }

    fn first_float(&self) -> *mut f32 {
        // SAFETY: within the chunk.
        unsafe { self.chunk.first().add(self.range.start).cast() }
    }

    /// `range`, of numbers that there are.
    fn within(&self, range: Range<usize>) -> Range<usize> {
        assert!(range.start <= range.end && range.end <= self.range.len() / 4, "numbers that there are");
        range
    }

    /// As numbers, to write to.
    pub fn floats_mut(&mut self) -> &mut [f32] {
        let bytes = self.as_mut();
        // SAFETY: as in `some_floats`, and they are borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / 4) }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `as_mut`; memory of either kind is zeroed at first.
        unsafe { std::slice::from_raw_parts(self.chunk.first().add(self.range.start), self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_zeros_of_his_own_whatever_was_expected() {
        for expected in [0, 1000, LARGE_PAGE, 3 * LARGE_PAGE, usize::MAX] {
            let arena = Arena::new(expected);
            let sizes = [0, 1, 64, 65, 5000, LARGE_PAGE, 100];
            let mut all: Vec<Bytes> = sizes.iter().map(|n| arena.take(*n).unwrap()).collect();
            drop(arena);
            for (i, bytes) in all.iter_mut().enumerate() {
                assert_eq!((bytes.len(), bytes.as_ptr() as usize % ALIGN), (sizes[i], 0));
                assert!(bytes.iter().all(|b| *b == 0), "{expected}, {i}");
                bytes.as_mut().fill(i as u8 + 1);
            }
            assert!(all.iter().enumerate().all(|(i, bytes)| bytes.iter().all(|b| *b == i as u8 + 1)), "{expected}");
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        for n in [usize::MAX, isize::MAX as usize] {
            assert!(matches!(Arena::new(0).take(n), Err(LoadError::OutOfMemory { .. })));
        }
    }
}
