//! Numbers in two planes of bf16, in the order in which the matrix unit reads them.
//!
//! ```text
//! x ≈ first + second    first: x to 8 bits, rounded    second: what that leaves, to 8 bits
//! ```
//! What both leave is 2⁻¹⁶ of a number at most, and 2⁻¹⁹ on average. Element j and element 16 + j of 32 share a word, so that words are made of
//! vectors without moving anything between lanes.

use std::{arch::x86_64::*, ops::Range};

use super::unit::{HALF, Panel, SIDE};
use crate::cache::LANES;

/// Lays out a query times `factor` as row `row` of `[head_dim / 32]` panels. An empty one is nothing.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn put_query(query: &[f32], factor: f32, row: usize, out: &mut [Panel]) {
    let factor = _mm512_set1_ps(factor);
    let (vectors, rest) = query.as_chunks::<LANES>();
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    for (part, panel) in out.iter_mut().enumerate() {
        let mut halves = [_mm512_setzero_ps(); 2];
        for (i, half) in (2 * part..).zip(&mut halves) {
            match vectors.get(i) {
                Some(vector) => *half = load(vector),
                None if i == vectors.len() => *half = load(&last),
                None => {}
            }
        }
        let [lower, upper] = halves;
        put(panel, row / HALF, row % HALF, split(_mm512_mul_ps(lower, factor), _mm512_mul_ps(upper, factor)));
    }
}

/// Lays out a group of keys, vectors of 16 positions, as that of a block of `[head_dim / 32, 2]` panels of 32 positions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn put_keys(keys: &[[f32; LANES]], group: usize, out: &mut [Panel]) {
    for (part, panels) in out.chunks_exact_mut(2).enumerate() {
        for j in 0..HALF {
            let i = part * SIDE + j;
            let words = split(load_if_any(keys, i), load_if_any(keys, i + HALF));
            put(&mut panels[group / 2], group % 2, j, words);
        }
    }
}

/// Lays out a block of values, `[64, n_vectors]` vectors of 16 elements, as `[2, head_dim / 32]` panels of 32 positions and elements each. Those
/// not at `places` are nothing.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn put_values(values: &[[f32; LANES]], n_vectors: usize, places: Range<usize>, out: &mut [Panel]) {
    let n_parts = out.len() / 2;
    for (part, panels) in out.chunks_exact_mut(n_parts).enumerate() {
        for j in 0..HALF {
            let (place, next) = (part * SIDE + j, part * SIDE + j + HALF);
            let lower = if places.contains(&place) { &values[place * n_vectors..][..n_vectors] } else { &[] };
            let upper = if places.contains(&next) { &values[next * n_vectors..][..n_vectors] } else { &[] };
            for (i, panel) in panels.iter_mut().enumerate() {
                for half in 0..2 {
                    let words = split(load_if_any(lower, 2 * i + half), load_if_any(upper, 2 * i + half));
                    put(panel, half, j, words);
                }
            }
        }
    }
}

/// Writes the first of 32 numbers times `factor`, as many as `out` has.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn put_scaled(numbers: &[f32; SIDE], factor: f32, out: &mut [f32]) {
    let (vectors, rest) = out.as_chunks_mut::<LANES>();
    let n_whole = vectors.len() * LANES;
    for (out, numbers) in vectors.iter_mut().zip(numbers.as_chunks::<LANES>().0) {
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_mul_ps(load(numbers), _mm512_set1_ps(factor))) }
    }
    for (out, number) in rest.iter_mut().zip(&numbers[n_whole..]) {
        *out = number * factor;
    }
}

/// Both planes of 16 pairs of numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn split(lower: __m512, upper: __m512) -> [__m512i; 2] {
    let half = _mm512_set1_epi32(1 << 15);
    let first_bits = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    // What is no number stays so: should rounding make one of it, the second plane still is none.
    let rounded =
        [_mm512_add_epi32(_mm512_castps_si512(lower), half), _mm512_add_epi32(_mm512_castps_si512(upper), half)];
    let left = [
        _mm512_sub_ps(lower, _mm512_castsi512_ps(_mm512_and_si512(rounded[0], first_bits))),
        _mm512_sub_ps(upper, _mm512_castsi512_ps(_mm512_and_si512(rounded[1], first_bits))),
    ];
    [pair(rounded[0], rounded[1]), pair(_mm512_castps_si512(left[0]), _mm512_castps_si512(left[1]))]
}

/// The upper halves of two vectors' words, the first's as lower halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pair(lower: __m512i, upper: __m512i) -> __m512i {
    _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(lower), upper)
}

/// Puts both planes' row `row` of a half in its place.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn put(panel: &mut Panel, half: usize, row: usize, words: [__m512i; 2]) {
    for (plane, words) in panel.0.iter_mut().zip(words) {
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_storeu_si512(plane[half][row].as_mut_ptr().cast(), words) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(numbers: &[f32; LANES]) -> __m512 {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_ps(numbers.as_ptr()) }
}

/// The `i`-th vector, nothing where there is none.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_if_any(vectors: &[[f32; LANES]], i: usize) -> __m512 {
    match vectors.get(i) {
        Some(vector) => load(vector),
        None => _mm512_setzero_ps(),
    }
}
