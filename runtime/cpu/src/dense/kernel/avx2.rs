//! AVX2 with FMA and F16C: half a strip at a time, a column of which is two registers, and with six tokens 12 of the 16 are sums.

use std::arch::x86_64::*;

use super::*;

#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn products<W: Weight>(run: Run, width: usize) {
    // SAFETY: the caller's promises; the instruction sets are this function's.
    unsafe {
        match width {
            12 => sweep::<__m256, W, 2, 6, 12>(run),
            8 => sweep::<__m256, W, 2, 4, 8>(run),
            4 => sweep::<__m256, W, 2, 4, 4>(run),
            2 => sweep::<__m256, W, 4, 2, 2>(run),
            _ => sweep::<__m256, W, 4, 1, 1>(run),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn convert<W: Weight>(run: Run, panel: *mut f32) {
    // SAFETY: the caller's promises; the instruction sets are this function's.
    unsafe { convert_pairs::<__m256, W>(run, panel) }
}

// SAFETY of every block below: the promises of the trait.
impl Vector for __m256 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn plus_product(self, w: Self, x: Self) -> Self {
        unsafe { _mm256_fmadd_ps(w, x, self) }
    }

    #[inline(always)]
    unsafe fn from_bf16(words: *const u32, high: bool) -> Self {
        unsafe {
            let words = _mm256_loadu_si256(words.cast());
            let bits = if high {
                _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32))
            } else {
                _mm256_slli_epi32::<16>(words)
            };
            _mm256_castsi256_ps(bits)
        }
    }

    #[inline(always)]
    unsafe fn from_f16(halves: *const u16) -> Self {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(halves.cast())) }
    }
}
