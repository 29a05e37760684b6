//! AVX2, with AVX-VNNI and without.

use super::{super::for_each_size, *};

/// Defines a version for 256-bit registers, eight rows to each. `$dot(s, w, x)` adds to `s` the products of two columns.
macro_rules! version_of_256_bits {
    ($module:ident, $features:literal, |$s:ident, $w:ident, $x:ident| $dot:expr) => {
        pub mod $module {
            use std::arch::x86_64::*;

            use super::*;

            #[target_feature(enable = $features)]
            pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Words]], sums: &mut [Sums]) {
                for (n, tile) in tiles.iter().enumerate() {
                    for half in 0..2 {
                        for_each_size!(block, 1, form, (*tile, n, half), x, sums, [6, 5, 4, 3, 2, 1]);
                    }
                }
            }

            /// Rows of one half of the `n`-th tile.
            #[target_feature(enable = $features)]
            fn block<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
                (tile, n, half): (&[Panel], usize, usize),
                x: [&[Words]; T],
                sums: &mut [Sums; T],
            ) {
                // So few sums would wait for one another's additions: each is two or four until the end.
                let n_chains = match T {
                    1 => 4,
                    2..=4 => 2,
                    _ => 1,
                };
                let mut acc = [_mm256_setzero_ps(); T];
                for t in 0..T {
                    acc[t] = load_f32(&sums[t][n], half);
                }
                for (g, panel) in tile.iter().enumerate() {
                    let mut xs = [&x[0][g]; T];
                    for t in 1..T {
                        xs[t] = &x[t][g];
                    }
                    let mut product = [_mm256_setzero_ps(); T];
                    for part in 0..if HALVES { 2 } else { 1 } {
                        let pairs = if HALVES { PAIRS / 2 * part..PAIRS / 2 * (part + 1) } else { 0..PAIRS };
                        let mut s = [[_mm256_setzero_si256(); T]; 4];
                        for k in pairs {
                            let w = load(&panel.codes[k / 2][k % 2], half);
                            for t in 0..T {
                                let s = &mut s[k % n_chains][t];
                                *s = dot(*s, w, _mm256_set1_epi32(xs[t].pair(k)));
                            }
                        }
                        for chain in (1..n_chains).rev() {
                            for t in 0..T {
                                s[chain - 1][t] = _mm256_add_epi32(s[chain - 1][t], s[chain][t]);
                            }
                        }
                        let scales = load_f32(&panel.scaling.scales[part], half);
                        for t in 0..T {
                            let s = _mm256_cvtepi32_ps(s[0][t]);
                            product[t] = if part == 0 {
                                _mm256_mul_ps(s, scales)
                            } else {
                                _mm256_fmadd_ps(s, scales, product[t])
                            };
                        }
                    }
                    for t in 0..T {
                        acc[t] = _mm256_fmadd_ps(product[t], _mm256_set1_ps(xs[t].scale), acc[t]);
                    }
                    if MINIMA {
                        let minima = load_f32(&panel.scaling.minima, half);
                        for t in 0..T {
                            acc[t] = _mm256_fmadd_ps(minima, _mm256_set1_ps(xs[t].scaled_sum), acc[t]);
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
            fn dot($s: __m256i, $w: __m256i, $x: __m256i) -> __m256i {
                $dot
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load(words: &[i16; 2 * ROWS], half: usize) -> __m256i {
                let words = &words.as_chunks::<16>().0[half];
                // SAFETY: the array is as long as the register.
                unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
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

version_of_256_bits!(with_vnni, "avx2,fma,avxvnni", |s, w, x| _mm256_dpwssd_avx_epi32(s, w, x));
version_of_256_bits!(without_vnni, "avx2,fma", |s, w, x| _mm256_add_epi32(s, _mm256_madd_epi16(w, x)));
