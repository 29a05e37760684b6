//! The time a template is told.

use chrono::{Local, NaiveDateTime};

/// The clock behind `strftime_now`: local time, as the reference has it, or a time the host pins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's local time.
    #[default]
    Local,
    /// Always this time.
    At(NaiveDateTime),
}

impl Clock {
    pub(super) fn now(&self) -> NaiveDateTime {
        match self {
            Clock::Local => Local::now().naive_local(),
            Clock::At(time) => *time,
        }
    }
}
