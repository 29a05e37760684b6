//! How much memory this machine has left for the process.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod others;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use others as system;

/// Bytes of memory the process can still get without the system having to swap: what the machine has free or can free at once, and no
/// more than what is left of the limits of the containers it runs in. `None` where the system does not say.
///
/// A figure of the moment: other processes take and give back meanwhile.
pub fn available_bytes() -> Option<u64> {
    system::available_bytes()
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
    fn this_machine_says_what_it_has_left() {
        let available = super::available_bytes().unwrap();
        assert!((1 << 20..1 << 50).contains(&available), "{available}");
    }
}
