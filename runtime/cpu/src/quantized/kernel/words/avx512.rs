//! AVX-512 VNNI.
//!
//! Sixteen rows to a register: two tiles by six tokens are twelve integer and twelve f32 sums of the 32 registers.
//!
//! There are no closures here: they have the instruction set of the function around them, which the functions of the standard
//! library that would call them lack, so each would be a call with its registers spilled to memory.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

use std::arch::x86_64::*;

use super::{
    super::{
        avx512::{each_at, load_f32, load_sums},
        for_each_size,
    },
    *,
};

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Words]], sums: &mut [Sums]) {
    match tiles {
        [a] => for_each_size!(block, 1, form, [*a], x, sums, [6, 5, 4, 3, 2, 1]),
        [a, b] => for_each_size!(block, 2, form, [*a, *b], x, sums, [6, 5, 4, 3, 2, 1]),
        _ => {}
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn block<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
    tiles: [&[Panel]; N],
    x: [&[Words]; T],
    sums: &mut [Sums; T],
) {
    // So few sums would wait for one another's additions: each is two or four until the end.
    let n_chains = match N * T {
        ..=4 => 4,
        5..=8 => 2,
        _ => 1,
    };
    let mut acc = load_sums::<N, T>(sums);
    for g in 0..tiles[0].len() {
        let (panels, xs) = (each_at(tiles, g), each_at(x, g));
        let mut product = [[_mm512_setzero_ps(); N]; T];
        for part in 0..if HALVES { 2 } else { 1 } {
            let pairs = if HALVES { PAIRS / 2 * part..PAIRS / 2 * (part + 1) } else { 0..PAIRS };
            let mut s = [[[_mm512_setzero_si512(); N]; T]; 4];
            for k in pairs {
                let mut w = [_mm512_setzero_si512(); N];
                for n in 0..N {
                    w[n] = load(&panels[n].codes[k / 2][k % 2]);
                }
                for t in 0..T {
                    let x = _mm512_set1_epi32(xs[t].pair(k));
                    for n in 0..N {
                        let s = &mut s[k % n_chains][t][n];
                        *s = _mm512_dpwssd_epi32(*s, w[n], x);
                    }
                }
            }
            for chain in (1..n_chains).rev() {
                for t in 0..T {
                    for n in 0..N {
                        s[chain - 1][t][n] = _mm512_add_epi32(s[chain - 1][t][n], s[chain][t][n]);
                    }
                }
            }
            for n in 0..N {
                let scales = load_f32(&panels[n].scaling.scales[part]);
                for t in 0..T {
                    let s = _mm512_cvtepi32_ps(s[0][t][n]);
                    product[t][n] =
                        if part == 0 { _mm512_mul_ps(s, scales) } else { _mm512_fmadd_ps(s, scales, product[t][n]) };
                }
            }
        }
        for t in 0..T {
            let scale = _mm512_set1_ps(xs[t].scale);
            for n in 0..N {
                acc[t][n] = _mm512_fmadd_ps(product[t][n], scale, acc[t][n]);
            }
        }
        if MINIMA {
            for n in 0..N {
                let minima = load_f32(&panels[n].scaling.minima);
                for t in 0..T {
                    acc[t][n] = _mm512_fmadd_ps(minima, _mm512_set1_ps(xs[t].scaled_sum), acc[t][n]);
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
fn load(words: &[i16; 2 * ROWS]) -> __m512i {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}
