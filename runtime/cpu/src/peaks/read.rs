//! How fast memory is read.

use std::{hint::black_box, time::Instant};

use crate::arena::{Arena, Bytes};

/// The buffer, which must not fit into a cache: larger than most models that would be measured by it, and than any last level of cache that
/// a few threads have to themselves.
const BUFFER_BYTES: usize = 512 << 20;

/// How often each thread reads its part.
const PASSES: usize = 3;

/// Bytes per second that `n_threads` threads read, each its own part of a buffer.
pub fn bytes_per_s(n_threads: usize) -> f64 {
    let part_bytes = BUFFER_BYTES / n_threads;
    super::together(n_threads, |barrier| {
        let part = part(part_bytes);
        let part = part.as_deref().unwrap_or_default();
        barrier.wait();
        let start = Instant::now();
        (0..PASSES).for_each(|_| sum(part));
        (PASSES * part.len()) as f64 / start.elapsed().as_secs_f64()
    })
}

/// A thread's part of the buffer, in the memory that weights are in, and written by that thread so that it lies near. Less of it where memory
/// has no room for more.
fn part(mut n_bytes: usize) -> Option<Bytes> {
    while n_bytes > 0 {
        if let Ok(mut part) = Arena::new(n_bytes).take(n_bytes) {
            part.as_mut().fill(1);
            return Some(part);
        }
        n_bytes /= 2;
    }
    None
}

/// How far ahead lines are asked for: far enough to be there in time, near enough to still be in the second-level cache.
#[cfg(target_arch = "x86_64")]
const AHEAD_BYTES: usize = 16 * 1024;

/// Reads every byte. The narrowest vectors of any processor are wide enough to wait for memory. Lines are asked for one at a time, as the
/// kernels do.
fn sum(bytes: &[u8]) {
    let mut sums = [0u8; 64];
    for line in bytes.as_chunks::<64>().0 {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: a prefetch reads nothing that a program sees and is valid for every address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().wrapping_add(AHEAD_BYTES).cast()) };
        }
        for i in 0..64 {
            sums[i] = sums[i].wrapping_add(line[i]);
        }
    }
    black_box(sums);
}
