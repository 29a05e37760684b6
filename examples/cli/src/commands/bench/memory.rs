//! Memory of this process.

use std::fs;

/// The most memory this process has had resident, in bytes, where the system says so in a file.
pub fn resident_peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
