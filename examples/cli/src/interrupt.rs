//! Ctrl-C.

use kinfolk::decoder::Cancel;

use crate::print;

/// What shells report for a program ended by Ctrl-C.
pub const EXIT_CODE: u8 = 130;

/// From here on the first Ctrl-C asks for a clean end, and the second does not ask.
///
/// Called where work begins that looks at `cancel`: until then, waiting for standard input for instance, Ctrl-C ends the program.
pub fn cancels(cancel: &Cancel) {
    let cancel = cancel.clone();
    let set = ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(EXIT_CODE.into());
        }
        cancel.cancel();
    });
    if let Err(error) = set {
        print::warn(&format!("Ctrl-C will end the program at once: {error}"));
    }
}
