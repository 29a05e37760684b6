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

/// Reads every byte. The narrowest vectors of any processor are wide enough to wait for memory.
fn sum(bytes: &[u8]) {
    let mut sums = [0u8; 256];
    for bytes in bytes.as_chunks::<256>().0 {
        for i in 0..256 {
            sums[i] = sums[i].wrapping_add(bytes[i]);
        }
    }
    black_box(sums);
}
