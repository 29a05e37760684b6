//! Memory of this process, as Linux reports it.

use std::fs;

use serde::{Deserialize, Serialize};

/// Resident memory in bytes, all 0 where the system does not say.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Resident {
    /// The most there was since the process began.
    pub peak_bytes: u64,
    /// What is there now,
    pub now_bytes: u64,
    /// and of that, pages of files, which the system can take back.
    pub file_bytes: u64,
}

impl Resident {
    pub fn of_this_process() -> Resident {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or(0) << 10
        };
        Resident { peak_bytes: field("VmHWM:"), now_bytes: field("VmRSS:"), file_bytes: field("RssFile:") }
    }
}
