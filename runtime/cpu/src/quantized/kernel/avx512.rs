//! AVX-512 VNNI.
//!
//! Sixteen rows to a register: two tiles by six tokens are twelve integer and twelve f32 sums of the 32 registers.
//!
//! There are no closures here: they have the instruction set of the function around them, which the functions of the standard
//! library that would call them lack, so each would be a call with its registers spilled to memory.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

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

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Group]], sums: &mut [Sums]) {
    match tiles {
        [a] => for_each_size!(block, 1, form, [*a], x, sums, [6, 5, 4, 3, 2, 1]),
        [a, b] => for_each_size!(block, 2, form, [*a, *b], x, sums, [6, 5, 4, 3, 2, 1]),
        _ => {}
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn block<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
    form: Form,
    tiles: [&[Panel]; N],
    x: [&[Group]; T],
    sums: &mut [Sums; T],
) {
    let n_groups = tiles[0].len();
    let offset = i32::from(form.offset());
    let mut acc = [[_mm512_setzero_ps(); N]; T];
    for t in 0..T {
        for n in 0..N {
            acc[t][n] = load_f32(&sums[t][n]);
        }
    }
    for g in 0..n_groups {
        let (mut panels, mut xs) = ([&tiles[0][g]; N], [&x[0][g]; T]);
        for n in 1..N {
            panels[n] = &tiles[n][g];
        }
        for t in 1..T {
            xs[t] = &x[t][g];
        }
        let x = xs;
        let mut product = [[_mm512_setzero_ps(); N]; T];
        for part in 0..if HALVES { 2 } else { 1 } {
            let quads = if HALVES { 4 * part..4 * part + 4 } else { 0..8 };
            let mut s = [[_mm512_setzero_si512(); N]; T];
            if T <= 2 {
                // So few sums would wait for one another's additions: each is four until the end.
                let mut split = [[[[_mm512_setzero_si512(); N]; T]; 2]; PLANES];
                for k in quads {
                    for t in 0..T {
                        for plane in 0..PLANES {
                            let x = _mm512_set1_epi32(quad(&x[t].codes[plane], k));
                            for n in 0..N {
                                let s = &mut split[plane][k % 2][t][n];
                                *s = _mm512_dpbusd_epi32(*s, load(&panels[n].codes[k]), x);
                            }
                        }
                    }
                }
                for t in 0..T {
                    for n in 0..N {
                        for plane in 0..PLANES {
                            let of_plane = _mm512_add_epi32(split[plane][0][t][n], split[plane][1][t][n]);
                            s[t][n] = _mm512_add_epi32(_mm512_slli_epi32::<8>(s[t][n]), of_plane);
                        }
                    }
                }
            } else {
                for plane in 0..PLANES {
                    for t in 0..T {
                        for n in 0..N {
                            s[t][n] = _mm512_slli_epi32::<8>(s[t][n]);
                        }
                    }
                    for k in quads.clone() {
                        let mut w = [_mm512_setzero_si512(); N];
                        for n in 0..N {
                            w[n] = load(&panels[n].codes[k]);
                        }
                        for t in 0..T {
                            let x = _mm512_set1_epi32(quad(&x[t].codes[plane], k));
                            for n in 0..N {
                                s[t][n] = _mm512_dpbusd_epi32(s[t][n], w[n], x);
                            }
                        }
                    }
                }
            }
            if !MINIMA {
                for t in 0..T {
                    let sum = if HALVES { x[t].sums[part] } else { x[t].sums[0] + x[t].sums[1] };
                    let sum = _mm512_set1_epi32(offset * sum);
                    for n in 0..N {
                        s[t][n] = _mm512_sub_epi32(s[t][n], sum);
                    }
                }
            }
            let mut scales = [_mm512_setzero_ps(); N];
            for n in 0..N {
                scales[n] = load_f32(&panels[n].scales[part]);
            }
            for t in 0..T {
                for n in 0..N {
                    let s = _mm512_cvtepi32_ps(s[t][n]);
                    product[t][n] = if part == 0 {
                        _mm512_mul_ps(s, scales[n])
                    } else {
                        _mm512_fmadd_ps(s, scales[n], product[t][n])
                    };
                }
            }
        }
        for t in 0..T {
            let scale = _mm512_set1_ps(x[t].scale);
            for n in 0..N {
                acc[t][n] = _mm512_fmadd_ps(product[t][n], scale, acc[t][n]);
            }
        }
        if MINIMA {
            let mut minima = [_mm512_setzero_ps(); N];
            for n in 0..N {
                minima[n] = load_f32(&panels[n].minima);
            }
            for t in 0..T {
                let sum = _mm512_set1_ps(x[t].scaled_sum);
                for n in 0..N {
                    acc[t][n] = _mm512_fmadd_ps(minima[n], sum, acc[t][n]);
                }
            }
        }
    }
    for t in 0..T {
        for n in 0..N {
            // SAFETY: the array is as long as the register.
            unsafe { _mm512_storeu_ps(sums[t][n].as_mut_ptr(), acc[t][n]) };
        }
    }
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
