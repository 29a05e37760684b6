//! Ctrl-C.

use std::sync::OnceLock;

use kinfolk::decoder::Cancel;

use crate::print;

/// What shells report for a program ended by Ctrl-C.
pub const EXIT_CODE: u8 = 130;

/// The work that has begun and can end cleanly.
static WORK: OnceLock<Cancel> = OnceLock::new();

/// Listens to Ctrl-C, which ends the program at once where nothing has begun that could end cleanly.
pub fn listen() {
    let set = ctrlc::set_handler(|| match WORK.get() {
        Some(cancel) if !cancel.is_cancelled() => cancel.cancel(),
        _ => std::process::exit(EXIT_CODE.into()),
    });
    if let Err(error) = set {
        print::warn(&format!("Ctrl-C will end the program at once: {error}"));
    }
}

/// From here on the first Ctrl-C asks for a clean end, and only the second does not ask.
pub fn cancels(cancel: &Cancel) {
    // The program does one piece of work.
    let _ = WORK.set(cancel.clone());
}
