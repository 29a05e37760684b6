//! Systems that sysinfo knows.

use sysinfo::{IS_SUPPORTED_SYSTEM, MemoryRefreshKind, RefreshKind, System};

pub(super) fn available_bytes() -> Option<u64> {
    let ram = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    IS_SUPPORTED_SYSTEM.then(|| System::new_with_specifics(ram).available_memory())
}
