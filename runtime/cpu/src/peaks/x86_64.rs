//! Multiplications per instruction set of x86-64. Every step adds to twelve independent sums, so that two units with a latency of up to six
//! cycles never wait. Operands come from memory anew in every step, since the compiler would take products out of the loop otherwise.

#![expect(clippy::needless_range_loop, reason = "a register each")]

use std::{
    arch::{asm, x86_64::*},
    hint::black_box,
};

use super::{Kernel, Kernels, STEPS};
use crate::{amx::Registers, level::Level};

const SUMS: usize = 12;

/// Operands as wide as the widest register.
const BYTES: [i8; 64] = [3; 64];
const FLOATS: [f32; 16] = [0.5; 16];

impl Kernels {
    /// The best there is among `levels`.
    pub fn of(levels: &[Level]) -> Kernels {
        let mut kernels = Kernels::PORTABLE;
        let kernel = |unit, lanes, run| Kernel { unit, macs: STEPS * SUMS * lanes, run };
        for level in levels {
            // SAFETY of the calls: a level is only made where the processor has its instruction sets.
            match level {
                Level::Scalar => {}
                Level::Avx2 => {
                    kernels.int8 = kernel("AVX2", 32, || unsafe { avx2_int8() });
                    kernels.f32 = kernel("AVX2 FMA", 8, || unsafe { avx2_f32() });
                }
                Level::AvxVnni => kernels.int8 = kernel("AVX-VNNI", 32, || unsafe { avx_vnni_int8() }),
                Level::Avx512Vnni => {
                    kernels.int8 = kernel("AVX-512 VNNI", 64, || unsafe { avx512_int8() });
                    kernels.f32 = kernel("AVX-512 FMA", 16, || unsafe { avx512_f32() });
                }
                Level::Amx => {
                    let macs = STEPS * TILES * TILE_ROWS * TILE_ROWS * 64;
                    kernels.int8_matrix = Some(Kernel { unit: "AMX", macs, run: amx_int8 });
                }
            }
        }
        kernels
    }
}

#[target_feature(enable = "avx2")]
fn avx2_int8() {
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_si256(); SUMS];
    for _ in 0..STEPS {
        // SAFETY: 32 of the 64 bytes.
        let x = unsafe { _mm256_loadu_si256(black_box(&BYTES).as_ptr().cast()) };
        for i in 0..SUMS {
            // A different operand each, since products of the same two would be made once.
            let y = _mm256_xor_si256(x, sums[i]);
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx2,fma")]
fn avx2_f32() {
    let mut sums = [_mm256_setzero_ps(); SUMS];
    for _ in 0..STEPS {
        // SAFETY: 8 of the 16 numbers.
        let x = unsafe { _mm256_loadu_ps(black_box(&FLOATS).as_ptr()) };
        for i in 0..SUMS {
            sums[i] = _mm256_fmadd_ps(x, x, sums[i]);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx2,avxvnni")]
fn avx_vnni_int8() {
    let mut sums = [_mm256_setzero_si256(); SUMS];
    for _ in 0..STEPS {
        // SAFETY: 32 of the 64 bytes.
        let x = unsafe { _mm256_loadu_si256(black_box(&BYTES).as_ptr().cast()) };
        for i in 0..SUMS {
            sums[i] = _mm256_dpbusd_avx_epi32(sums[i], x, x);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn avx512_int8() {
    let mut sums = [_mm512_setzero_si512(); SUMS];
    for _ in 0..STEPS {
        // SAFETY: all of the 64 bytes.
        let x = unsafe { _mm512_loadu_si512(black_box(&BYTES).as_ptr().cast()) };
        for i in 0..SUMS {
            sums[i] = _mm512_dpbusd_epi32(sums[i], x, x);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f")]
fn avx512_f32() {
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..STEPS {
        // SAFETY: all of the 16 numbers.
        let x = unsafe { _mm512_loadu_ps(black_box(&FLOATS).as_ptr()) };
        for i in 0..SUMS {
            sums[i] = _mm512_fmadd_ps(x, x, sums[i]);
        }
    }
    black_box(sums);
}

/// Independent sums in the registers of the matrix unit, and their rows.
const TILES: usize = 4;
const TILE_ROWS: usize = 16;

/// The registers hold zeros.
fn amx_int8() {
    let _registers = Registers::set_up();
    // SAFETY: the unit is there, as its registers could be set up, and they can hold what is added to them.
    unsafe {
        asm!(
            "2:",
            "tdpbssd tmm0, tmm4, tmm6",
            "tdpbssd tmm1, tmm4, tmm7",
            "tdpbssd tmm2, tmm5, tmm6",
            "tdpbssd tmm3, tmm5, tmm7",
            "dec {steps}",
            "jnz 2b",
            steps = inout(reg) STEPS => _,
            options(nomem, nostack),
        );
    }
}
