//! AMX for BF16: 16 tokens by 16 rows and 32 columns in one instruction of sixteen cycles.
//!
//! ```text
//!                    B: rows 0..16 tmm6 | rows 16..32 tmm7
//! A: tokens  0..16 tmm4     C: tmm0     |       tmm1
//!    tokens 16..32 tmm5        tmm2     |       tmm3
//! ```
//! Four sums in turns hide the 52 cycles that one product takes until the next may add to it, and stay in the unit for a whole run of columns.
//! Six loads serve eight products with weights of one plane, and eight loads twelve with weights of two.
//!
//! The instructions are written as assembly, since their intrinsics are not stable.

use std::arch::asm;

use super::{
    ROWS,
    matrix::{PLANES, Step, SumsAt, TOKENS, Tile},
};
use crate::amx::{Registers, multiplies_bf16};

/// The matrix unit, set up on this thread until dropped.
pub struct Unit {
    registers: Registers,
}

impl Unit {
    /// `None` where there is no such unit.
    pub fn new() -> Option<Unit> {
        multiplies_bf16().then(|| Unit { registers: Registers::set_up() })
    }

    /// As that of [`matrix::Unit`](super::matrix::Unit).
    ///
    /// # Safety
    /// As there; and the numbers of columns agree.
    pub unsafe fn accumulate(&self, weights: &[Step], x: &[&[Tile]], sums: SumsAt, add: bool) {
        let wide = x.len() > 1;
        // SAFETY: the caller's promises: as many steps of weights as of tokens, and room for the sums. The registers have 16 rows of 64
        // bytes and keep what they hold.
        unsafe {
            if add {
                load(sums, wide);
            } else {
                self.registers.clear_four();
            }
            if weights.len() == x[0].len() {
                multiply::<1>(weights, x);
            } else {
                multiply::<2>(weights, x);
            }
            store(sums, wide);
        }
    }
}

/// Takes up the sums of 16 tokens or, if `wide`, of 32.
///
/// # Safety
/// The unit is set up, and there are as many sums.
unsafe fn load(sums: SumsAt, wide: bool) {
    let SumsAt { first, stride } = sums;
    // SAFETY: the caller's promises; 16 rows of 64 bytes each are the sums of 16 tokens and 16 rows.
    unsafe {
        asm!(
            "tileloadd tmm0, [{first} + {token}]",
            "tileloadd tmm1, [{first} + {token} + 64]",
            first = in(reg) first,
            token = in(reg) size_of::<f32>() * stride,
            options(nostack, preserves_flags),
        );
        if wide {
            asm!(
                "tileloadd tmm2, [{first} + {token}]",
                "tileloadd tmm3, [{first} + {token} + 64]",
                first = in(reg) first.add(TOKENS * stride),
                token = in(reg) size_of::<f32>() * stride,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Hands them back.
///
/// # Safety
/// The unit is set up, and there are as many sums.
unsafe fn store(sums: SumsAt, wide: bool) {
    let SumsAt { first, stride } = sums;
    // SAFETY: the caller's promises; 16 rows of 64 bytes each are the sums of 16 tokens and 16 rows.
    unsafe {
        asm!(
            "tilestored [{first} + {token}], tmm0",
            "tilestored [{first} + {token} + 64], tmm1",
            first = in(reg) first,
            token = in(reg) size_of::<f32>() * stride,
            options(nostack, preserves_flags),
        );
        if wide {
            asm!(
                "tilestored [{first} + {token}], tmm2",
                "tilestored [{first} + {token} + 64], tmm3",
                first = in(reg) first.add(TOKENS * stride),
                token = in(reg) size_of::<f32>() * stride,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Loads B from a plane of a step's weights.
macro_rules! weights {
    ($plane:literal) => {
        concat!(
            "tileloadd tmm6, [{w} + {pair} + {step} * ",
            $plane,
            "]\n",
            "tileloadd tmm7, [{w} + {pair} + {step} * ",
            $plane,
            " + 64]\n",
        )
    };
}

/// Loads A from a plane of one or two tiles of tokens, and adds its products with B.
macro_rules! tokens {
    (one $plane:literal) => {
        concat!("tileloadd tmm4, [{x0} + {line} + {plane} * ", $plane, "]\n", products!(one))
    };
    (two $plane:literal) => {
        concat!(
            "tileloadd tmm4, [{x0} + {line} + {plane} * ",
            $plane,
            "]\n",
            products!(one),
            "tileloadd tmm5, [{x1} + {line} + {plane} * ",
            $plane,
            "]\n",
            products!(other),
        )
    };
}

/// Adds the products of A and B as they are.
macro_rules! products {
    (one) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7\n"
    };
    (other) => {
        "tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7\n"
    };
    (two) => {
        concat!(products!(one), products!(other))
    };
}

/// Runs the `$part`s with the named pointers.
macro_rules! step {
    ($($pointer:ident)*: $($part:expr),*) => {
        asm!(
            $($part,)*
            $($pointer = in(reg) $pointer,)*
            pair = in(reg) size_of::<[[u16; 2]; ROWS]>(),
            line = in(reg) 64usize,
            plane = const size_of::<Tile>() / PLANES,
            step = const size_of::<Step>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Adds the products in all steps to the sums, of the planes that [`terms`](super::matrix::terms) lists.
///
/// # Safety
/// The unit is set up; there are as many steps of so many planes of weights as tiles.
unsafe fn multiply<const WEIGHT_PLANES: usize>(weights: &[Step], x: &[&[Tile]]) {
    for (i, w) in weights.chunks_exact(WEIGHT_PLANES).enumerate() {
        let (w, x0) = (w.as_ptr(), &raw const x[0][i]);
        // SAFETY: the caller's promises. Rows of B are the 64 bytes of 16 rows in a pair of columns, and rows of A those of a token in 32 columns.
        unsafe {
            match (x.get(1), WEIGHT_PLANES) {
                (None, 1) => step!(w x0: weights!(0), tokens!(one 1), tokens!(one 0)),
                (None, _) => step!(w x0: weights!(0), tokens!(one 1), tokens!(one 0), weights!(1), products!(one)),
                (Some(x1), 1) => {
                    let x1 = &raw const x1[i];
                    step!(w x0 x1: weights!(0), tokens!(two 1), tokens!(two 0));
                }
                (Some(x1), _) => {
                    let x1 = &raw const x1[i];
                    step!(w x0 x1: weights!(0), tokens!(two 1), tokens!(two 0), weights!(1), products!(two));
                }
            }
        }
    }
}
