//! What kernels for AVX-512 have in common.

use std::arch::x86_64::*;

use super::{super::scheme::Read, *};

/// The processor's own conversions. That of halves takes as long for subnormal ones as for others.
#[derive(Clone, Copy)]
pub(super) struct Conversions(());

impl Conversions {
    /// # Safety
    /// The processor must have AVX-512.
    #[inline(always)]
    pub unsafe fn new() -> Conversions {
        Conversions(())
    }
}

// Whoever made the value knew the processor to have the instructions.
impl Read for Conversions {
    #[inline(always)]
    fn halves(self, field: &[u8; 2 * ROWS]) -> Lanes {
        // SAFETY: the processor has the instructions; the array is as long as the register.
        unsafe { lanes(_mm512_cvtph_ps(_mm256_loadu_si256(field.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn bytes(self, field: &[u8; ROWS]) -> Lanes {
        // SAFETY: as above.
        unsafe { lanes(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(field.as_ptr().cast())))) }
    }

    #[inline(always)]
    fn signed_bytes(self, field: &[u8; ROWS]) -> Lanes {
        // SAFETY: as above.
        unsafe { lanes(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(field.as_ptr().cast())))) }
    }
}

/// # Safety
/// The processor must have AVX-512.
#[inline(always)]
unsafe fn lanes(x: __m512) -> Lanes {
    let mut lanes = [0.0; ROWS];
    // SAFETY: the caller's promise; the array is as long as the register.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), x) };
    lanes
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(codes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load_f32(lanes: &Lanes) -> __m512 {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
}

/// The sums of some tokens with the first `N` tiles.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load_sums<const N: usize, const T: usize>(sums: &[Sums; T]) -> [[__m512; N]; T] {
    let mut acc = [[_mm512_setzero_ps(); N]; T];
    for t in 0..T {
        for n in 0..N {
            acc[t][n] = load_f32(&sums[t][n]);
        }
    }
    acc
}

/// The `i`-th of each.
#[inline(always)]
pub(super) fn each_at<P, const N: usize>(all: [&[P]; N], i: usize) -> [&P; N] {
    let mut each = [&all[0][i]; N];
    for n in 1..N {
        each[n] = &all[n][i];
    }
    each
}
