//! The matrix unit of x86-64: whether there is one, and the shapes of its registers.
//!
//! The instructions are written as assembly, here and where they are used, since their intrinsics are not stable.

use std::{
    arch::{asm, x86_64::*},
    marker::PhantomData,
    sync::OnceLock,
};

/// Whether this processor has AMX, and the system lets this process use it.
pub fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| is_present() && is_permitted())
}

/// Whether it multiplies bf16 too.
pub fn multiplies_bf16() -> bool {
    const BF16: u32 = 1 << 22;
    // A virtual machine takes microseconds to answer.
    static MULTIPLIES: OnceLock<bool> = OnceLock::new();
    *MULTIPLIES.get_or_init(|| is_available() && __cpuid_count(7, 0).edx & BF16 != 0)
}

/// Both registers and products of bytes, and an operating system that saves the registers.
fn is_present() -> bool {
    const TILE_AND_INT8: u32 = 3 << 24;
    const TILE_STATE: u64 = 3 << 17;
    if !is_x86_feature_detected!("xsave") || __cpuid(0).eax < 7 {
        return false;
    }
    // SAFETY: the processor has `xsave`, and the macro found that the operating system has turned it on.
    let saved = unsafe { _xgetbv(0) };
    __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && saved & TILE_STATE == TILE_STATE
}

/// Linux gives a process the registers' room on its signal frames only when it asks.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches none of the program's memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Rows and bytes of a row of each of the eight registers, as the processor reads them.
#[repr(C, align(64))]
pub(crate) struct Shapes {
    palette: u8,
    reserved: [u8; 15],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Of registers of so many rows and bytes of a row each.
    ///
    /// # Panics
    /// If a register has more than 16 rows of 64 bytes.
    pub const fn new(registers: [(usize, usize); 8]) -> Shapes {
        let mut shapes = Shapes { palette: 1, reserved: [0; 15], row_bytes: [0; 16], rows: [0; 16] };
        let mut i = 0;
        while i < registers.len() {
            let (rows, row_bytes) = registers[i];
            assert!(rows <= 16 && row_bytes <= 64, "what a register holds");
            (shapes.rows[i], shapes.row_bytes[i]) = (rows as u8, row_bytes as u16);
            i += 1;
        }
        shapes
    }
}

/// All registers with 16 rows of 64 bytes, on this thread until dropped. The compiler has no values that it would keep in them, so they hold
/// what they hold from one instruction written as assembly to the next.
pub(crate) struct Registers {
    /// They are a thread's own.
    of_this_thread: PhantomData<*const ()>,
}

impl Registers {
    /// # Panics
    /// If there is no such unit.
    pub fn set_up() -> Registers {
        configure(&const { Shapes::new([(16, 64); 8]) });
        Registers { of_this_thread: PhantomData }
    }

    /// Makes the first four zero.
    #[inline(always)]
    pub fn clear_four(&self) {
        // SAFETY: the registers have shapes; no memory is touched.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        release();
    }
}

/// Gives this thread's registers their shapes, and zeros to hold.
///
/// # Panics
/// If there is no such unit.
pub(crate) fn configure(shapes: &Shapes) {
    assert!(is_available(), "a matrix unit");
    // SAFETY: the processor has the unit and the system permits it; the operand is 64 bytes in the layout that the instruction reads, of
    // registers that are no larger than they can be.
    unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(readonly, nostack, preserves_flags)) };
}

/// Lets this thread's registers go. Else the system would have to save them at every switch of threads.
pub(crate) fn release() {
    if is_available() {
        // SAFETY: the processor has the unit; the instruction has no operands.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}
