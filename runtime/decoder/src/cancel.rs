//! A request to stop that every long operation polls.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Shared flag: once [`cancel`](Cancel::cancel)led, loads and forwards that hold a clone stop at their next poll.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Asks every holder to stop. Cannot be taken back.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
