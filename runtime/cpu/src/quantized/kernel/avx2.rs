//! AVX2, with AVX-VNNI and without.

use super::*;

/// Defines a version for 256-bit registers, eight rows to each: three tokens by eight rows are three integer and three f32 sums, which
/// leaves enough of 16 registers for the widening of products. `$dot(s, codes, x, signed)` adds to `s` the products of four columns.
macro_rules! version_of_256_bits {
    ($module:ident, $features:literal, $signed:literal, |$s:ident, $w:ident, $x:ident, $is_signed:ident| $dot:expr) => {
        pub mod $module {
            use std::arch::x86_64::*;

            use super::*;

            #[target_feature(enable = $features)]
            pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Group]], sums: &mut [Sums]) {
                for (n, tile) in tiles.iter().enumerate() {
                    for half in 0..2 {
                        for_each_size!(block, 1, form, (*tile, n, half), x, sums, [3, 2, 1]);
                    }
                }
            }

            /// Rows of one half of the `n`-th tile.
            #[target_feature(enable = $features)]
            fn block<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
                form: Form,
                (tile, n, half): (&[Panel], usize, usize),
                x: [&[Group]; T],
                sums: &mut [Sums; T],
            ) {
                let offset = i32::from(form.offset());
                // Codes of eight bits that this version turns back into signed ones.
                let signed = $signed && offset == 128;
                let mut acc = [_mm256_setzero_ps(); T];
                for t in 0..T {
                    acc[t] = load_f32(&sums[t][n], half);
                }
                for (g, panel) in tile.iter().enumerate() {
                    let mut xs = [&x[0][g]; T];
                    for t in 1..T {
                        xs[t] = &x[t][g];
                    }
                    let x = xs;
                    let mut product = [_mm256_setzero_ps(); T];
                    for part in 0..if HALVES { 2 } else { 1 } {
                        let quads = if HALVES { 4 * part..4 * part + 4 } else { 0..8 };
                        let mut s = [_mm256_setzero_si256(); T];
                        for plane in 0..PLANES {
                            for k in quads.clone() {
                                let w = load(&panel.codes[k], half);
                                for t in 0..T {
                                    let x = _mm256_set1_epi32(quad(&x[t].codes[plane], k));
                                    s[t] = dot(s[t], w, x, signed);
                                }
                            }
                            if plane + 1 < PLANES {
                                for t in 0..T {
                                    s[t] = _mm256_slli_epi32::<8>(s[t]);
                                }
                            }
                        }
                        let scales = load_f32(&panel.scales[part], half);
                        for t in 0..T {
                            if !MINIMA && !signed {
                                let sum = if HALVES { x[t].sums[part] } else { x[t].sums[0] + x[t].sums[1] };
                                s[t] = _mm256_sub_epi32(s[t], _mm256_set1_epi32(offset * sum));
                            }
                            let s = _mm256_cvtepi32_ps(s[t]);
                            product[t] = if part == 0 {
                                _mm256_mul_ps(s, scales)
                            } else {
                                _mm256_fmadd_ps(s, scales, product[t])
                            };
                        }
                    }
                    for t in 0..T {
                        acc[t] = _mm256_fmadd_ps(product[t], _mm256_set1_ps(x[t].scale), acc[t]);
                    }
                    if MINIMA {
                        let minima = load_f32(&panel.minima, half);
                        for t in 0..T {
                            acc[t] = _mm256_fmadd_ps(minima, _mm256_set1_ps(x[t].scaled_sum), acc[t]);
                        }
                    }
                }
                for t in 0..T {
                    let rows = &mut sums[t][n].as_chunks_mut::<8>().0[half];
                    // SAFETY: the array is as long as the register.
                    unsafe { _mm256_storeu_ps(rows.as_mut_ptr(), acc[t]) };
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn dot($s: __m256i, $w: __m256i, $x: __m256i, $is_signed: bool) -> __m256i {
                $dot
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load(codes: &[u8; 64], half: usize) -> __m256i {
                let codes = &codes.as_chunks::<32>().0[half];
                // SAFETY: the array is as long as the register.
                unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load_f32(lanes: &Lanes, half: usize) -> __m256 {
                let rows = &lanes.as_chunks::<8>().0[half];
                // SAFETY: the array is as long as the register.
                unsafe { _mm256_loadu_ps(rows.as_ptr()) }
            }
        }
    };
}

version_of_256_bits!(with_vnni, "avx2,fma,avxvnni", false, |s, w, x, _signed| _mm256_dpbusd_avx_epi32(s, w, x));

// Products of two columns are added in 16 bits, where 2 · 63 · 127 fits and 2 · 255 · 127 does not: codes of eight bits become a magnitude, and
// their sign the other factor's, for 2 · 128 · 127 < 2¹⁵.
version_of_256_bits!(without_vnni, "avx2,fma", true, |s, w, x, signed| {
    let pairs = if signed {
        let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    } else {
        _mm256_maddubs_epi16(w, x)
    };
    _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
});
