//! How fast memory is read.

use std::{hint::black_box, time::Instant};

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
        barrier.wait();
        let start = Instant::now();
        (0..PASSES).for_each(|_| sum(&part));
        (PASSES * size_of_val(&part[..])) as f64 / start.elapsed().as_secs_f64()
    })
}

/// A thread's part of the buffer, written by that thread so that it lies near. Less of it where memory has no room for more.
fn part(n_bytes: usize) -> Vec<u64> {
    let mut part = Vec::new();
    let mut len = n_bytes / size_of::<u64>();
    while part.try_reserve_exact(len).is_err() {
        len /= 2;
    }
    part.resize(len, 1);
    part
}

/// Reads every number. The narrowest vectors of any processor are wide enough to wait for memory.
fn sum(numbers: &[u64]) {
    let mut sums = [0u64; 32];
    for numbers in numbers.as_chunks::<32>().0 {
        for i in 0..32 {
            sums[i] = sums[i].wrapping_add(numbers[i]);
        }
    }
    black_box(sums);
}
