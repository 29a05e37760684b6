//! A host whose `main` is C. A C linker takes from an archive what C names, so the families are named here.

use std::ffi::{CStr, c_char};

use kinfolk::Registry;

/// Writes the name of the family that runs `architecture` to `name`, of `capacity` bytes with the final zero. Returns its
/// length, or -1 if no family does or the name does not fit.
///
/// # Safety
/// `architecture` is a C string, and `name` is valid for writes of `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn family_of(architecture: *const c_char, name: *mut c_char, capacity: usize) -> isize {
    // SAFETY: the caller passes a C string.
    let architecture = unsafe { CStr::from_ptr(architecture) }.to_string_lossy();
    let registry = Registry::of([my_family::FAMILY, renamed::FAMILY]);
    let Ok(decision) = registry.claim_name(&architecture, None) else { return -1 };
    let family = decision.family.name;
    if family.len() >= capacity {
        return -1;
    }
    // SAFETY: the name and its zero fit into `capacity` bytes, for which the caller vouches; the two do not overlap, since one
    // is a constant of this program.
    unsafe {
        name.copy_from_nonoverlapping(family.as_ptr().cast(), family.len());
        name.add(family.len()).write(0);
    }
    family.len() as isize
}
