//! Calling a runner that may fail in any way.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use anyhow::Result;

use crate::runner::LmRunner;

/// What went wrong on the way from logits to logits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// A step failed. The runner goes on with the next request.
    #[error("the model failed at a step of the reply")]
    Recoverable(#[source] anyhow::Error),
    /// The runner panicked, and what it holds cannot be trusted. Its owner has dropped it, and loads another for the next request if it
    /// knows how.
    #[error("the runner panicked: {message}")]
    RunnerCorrupted {
        /// What the panic said.
        message: String,
    },
}

/// Calls `work`; a panic becomes [`DriveError::RunnerCorrupted`].
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T, DriveError> {
    // Whoever is told of the panic drops what `work` was about, so that nobody sees it half-changed.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => answer.map_err(DriveError::Recoverable),
        Err(panic) => Err(DriveError::RunnerCorrupted { message: message(&*panic) }),
    }
}

/// Calls what chooses a token: stages of the sampler, a constraint. They may be the host's own, and a panic of theirs says nothing of the
/// runner.
pub(crate) fn choosing<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    guard(work).map_err(|error| match error {
        DriveError::Recoverable(error) => error,
        DriveError::RunnerCorrupted { message } => anyhow::anyhow!("choosing a token panicked: {message}"),
    })
}

/// Drops what has panicked, which may panic once more as it goes.
pub(crate) fn discard<T>(broken: T) {
    let gone = guard(|| {
        drop(broken);
        Ok(())
    });
    drop(gone);
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// Loads a runner in place of one that is lost.
pub type Reload = Box<dyn FnMut() -> Result<Box<dyn LmRunner>> + Send>;

/// Stands in for a runner that was dropped after a panic.
#[derive(Debug, Default)]
pub(crate) struct Evicted {
    family: String,
    vocab_size: usize,
    context_length: usize,
}

impl Evicted {
    pub fn of(runner: &dyn LmRunner) -> Evicted {
        let (vocab_size, context_length) = (runner.vocab_size(), runner.context_length());
        Evicted { family: runner.family().to_owned(), vocab_size, context_length }
    }
}

impl LmRunner for Evicted {
    fn family(&self) -> &str {
        &self.family
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn predict_logits(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        anyhow::bail!("the runner was dropped after a panic: expected another one to be loaded")
    }
}
