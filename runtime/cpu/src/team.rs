//! A team of threads that computes one operation at a time together.
//!
//! Members spin briefly between operations, since the next one is microseconds away within a step, and park when nothing comes.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Polls before a waiting thread gives up its core. At a few nanoseconds each, about the time of one small operation.
const SPINS: usize = 4_000;

/// Threads that run the same function side by side. Dropping the team ends them.
#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    members: Vec<thread::JoinHandle<()>>,
    /// Held while an operation runs: one at a time, whoever asks.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    /// Counts operations; a member that sees it change has work.
    generation: AtomicUsize,
    /// Members still working on the current operation.
    busy: AtomicUsize,
    job: Mutex<Job>,
    wake: Condvar,
    done: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Job {
    work: Option<Work>,
    generation: usize,
    panicked: bool,
    stop: bool,
}

#[derive(Clone, Copy, Debug)]
struct Work(*const (dyn Fn(usize) + Sync));

// SAFETY: the pointee is `Sync`, and `Team::run` keeps it alive until every member has let go of it.
unsafe impl Send for Work {}

impl Team {
    /// A team of `n_threads`, the caller of [`run`](Self::run) included.
    pub fn new(n_threads: usize) -> Team {
        let shared = Arc::new(Shared {
            generation: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            job: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        let spawn = |member| {
            let shared = Arc::clone(&shared);
            // A system that grants fewer threads gets a smaller team: slower, and the same results.
            thread::Builder::new().name(format!("kinfolk-cpu-{member}")).spawn(move || shared.serve(member)).ok()
        };
        let members = (1..n_threads).map_while(spawn).collect();
        Team { shared, members, turn: Mutex::new(()) }
    }

    /// How many threads compute.
    pub fn n_threads(&self) -> usize {
        self.members.len() + 1
    }

    /// Calls `work` once on every thread with the thread's number and returns when all are done.
    ///
    /// # Panics
    /// If `work` panics on any thread.
    fn run(&self, work: &(dyn Fn(usize) + Sync)) {
        if self.members.is_empty() {
            return work(0);
        }
        let _turn = lock(&self.turn);
        // SAFETY: this only forgets the lifetime. `work` outlives this call, and the call ends only after `busy` has
        // come down to 0, which each member counts down after its last use of the pointer, also when it panics.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        self.shared.start(work, self.members.len());
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        let member_panicked = self.shared.wait_for_members();
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!member_panicked, "a thread of the team panicked");
    }

    /// Cuts `out` into chunks of `chunk_len` (the last may be shorter) and calls `work(chunk index, chunk)` for each, every
    /// thread taking one contiguous run of chunks.
    pub fn for_each_chunk<T: Send>(&self, out: &mut [T], chunk_len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let n_chunks = out.len().div_ceil(chunk_len.max(1));
        if n_chunks <= 1 {
            return if n_chunks == 1 {
                work(0, out)
            };
        }
        let n_parts = self.n_threads().min(n_chunks);
        let mut parts = Vec::with_capacity(n_parts);
        let mut rest = out;
        for part in 0..n_parts {
            let chunks = share(n_chunks, part, n_parts);
            let len = (chunks.len() * chunk_len).min(rest.len());
            let (own, others) = rest.split_at_mut(len);
            parts.push(Mutex::new((chunks.start, own)));
            rest = others;
        }
        self.run(&|thread| {
            let Some(part) = parts.get(thread) else { return };
            let (first, own) = &mut *lock(part);
            for (i, chunk) in own.chunks_mut(chunk_len).enumerate() {
                work(*first + i, chunk);
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
}

/// The `part`-th of `n_parts` nearly equal runs of `0..n`.
fn share(n: usize, part: usize, n_parts: usize) -> Range<usize> {
    n * part / n_parts..n * (part + 1) / n_parts
}

/// A panic elsewhere cannot leave these locks' data half-written, so poison carries no news.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn start(&self, work: &'static (dyn Fn(usize) + Sync), n_members: usize) {
        let mut job = lock(&self.job);
        job.work = Some(Work(work));
        job.generation += 1;
        job.panicked = false;
        self.busy.store(n_members, Ordering::Relaxed);
        self.generation.store(job.generation, Ordering::Release);
        self.wake.notify_all();
    }

    /// Returns whether a member panicked.
    fn wait_for_members(&self) -> bool {
        for _ in 0..SPINS {
            if self.busy.load(Ordering::Acquire) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let mut job = lock(&self.job);
        while self.busy.load(Ordering::Acquire) > 0 {
            job = self.done.wait(job).unwrap_or_else(PoisonError::into_inner);
        }
        job.work = None;
        job.panicked
    }

    fn serve(&self, member: usize) {
        let mut seen = 0;
        while let Some((work, generation)) = self.next(seen) {
            seen = generation;
            // SAFETY: `Team::run` keeps the pointee alive until this member has counted down `busy` below.
            let work = unsafe { &*work.0 };
            let panicked = catch_unwind(AssertUnwindSafe(|| work(member))).is_err();
            if panicked {
                lock(&self.job).panicked = true;
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                // Under the lock, so that a caller between its check and its wait is not missed.
                drop(lock(&self.job));
                self.done.notify_all();
            }
        }
    }

    /// Waits for an operation after the `seen`-th. `None` when the team ends.
    fn next(&self, seen: usize) -> Option<(Work, usize)> {
        for _ in 0..SPINS {
            if self.generation.load(Ordering::Acquire) != seen {
                break;
            }
            std::hint::spin_loop();
        }
        let mut job = lock(&self.job);
        loop {
            if job.stop {
                return None;
            }
            match job.work {
                Some(work) if job.generation != seen => return Some((work, job.generation)),
                _ => job = self.wake.wait(job).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        lock(&self.shared.job).stop = true;
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_all();
        for member in self.members.drain(..) {
            // A member's panic was already reported to whoever ran the operation.
            let _ = member.join();
        }
    }
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
}
