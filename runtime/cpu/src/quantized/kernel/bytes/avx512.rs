//! AVX-512 VNNI.
//!
//! Sixteen rows to a register: two tiles by six tokens are twelve integer and twelve f32 sums of the 32 registers.
//!
//! No closures here, as in [the kernel for words](super::super::words).

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

use std::arch::x86_64::*;

use super::{
    super::{
        avx512::{each_at, load_f32, load_sums},
        for_each_size, quad,
    },
    *,
};

/// Vectors of codes in a group.
const QUADS: usize = GROUP / 4;

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Bytes]], sums: &mut [Sums]) {
    match tiles {
        [a] => for_each_size!(block, 1, form, (form.start(), [*a]), x, sums, [6, 5, 4, 3, 2, 1]),
        [a, b] => for_each_size!(block, 2, form, (form.start(), [*a, *b]), x, sums, [6, 5, 4, 3, 2, 1]),
        _ => {}
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn block<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
    (start, tiles): (usize, [&[Panel]; N]),
    x: [&[Bytes]; T],
    sums: &mut [Sums; T],
) {
    assert!(start + usize::from(HALVES) < N_STARTS, "what sums start with");
    let mut acc = load_sums::<N, T>(sums);
    for g in 0..tiles[0].len() {
        let (panels, xs) = (each_at(tiles, g), each_at(x, g));
        add_products::<N, T, HALVES, MINIMA>(start, panels, xs, &mut acc);
        if MINIMA {
            for n in 0..N {
                let minima = load_f32(&panels[n].scaling.minima);
                for t in 0..T {
                    acc[t][n] = _mm512_fmadd_ps(minima, _mm512_set1_ps(xs[t].scaled_sum), acc[t][n]);
                }
            }
        }
    }
    // One token at a time, since each has rests of other groups.
    for t in 0..T {
        let mut of_token = [acc[t]];
        for rest in &x[t][tiles[0].len()..] {
            add_products::<N, 1, HALVES, MINIMA>(start, each_at(tiles, rest.group as usize), [rest], &mut of_token);
        }
        for n in 0..N {
            // SAFETY: the array is as long as the register.
            unsafe { _mm512_storeu_ps(sums[t][n].as_mut_ptr(), of_token[0][n]) };
        }
    }
}

/// Of a group of each tile with one of each token.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_products<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
    start: usize,
    panels: [&Panel; N],
    x: [&Bytes; T],
    acc: &mut [[__m512; N]; T],
) {
    // So few sums would wait for one another's additions: each is two until the end.
    let n_chains = if N * T <= 8 { 2 } else { 1 };
    let mut product = [[_mm512_setzero_ps(); N]; T];
    for part in 0..if HALVES { 2 } else { 1 } {
        let quads = if HALVES { QUADS / 2 * part..QUADS / 2 * (part + 1) } else { 0..QUADS };
        let mut s = [[[_mm512_setzero_si512(); N]; T]; 2];
        for t in 0..T {
            let first = if MINIMA { ROUND.to_bits() as i32 } else { x[t].starts[start + part] };
            s[0][t] = [_mm512_set1_epi32(first); N];
        }
        for k in quads {
            let mut w = [_mm512_setzero_si512(); N];
            for n in 0..N {
                w[n] = load(&panels[n].codes[k]);
            }
            for t in 0..T {
                let x = _mm512_set1_epi32(quad(&x[t].codes, k));
                for n in 0..N {
                    let s = &mut s[k % n_chains][t][n];
                    *s = _mm512_dpbusd_epi32(*s, w[n], x);
                }
            }
        }
        if n_chains == 2 {
            for t in 0..T {
                for n in 0..N {
                    s[0][t][n] = _mm512_add_epi32(s[0][t][n], s[1][t][n]);
                }
            }
        }
        for n in 0..N {
            let scales = load_f32(&panels[n].scaling.scales[part]);
            let without = _mm512_mul_ps(scales, _mm512_set1_ps(-ROUND));
            for t in 0..T {
                let of_part = _mm512_fmadd_ps(_mm512_castsi512_ps(s[0][t][n]), scales, without);
                product[t][n] = if part == 0 { of_part } else { _mm512_add_ps(of_part, product[t][n]) };
            }
        }
    }
    for t in 0..T {
        let scale = _mm512_set1_ps(x[t].scale);
        for n in 0..N {
            acc[t][n] = _mm512_fmadd_ps(product[t][n], scale, acc[t][n]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(codes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}
