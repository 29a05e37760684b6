//! AVX-512 VNNI: for eight tokens sixteen integer sums, one for each plane, and eight f32 sums of the 32 registers.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

use std::arch::{asm, x86_64::*};

use super::{
    super::avx512::{Conversions, load, load_f32},
    *,
};
use crate::quantized::scheme::{FAR_BYTES, Header, Scaling, prefetch_part};

/// As [`accumulate`](super::accumulate).
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn accumulate<S: Scheme>(tile: &[u8], n: usize, x: &[&[Group]], sums: &mut [Sums]) {
    // With scales for halves there are products to keep beside the sums.
    let most = if let Form::OffsetOfHalves(_) = S::FORM { 4 } else { 8 };
    for_each_share!(some, most, tile, n, x, sums, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Of the first `T` tokens.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn some<S: Scheme, const T: usize>(tile: &[u8], n: usize, x: &[&[Group]], sums: &mut [Sums]) {
    let (x, sums) = (x.first_chunk::<T>().expect("tokens"), sums.first_chunk_mut::<T>().expect("sums"));
    let mut acc = [_mm512_setzero_ps(); T];
    for t in 0..T {
        acc[t] = load_f32(&sums[t][n]);
    }
    let mut scaling = Scaling::NONE;
    // SAFETY: this function has the instruction set.
    let read = unsafe { Conversions::new() };
    let of_block = S::BLOCK_LEN / GROUP;
    for (b, (block, first)) in tile.chunks_exact(S::TILE_BYTES).zip(x[0].chunks_exact(of_block)).enumerate() {
        let fields = S::Header::fields(block, read);
        for (g, first) in first.iter().enumerate() {
            let codes = &block[S::Header::BYTES + g * S::GROUP_BYTES..][..S::GROUP_BYTES];
            S::Header::unpack(block, &fields, g, &mut scaling, read);
            let mut groups = [first; T];
            for t in 1..T {
                groups[t] = &x[t][b * of_block + g];
            }
            group::<S, T>(codes, &scaling, groups, &mut acc);
        }
    }
    for t in 0..T {
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_storeu_ps(sums[t][n].as_mut_ptr(), acc[t]) };
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn group<S: Scheme, const T: usize>(stored: &[u8], scaling: &Scaling, x: [&Group; T], acc: &mut [__m512; T]) {
    let codes = stored.as_chunks::<64>().0;
    let offset = i32::from(S::FORM.offset());
    let of_halves = matches!(S::FORM, Form::OffsetOfHalves(_));
    // Of each half and plane. One token's would wait for one another's additions if halves had one sum together.
    let is_split = of_halves || T == 1;
    let mut sums = [[[_mm512_setzero_si512(); PLANES]; T]; 2];
    let mut product = [_mm512_setzero_ps(); T];
    for half in 0..2 {
        for k in 4 * half..4 * half + 4 {
            let w = vector::<S>(codes, k);
            for t in 0..T {
                let sums = &mut sums[if is_split { half } else { 0 }][t];
                for plane in 0..PLANES {
                    let x = _mm512_set1_epi32(quad(&x[t].codes[plane], k));
                    sums[plane] = _mm512_dpbusd_epi32(sums[plane], w, x);
                    if T == 1 {
                        sums[plane] = done(sums[plane]);
                    }
                }
            }
            prefetch_part(stored, S::BYTES_PER_GROUP, FAR_BYTES, k, 8);
        }
        if of_halves {
            for t in 0..T {
                let s = _mm512_sub_epi32(total(sums[half][t]), _mm512_set1_epi32(offset * x[t].sums[half]));
                let (s, scales) = (_mm512_cvtepi32_ps(s), load_f32(&scaling.scales[half]));
                product[t] = if half == 0 { _mm512_mul_ps(s, scales) } else { _mm512_fmadd_ps(s, scales, product[t]) };
            }
        }
    }
    if !of_halves {
        for t in 0..T {
            let [mut first, mut second] = sums[0][t];
            if is_split {
                first = _mm512_add_epi32(first, sums[1][t][0]);
                second = _mm512_add_epi32(second, sums[1][t][1]);
            }
            let mut s = total([first, second]);
            if offset > 0 {
                s = _mm512_sub_epi32(s, _mm512_set1_epi32(offset * (x[t].sums[0] + x[t].sums[1])));
            }
            product[t] = _mm512_mul_ps(_mm512_cvtepi32_ps(s), load_f32(&scaling.scales[0]));
        }
    }
    for t in 0..T {
        acc[t] = _mm512_fmadd_ps(product[t], _mm512_set1_ps(x[t].scale), acc[t]);
        if let Form::Minimum = S::FORM {
            acc[t] = _mm512_fmadd_ps(load_f32(&scaling.minima), _mm512_set1_ps(x[t].scaled_sum), acc[t]);
        }
    }
}

/// `x`, computed before the prefetches that follow: the compiler would move all multiplications behind the last of them.
#[inline]
#[target_feature(enable = "avx512f")]
fn done(mut x: __m512i) -> __m512i {
    // SAFETY: no instruction.
    unsafe { asm!("/* {} */", inout(zmm_reg) x, options(nomem, nostack, preserves_flags)) };
    x
}

/// Of both planes.
#[inline]
#[target_feature(enable = "avx512f")]
fn total([first, second]: [__m512i; PLANES]) -> __m512i {
    _mm512_add_epi32(_mm512_slli_epi32::<8>(first), second)
}

/// Vector `k` of a group's codes, as `scheme::unpack` makes it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn vector<S: Scheme>(codes: &[[u8; 64]], k: usize) -> __m512i {
    if S::BITS == 8 {
        return load(&codes[k]);
    }
    let (high, low) = codes.split_at(S::BITS - 4);
    let low = load(&low[k % 4]);
    let low = if k < 4 { low } else { _mm512_srli_epi16::<4>(low) };
    let low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    match S::BITS {
        5 => {
            let set = _mm512_test_epi8_mask(load(&high[0]), _mm512_set1_epi8((1u8 << k) as i8));
            _mm512_or_si512(low, _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16)))
        }
        6 => {
            let pairs = load(&high[k / 4]);
            let pairs = match k % 4 {
                0 => _mm512_slli_epi16::<4>(pairs),
                1 => _mm512_slli_epi16::<2>(pairs),
                2 => pairs,
                _ => _mm512_srli_epi16::<2>(pairs),
            };
            // low | pairs & 48
            _mm512_ternarylogic_epi32::<0xf8>(low, pairs, _mm512_set1_epi8(48))
        }
        _ => low,
    }
}
