//! The host's end of a request.

use std::sync::Arc;

use async_channel::Receiver;
use kinfolk_decoder::Cancel;

use crate::session::{DriveError, Event};

/// Why a request failed. Its last event, in place of [`Event::Done`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The prompt or the request cannot be honoured: see [`RunnerError`](crate::RunnerError) and
    /// [`SampleError`](crate::sampling::SampleError) inside.
    #[error("the request cannot be run")]
    Invalid(#[source] Arc<anyhow::Error>),
    /// A step failed or the runner panicked. Other requests go on.
    #[error(transparent)]
    Drive(Arc<DriveError>),
    /// The model could not be loaded.
    #[error("the model could not be loaded")]
    Load(#[source] Arc<anyhow::Error>),
    /// The scheduler's thread failed. It starts again with the next request.
    #[error("the scheduler was restarted after a panic while the request was with it")]
    WorkerDied,
}

/// A request under way: pull its [`Event`]s until there are no more, waiting here ([`Iterator`]) or in async code ([`recv`](Self::recv)).
/// Dropping it cancels the request.
///
/// Exactly one event is the last: [`Event::Done`], or an error.
#[derive(Debug)]
pub struct Ticket {
    pub(super) events: Receiver<Result<Event, RequestError>>,
    pub(super) cancel: Cancel,
    pub(super) ended: bool,
}

impl Ticket {
    /// Asks for the end of the request: within a step it is done with [`FinishReason::Cancelled`](crate::session::FinishReason::Cancelled).
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The next event. `None`: the last one was there.
    pub async fn recv(&mut self) -> Option<Result<Event, RequestError>> {
        if self.ended {
            return None;
        }
        let received = self.events.recv().await;
        Some(self.received(received))
    }

    fn received(
        &mut self,
        received: Result<Result<Event, RequestError>, async_channel::RecvError>,
    ) -> Result<Event, RequestError> {
        // Whoever should have said the end is gone without a word.
        let event = received.unwrap_or(Err(RequestError::WorkerDied));
        self.ended = matches!(event, Err(_) | Ok(Event::Done(_)));
        event
    }
}

impl Iterator for Ticket {
    type Item = Result<Event, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let received = self.events.recv_blocking();
        Some(self.received(received))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
