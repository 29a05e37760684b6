//! Products of panels on the matrix unit.
//!
//! ```text
//! C 32 rows x 32 columns, f32  +=  A 32 rows x 32 · B 32 x 32 columns     with A and B of two planes of bf16 each
//! ```
//! Of the four products of planes the one of both second planes is left out: it is smaller than what the planes leave out of a number. C takes
//! four registers, enough sums in flight to hide the time that each takes; the other four are two halves of A and of B.

use std::arch::asm;

use crate::amx::{Registers, multiplies_bf16};

/// Rows of a register, and numbers of 32 bits in a row of it.
pub(super) const HALF: usize = 16;
/// Rows or columns of a panel.
pub(super) const SIDE: usize = 2 * HALF;

/// 32 rows of A by 32 elements, or 32 elements of B by 32 columns, split into planes: `[plane][half of the rows or columns]`, and in each of
/// those `[row][pair of elements]` of A or `[pair of elements][column]` of B.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Panel(pub [[[[u32; HALF]; HALF]; 2]; 2]);

impl Panel {
    pub const EMPTY: Panel = Panel([[[[0; HALF]; HALF]; 2]; 2]);
}

/// The matrix unit, set up for panels on this thread until dropped.
pub(super) struct Unit {
    registers: Registers,
}

/// Sums of 32 rows and 32 columns within an array, rows so many bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    first: *mut f32,
    row_bytes: usize,
}

impl Sums {
    /// The 32 columns of `rows` from `column` on.
    pub fn within<const N: usize>(rows: &mut [[f32; N]; SIDE], column: usize) -> Sums {
        assert!(column + SIDE <= N, "within the rows");
        Sums { first: rows.as_flattened_mut()[column..].as_mut_ptr(), row_bytes: 4 * N }
    }
}

/// Runs one instruction with C's four registers and their places.
macro_rules! with_sums {
    ($instruction:tt, $sums:ident, $($option:ident),*) => {
        asm!(
            with_sums!(@ $instruction, "tmm0", "{first} + {row}*1"),
            with_sums!(@ $instruction, "tmm1", "{first} + {row} + 64"),
            with_sums!(@ $instruction, "tmm2", "{second} + {row}*1"),
            with_sums!(@ $instruction, "tmm3", "{second} + {row} + 64"),
            first = in(reg) $sums.first,
            second = in(reg) $sums.first.byte_add(HALF * $sums.row_bytes),
            row = in(reg) $sums.row_bytes,
            options(nostack, preserves_flags $(, $option)*),
        )
    };
    (@ "tilestored", $register:literal, $place:literal) => { concat!("tilestored [", $place, "], ", $register) };
    (@ "tileloadd", $register:literal, $place:literal) => { concat!("tileloadd ", $register, ", [", $place, "]") };
}

impl Unit {
    /// `None` where there is no such unit.
    pub fn new() -> Option<Unit> {
        multiplies_bf16().then(|| Unit { registers: Registers::set_up() })
    }

    /// Sums of nothing.
    #[inline(always)]
    pub fn clear(&self) {
        self.registers.clear_four();
    }

    /// Takes up `sums` to go on with them.
    #[inline(always)]
    pub fn take_up(&self, sums: Sums) {
        // SAFETY: registers have 16 rows of 64 bytes, so the four are the 32 columns of 32 rows that `Sums::within` has checked.
        unsafe { with_sums!("tileloadd", sums, readonly) };
    }

    /// Puts the sums down.
    #[inline(always)]
    pub fn put_down(&self, sums: Sums) {
        // SAFETY: as in `take_up`.
        unsafe { with_sums!("tilestored", sums,) };
    }

    /// Adds `a · b` to the sums.
    #[inline(always)]
    pub fn add_product(&self, a: &Panel, b: &Panel) {
        // SAFETY: there is a unit whose registers have 16 rows of 64 bytes, and a panel is four times that. The compiler has no values that it
        // would keep in these registers, so they last from one of these blocks to the next.
        unsafe {
            asm!(
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm6, [{b} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b} + {row} + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {row} + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{a} + {row} + 2048]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {row} + 3072]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tileloadd tmm6, [{b} + {row} + 2048]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm7, [{b} + {row} + 3072]",
                "tileloadd tmm4, [{a} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {row} + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                a = in(reg) a,
                b = in(reg) b,
                row = in(reg) 4 * HALF,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}
