//! A runner that takes one request at a time.

use std::sync::Arc;

use super::{RequestError, slot::Slot};
use crate::{
    host_driven::HostDriven,
    runner::LmRunner,
    session::{Clock, DriveError, Reply},
};

/// A runner that shares no model: requests run to their end, one after the other, and reuse what the one before has left.
pub(super) struct Alone {
    runner: HostDriven<Box<dyn LmRunner>>,
}

impl Alone {
    pub fn new(runner: Box<dyn LmRunner>) -> Alone {
        Alone { runner: HostDriven::new(runner) }
    }

    /// Runs a request. `between` is called after each of its events, for those that wait.
    ///
    /// # Errors
    /// The runner panicked, and must be replaced. The request knows already.
    pub fn serve(&mut self, slot: Slot<'_>, clock: &Clock, mut between: impl FnMut()) -> Result<(), Arc<DriveError>> {
        let mut is_corrupted = false;
        let (generation, chunk_tokens, host) = slot.into_parts();
        let reply = Reply::new(&mut self.runner, &mut is_corrupted, generation, chunk_tokens, Arc::clone(clock));
        let mut failure = None;
        for event in reply {
            match event {
                Ok(event) => host.send(event),
                Err(error) => {
                    let error = Arc::new(error);
                    host.fail(RequestError::Drive(Arc::clone(&error)));
                    failure = Some(error);
                }
            }
            between();
        }
        match failure {
            Some(error) if is_corrupted => Err(error),
            _ => Ok(()),
        }
    }
}
