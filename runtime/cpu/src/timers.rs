//! Where forward passes spend their time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use kinfolk_decoder::OpTime;

/// Kinds of operations, in the order in which a pass meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Embed,
    Norm,
    Qkv,
    /// Norms of single heads, positions, and the place in the cache, where these are not a part of [`Attention`](Self::Attention).
    Rope,
    Attention,
    /// The projection of what attention mixed.
    Output,
    Router,
    GateUp,
    /// Where it is not a part of [`GateUp`](Self::GateUp).
    Activation,
    Down,
    /// Gathering tokens for an expert and adding what it says.
    Experts,
    Head,
}

impl Op {
    const ALL: [(Op, &'static str); 12] = [
        (Op::Embed, "embed"),
        (Op::Norm, "norm"),
        (Op::Qkv, "qkv"),
        (Op::Rope, "rope"),
        (Op::Attention, "attention"),
        (Op::Output, "o"),
        (Op::Router, "router"),
        (Op::GateUp, "gate/up"),
        (Op::Activation, "activation"),
        (Op::Down, "down"),
        (Op::Experts, "experts"),
        (Op::Head, "head"),
    ];
}

/// A clock for each kind of operation, if the host wants to know.
#[derive(Debug)]
pub(crate) struct Timers(Option<Box<[Timer; Op::ALL.len()]>>);

#[derive(Debug, Default)]
struct Timer {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Timers {
    pub fn new(on: bool) -> Timers {
        Timers(on.then(Box::default))
    }

    /// Does `work`, which is of kind `op`.
    #[inline]
    pub fn time<T>(&self, op: Op, work: impl FnOnce() -> T) -> T {
        let Some(timers) = &self.0 else { return work() };
        let start = Instant::now();
        let result = work();
        let timer = &timers[op as usize];
        timer.calls.fetch_add(1, Ordering::Relaxed);
        timer.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// What was measured, without kinds that never occurred.
    pub fn read(&self) -> Vec<OpTime> {
        let Some(timers) = &self.0 else { return Vec::new() };
        let read = |(op, name): (Op, &'static str)| {
            let timer = &timers[op as usize];
            let time = Duration::from_nanos(timer.nanoseconds.load(Ordering::Relaxed));
            OpTime { op: name, calls: timer.calls.load(Ordering::Relaxed), time }
        };
        Op::ALL.into_iter().map(read).filter(|op| op.calls > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_clock_of_its_own() {
        for (i, (op, _)) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, i, "{op:?}");
        }
    }
}
