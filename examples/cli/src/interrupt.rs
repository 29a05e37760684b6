//! Ctrl-C.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kinfolk::decoder::Cancel;

use crate::print;

/// What shells report for a program ended by Ctrl-C.
pub const EXIT_CODE: u8 = 130;

/// The work that has begun and can end cleanly.
static WORK: Mutex<Option<Cancel>> = Mutex::new(None);

/// Listens to Ctrl-C, which ends the program at once where nothing has begun that could end cleanly.
pub fn listen() {
    let set = ctrlc::set_handler(|| match &*work() {
        Some(cancel) if !cancel.is_cancelled() => cancel.cancel(),
        _ => std::process::exit(EXIT_CODE.into()),
    });
    if let Err(error) = set {
        print::warn(&format!("Ctrl-C will end the program at once: {error}"));
    }
}

/// From here on the first Ctrl-C asks for a clean end, and only the second does not ask.
pub fn cancels(cancel: &Cancel) {
    *work() = Some(cancel.clone());
}

/// From here on Ctrl-C ends the program at once.
pub fn ends_program() {
    *work() = None;
}

fn work() -> MutexGuard<'static, Option<Cancel>> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}
