//! Asking for lines of memory before they are used. That changes nothing that a program sees and may be done with any address; where no
//! instruction for it is known here, nothing happens.

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

macro_rules! ask {
    ($at:expr, $hint:ident) => {{
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing that a program sees and is valid for every address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::$hint }>($at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = $at;
    }};
}

/// The line that `at` is in, for the first-level cache.
#[inline(always)]
pub(crate) fn first_level<T>(at: *const T) {
    ask!(at, _MM_HINT_T0);
}

/// For the second-level cache, which can wait for three times as many lines at once.
#[inline(always)]
pub(crate) fn second_level<T>(at: *const T) {
    ask!(at, _MM_HINT_T1);
}

/// To be written.
#[inline(always)]
pub(crate) fn to_write<T>(at: *const T) {
    ask!(at, _MM_HINT_ET0);
}
