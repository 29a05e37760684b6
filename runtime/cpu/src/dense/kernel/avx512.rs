//! AVX-512 F: a column of a strip is two registers, and with twelve tokens 24 of the 32 are sums.

use std::arch::x86_64::*;

use super::*;

#[target_feature(enable = "avx512f")]
pub unsafe fn products<W: Weight>(run: Run, width: usize) {
    // SAFETY: the caller's promises; the instruction set is this function's.
    unsafe {
        match width {
            12 => sweep::<__m512, W, 2, 12, 12>(run),
            8 => sweep::<__m512, W, 2, 8, 8>(run),
            4 => sweep::<__m512, W, 2, 4, 4>(run),
            2 => sweep::<__m512, W, 2, 2, 2>(run),
            _ => sweep::<__m512, W, 2, 1, 1>(run),
        }
    }
}

#[target_feature(enable = "avx512f")]
pub unsafe fn convert<W: Weight>(run: Run, panel: *mut f32) {
    // SAFETY: the caller's promises; the instruction set is this function's.
    unsafe { convert_pairs::<__m512, W>(run, panel) }
}

// SAFETY of every block below: the promises of the trait.
impl Vector for __m512 {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn plus_product(self, w: Self, x: Self) -> Self {
        unsafe { _mm512_fmadd_ps(w, x, self) }
    }

    #[inline(always)]
    unsafe fn from_bf16(words: *const u32, high: bool) -> Self {
        unsafe {
            let words = _mm512_loadu_si512(words.cast());
            let bits = if high {
                _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32))
            } else {
                _mm512_slli_epi32::<16>(words)
            };
            _mm512_castsi512_ps(bits)
        }
    }

    #[inline(always)]
    unsafe fn from_f16(halves: *const u16) -> Self {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(halves.cast())) }
    }
}
