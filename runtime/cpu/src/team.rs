//! A team of threads that computes one operation at a time together.
//!
//! An operation is published and answered through atomics: while everybody is awake it costs no system call. Threads that wait poll for a
//! while, since the next operation of a step is microseconds away, and sleep when nothing comes, so that a step has one wake-up.

use std::{
    hint, iter,
    marker::PhantomData,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr, slice,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{buffers::Buffers, dense::PlaneBuffers, quantized::Scratch};

/// How long a thread waits before it sleeps: longer than what the caller does alone between two operations.
const PATIENCE: Duration = Duration::from_micros(200);

/// How long it waits before it lets others have its core in between, of which there may be fewer than threads.
const POLITENESS: Duration = Duration::from_micros(30);

/// Threads that run the same function side by side. Dropping the team ends them.
#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    members: Vec<thread::JoinHandle<()>>,
    /// Held while an operation runs: one at a time, whoever asks.
    turn: Mutex<()>,
    /// What operations write to.
    pub floats: Buffers<f32>,
    /// What products in integers read.
    pub quantized: Scratch,
    /// What products on a matrix unit read.
    pub planes: PlaneBuffers,
}

/// What the threads do in an operation, given their number.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

#[derive(Debug)]
struct Shared {
    /// Counts operations; a member that sees it change has work, or is to end.
    epoch: AtomicUsize,
    /// Where the [`Work`] of the current operation is.
    work: AtomicPtr<Work<'static>>,
    /// Members still working on it.
    busy: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// For members, until there is work.
    for_work: Waiting,
    /// For the caller, until the members are done.
    for_members: Waiting,
}

impl Team {
    /// A team of `n_threads`, the caller of its operations included.
    pub fn new(n_threads: usize) -> Team {
        Team::with_patience(n_threads, PATIENCE)
    }

    fn with_patience(n_threads: usize, patience: Duration) -> Team {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            work: AtomicPtr::new(ptr::null_mut()),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            for_work: Waiting::new(patience),
            for_members: Waiting::new(patience),
        });
        let spawn = |member| {
            let shared = Arc::clone(&shared);
            // A system that grants fewer threads gets a smaller team: slower, and the same results.
            thread::Builder::new().name(format!("kinfolk-cpu-{member}")).spawn(move || shared.serve(member)).ok()
        };
        let members = (1..n_threads).map_while(spawn).collect();
        Team {
            shared,
            members,
            turn: Mutex::new(()),
            floats: Buffers::default(),
            quantized: Scratch::default(),
            planes: PlaneBuffers::default(),
        }
    }

    /// How many threads compute.
    pub fn n_threads(&self) -> usize {
        self.members.len() + 1
    }

    /// Calls `work` once on every thread with the thread's number and returns when all are done.
    ///
    /// # Panics
    /// If `work` panics on any thread.
    fn run(&self, work: Work<'_>) {
        if self.members.is_empty() {
            return work(0);
        }
        // Free but for a few instructions, unless another thread is using the team.
        let _turn = lock(&self.turn);
        self.shared.start(&work, self.members.len());
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        // Members use `work` until then.
        self.shared.for_members.wait_until(|| self.shared.busy.load(SeqCst) == 0);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!self.shared.panicked.load(Relaxed), "a thread of the team panicked");
    }

    /// Cuts `out` into chunks of `chunk_len` (the last may be shorter) and calls `work(chunk index, chunk)` for each, every
    /// thread taking one contiguous run of chunks.
    pub fn for_each_chunk<T: Send>(&self, out: &mut [T], chunk_len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        self.for_each_pair((out, chunk_len), (&mut [(); 0], 0), |index, chunk, _| work(index, chunk));
    }

    /// As [`for_each_chunk`](Self::for_each_chunk), of two slices at once: `work(index, chunk of a, chunk of b)`.
    pub fn for_each_pair<A: Send, B: Send>(
        &self,
        (a, a_len): (&mut [A], usize),
        (b, b_len): (&mut [B], usize),
        work: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a, b) = (Chunks::new(a, a_len), Chunks::new(b, b_len));
        self.for_each_range(a.n_chunks(), |chunks| {
            for i in chunks {
                // SAFETY: the ranges have no chunk in common.
                work(i, unsafe { a.get(i) }, unsafe { b.get(i) });
            }
        });
    }

    /// Cuts `0..n` into one contiguous range per thread and calls `work` for each that is not empty.
    pub fn for_each_range(&self, n: usize, work: impl Fn(Range<usize>) + Sync) {
        if n <= 1 {
            return if n == 1 {
                work(0..1)
            };
        }
        let n_parts = self.n_threads().min(n);
        self.run(&|thread| {
            if thread < n_parts {
                work(share(n, thread, n_parts));
            }
        });
    }

    /// Calls `work` on every thread with the indices below `n` that are its own: a contiguous run of them in order, and then what others
    /// have left of theirs, from the end, so that nobody waits for the slowest for longer than one index takes.
    pub fn for_each_index(&self, n: usize, work: impl Fn(&mut dyn Iterator<Item = usize>) + Sync) {
        let n_parts = self.n_threads();
        let end = u32::try_from(n).unwrap_or(0);
        // Nobody has more than 32 bits count.
        if n_parts == 1 || end <= 1 {
            return work(&mut (0..n));
        }
        let share_of = |part| {
            let Range { start, end } = share(n, part, n_parts);
            Share::new(start as u32..end as u32)
        };
        let shares: Vec<Share> = (0..n_parts).map(share_of).collect();
        self.run(&|thread| {
            let own = iter::from_fn(|| shares[thread].take_first());
            let others = (1..n_parts).flat_map(|i| {
                let share = &shares[(thread + i) % n_parts];
                iter::from_fn(|| share.take_last())
            });
            work(&mut own.chain(others));
        });
    }

    /// Cuts `out` into chunks of `chunk_len` (the last may be shorter) and calls `work(chunk index, chunk)` for each, in order, each thread
    /// taking the next when it is done with one: for chunks that differ in work.
    pub fn for_each_task<T: Send>(&self, out: &mut [T], chunk_len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let out = Chunks::new(out, chunk_len);
        let n = out.n_chunks();
        let next = AtomicUsize::new(0);
        let take = || Some(next.fetch_add(1, Relaxed)).filter(|i| *i < n);
        let run = |_| {
            while let Some(i) = take() {
                // SAFETY: the counter gives each chunk once.
                work(i, unsafe { out.get(i) });
            }
        };
        if n <= 1 { run(0) } else { self.run(&run) }
    }
}

/// The `part`-th of `n_parts` nearly equal runs of `0..n`.
pub(crate) fn share(n: usize, part: usize, n_parts: usize) -> Range<usize> {
    n * part / n_parts..n * (part + 1) / n_parts
}

/// What is left of a run of indices, to be taken from both ends: its first in the lower half, and where it ends in the upper. In lines of
/// its own, as its owner takes one every microsecond.
#[repr(align(128))]
struct Share(AtomicU64);

impl Share {
    fn new(indices: Range<u32>) -> Share {
        Share(AtomicU64::new(u64::from(indices.end) << 32 | u64::from(indices.start)))
    }

    /// What is left before `take`, which leaves less, if there was any.
    fn update(&self, take: impl Fn(Range<u32>) -> Range<u32>) -> Option<Range<u32>> {
        let indices = |word: u64| word as u32..(word >> 32) as u32;
        let less = |word| {
            let left = take(indices(word));
            (!indices(word).is_empty()).then(|| u64::from(left.end) << 32 | u64::from(left.start))
        };
        self.0.fetch_update(Relaxed, Relaxed, less).ok().map(indices)
    }

    fn take_first(&self) -> Option<usize> {
        self.update(|left| left.start.wrapping_add(1)..left.end).map(|left| left.start as usize)
    }

    fn take_last(&self) -> Option<usize> {
        self.update(|left| left.start..left.end.wrapping_sub(1)).map(|left| left.end as usize - 1)
    }
}

/// A slice cut into chunks, which several threads borrow at once.
struct Chunks<'a, T> {
    first: *mut T,
    len: usize,
    chunk_len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a slice borrowed for writing; `get` leaves it to its caller that no two threads have the same chunk.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

impl<'a, T> Chunks<'a, T> {
    fn new(slice: &'a mut [T], chunk_len: usize) -> Self {
        Chunks { first: slice.as_mut_ptr(), len: slice.len(), chunk_len: chunk_len.max(1), borrowed: PhantomData }
    }

    fn n_chunks(&self) -> usize {
        self.len.div_ceil(self.chunk_len)
    }

    /// The `i`-th chunk, empty beyond the last.
    ///
    /// # Safety
    /// While the chunk is used nobody else asks for it.
    unsafe fn get(&self, i: usize) -> &'a mut [T] {
        let start = self.len.min(i * self.chunk_len);
        let len = self.chunk_len.min(self.len - start);
        // SAFETY: the part lies within the slice, which is borrowed for as long as the result, and is the caller's alone.
        unsafe { slice::from_raw_parts_mut(self.first.add(start), len) }
    }
}

impl Shared {
    fn start(&self, work: &Work<'_>, n_members: usize) {
        self.work.store(ptr::from_ref(work).cast_mut().cast(), Relaxed);
        self.busy.store(n_members, Relaxed);
        self.panicked.store(false, Relaxed);
        self.epoch.fetch_add(1, SeqCst);
        self.for_work.wake();
    }

    fn serve(&self, member: usize) {
        let mut seen = 0;
        loop {
            self.for_work.wait_until(|| self.epoch.load(SeqCst) != seen);
            if self.stop.load(SeqCst) {
                return;
            }
            // No further operation starts before this member has counted down `busy`.
            seen += 1;
            // SAFETY: `Team::run` has stored a pointer to its own reference, and keeps that and what it refers to until this member has
            // counted down `busy`, which happens after its last use, also when it panics.
            let work = unsafe { *self.work.load(Relaxed) };
            if catch_unwind(AssertUnwindSafe(|| work(member))).is_err() {
                self.panicked.store(true, Relaxed);
            }
            if self.busy.fetch_sub(1, SeqCst) == 1 {
                self.for_members.wake();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.epoch.fetch_add(1, SeqCst);
        self.shared.for_work.wake();
        for member in self.members.drain(..) {
            // A member's panic was already reported to whoever ran the operation.
            let _ = member.join();
        }
    }
}

/// Where threads wait for something that others do.
#[derive(Debug)]
struct Waiting {
    patience: Duration,
    n_asleep: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Waiting {
    fn new(patience: Duration) -> Waiting {
        Waiting { patience, n_asleep: AtomicUsize::new(0), lock: Mutex::new(()), wake: Condvar::new() }
    }

    /// Returns once `ready`, which loads what it depends on in the order `SeqCst`.
    fn wait_until(&self, ready: impl Fn() -> bool) {
        if self.poll(&ready) {
            return;
        }
        let mut guard = lock(&self.lock);
        // First announced, then checked: whoever stores what makes it ready either is seen here or sees this thread asleep.
        self.n_asleep.fetch_add(1, SeqCst);
        while !ready() {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.n_asleep.fetch_sub(1, SeqCst);
    }

    /// Whether it became ready before patience ran out.
    fn poll(&self, ready: impl Fn() -> bool) -> bool {
        let mut start = None;
        loop {
            for _ in 0..64 {
                if ready() {
                    return true;
                }
                hint::spin_loop();
            }
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            if waited >= self.patience {
                return false;
            }
            if waited >= POLITENESS {
                thread::yield_now();
            }
        }
    }

    /// To be called after what makes the others ready was stored, in the order `SeqCst`.
    fn wake(&self) {
        if self.n_asleep.load(SeqCst) > 0 {
            // Whoever announced itself holds the lock until it really sleeps.
            drop(lock(&self.lock));
            self.wake.notify_all();
        }
    }
}

/// A panic elsewhere cannot leave these locks' data half-written, so poison carries no news.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_worked_on_once_whatever_the_sizes() {
        for n_threads in [1, 2, 3, 5] {
            let team = Team::new(n_threads);
            for (len, chunk_len) in [(0, 4), (1, 4), (7, 3), (100, 1), (64, 64), (1000, 7)] {
                let mut out = vec![0usize; len];
                team.for_each_chunk(&mut out, chunk_len, |index, chunk| {
                    chunk.iter_mut().for_each(|v| *v += index + 1);
                });
                let expected: Vec<usize> = (0..len).map(|i| i / chunk_len + 1).collect();
                assert_eq!(out, expected, "{n_threads} threads, {len} by {chunk_len}");
                let mut out = vec![0usize; len];
                team.for_each_task(&mut out, chunk_len, |index, chunk| {
                    chunk.iter_mut().for_each(|v| *v += index + 1);
                });
                assert_eq!(out, expected, "as tasks: {n_threads} threads, {len} by {chunk_len}");
            }
        }
    }

    #[test]
    fn every_index_is_taken_once_also_where_a_thread_is_slow() {
        for n_threads in [1, 2, 5] {
            let team = Team::new(n_threads);
            for n in [0, 1, 2, 7, 1000] {
                let taken: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                let first = AtomicBool::new(true);
                team.for_each_index(n, |indices| {
                    for i in indices {
                        if first.swap(false, SeqCst) {
                            thread::sleep(Duration::from_millis(2));
                        }
                        taken[i].fetch_add(1, SeqCst);
                    }
                });
                assert!(taken.iter().all(|taken| taken.load(SeqCst) == 1), "{n_threads} threads, {n}");
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_still_works() {
        let team = Team::new(2);
        let mut out = [0; 2];
        for bad in [0, 1] {
            let run = AssertUnwindSafe(|| team.for_each_chunk(&mut out, 1, |i, _| assert_ne!(i, bad)));
            assert!(catch_unwind(run).is_err());
        }
        team.for_each_chunk(&mut out, 1, |i, chunk| chunk[0] = i + 10);
        assert_eq!(out, [10, 11]);
    }

    #[test]
    fn a_team_may_be_used_from_several_threads() {
        let team = Team::new(2);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut out = [0; 16];
                        team.for_each_chunk(&mut out, 2, |i, chunk| chunk.fill(i));
                        assert_eq!(out[15], 7);
                    }
                });
            }
        });
    }

    #[test]
    fn pairs_are_cut_alike() {
        for n_threads in [1, 3] {
            let (mut a, mut b) = ([0; 10], [0; 20]);
            Team::new(n_threads).for_each_pair((&mut a, 3), (&mut b, 6), |index, a, b| {
                assert_eq!(2 * a.len(), b.len());
                a.fill(index);
                b.fill(index);
            });
            assert_eq!(a, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]);
            assert!(b.chunks(2).map(|b| b[0]).eq(a), "{b:?}");
        }
    }

    #[test]
    fn nobody_sleeps_through_an_operation_and_nobody_runs_one_twice() {
        // Patience that is over at once, that may be over at any moment of an operation, and that never is.
        for patience in [0, 1, 5, 20, 1_000_000].map(Duration::from_micros) {
            for n_threads in [2, 3, 8] {
                let team = Team::with_patience(n_threads, patience);
                let counts: Vec<AtomicUsize> = (0..n_threads).map(|_| AtomicUsize::new(0)).collect();
                for i in 0..1000u32 {
                    team.run(&|thread| {
                        // Operations and what lies between them take from nothing to about twenty microseconds.
                        (0..(i * 7919 + thread as u32 * 31) % 300).for_each(|_| hint::spin_loop());
                        counts[thread].fetch_add(1, Relaxed);
                    });
                    assert!(counts.iter().all(|count| count.load(Relaxed) == i as usize + 1), "operation {i}");
                    (0..(i * 104_729) % 300).for_each(|_| hint::spin_loop());
                }
            }
        }
    }
}
