//! A request to stop that every long operation polls.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Shared flag: once [`cancel`](Cancel::cancel)led, loads and forwards that hold a clone stop at their next poll.
#[derive(Clone, Default)]
pub struct Cancel {
    asked: Arc<AtomicBool>,
    when: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// A flag that also counts as set while `when` holds, such as once a deadline has passed. `when` is called at every poll, from
    /// whichever thread polls.
    pub fn when(when: impl Fn() -> bool + Send + Sync + 'static) -> Cancel {
        Cancel { asked: Arc::default(), when: Some(Arc::new(when)) }
    }

    /// Asks every holder to stop. Cannot be taken back.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked.
    pub fn is_cancelled(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.when.as_ref().is_some_and(|when| when())
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_cancelled", &self.is_cancelled()).finish()
    }
}
