//! Counts the warnings that code gives through `tracing`.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tracing::{Event, Level, Metadata, Subscriber, span};

struct Counter(Arc<AtomicUsize>);

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// What code returns, and how often it warned.
pub fn during<T>(code: impl FnOnce() -> T) -> (T, usize) {
    let n_warnings = Arc::new(AtomicUsize::new(0));
    let found = tracing::subscriber::with_default(Counter(Arc::clone(&n_warnings)), code);
    (found, n_warnings.load(Ordering::Relaxed))
}
