//! One token, straight from a tile, with AVX-512 VNNI.
//!
//! With one token a panel would be written once and read once. Here codes go from memory to the product within registers, in the steps of
//! the definition.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

use std::arch::x86_64::*;

use super::{
    super::scheme::{FAR_BYTES, Header, Scheme, prefetch_part},
    avx512::{Conversions, load, load_f32},
    *,
};

/// Adds the product of a `tile` with a token to `sums`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn accumulate<S: Scheme>(tile: &[u8], x: &[Group], sums: &mut Lanes) {
    let mut acc = load_f32(sums);
    // Of which only the scales and minima are used.
    let mut panel = Panel::EMPTY;
    // SAFETY: this function has the instruction set.
    let read = unsafe { Conversions::new() };
    for (block, x) in tile.chunks_exact(S::TILE_BYTES).zip(x.chunks_exact(S::BLOCK_LEN / GROUP)) {
        let fields = S::Header::fields(block, read);
        for (g, x) in x.iter().enumerate() {
            let codes = &block[S::Header::BYTES + g * S::GROUP_BYTES..][..S::GROUP_BYTES];
            S::Header::unpack(block, &fields, g, &mut panel, read);
            acc = group::<S>(codes, &panel, x, acc);
        }
    }
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), acc) };
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn group<S: Scheme>(stored: &[u8], panel: &Panel, x: &Group, acc: __m512) -> __m512 {
    let codes = stored.as_chunks::<64>().0;
    let mut sums = [[_mm512_setzero_si512(); PLANES]; 2];
    for k in 0..8 {
        let w = vector::<S>(codes, k);
        for plane in 0..PLANES {
            let x = _mm512_set1_epi32(quad(&x.codes[plane], k));
            sums[k / 4][plane] = _mm512_dpbusd_epi32(sums[k / 4][plane], w, x);
        }
        prefetch_part(stored, S::BYTES_PER_GROUP, FAR_BYTES, k, 8);
    }
    let offset = i32::from(S::FORM.offset());
    let product = if let Form::OffsetOfHalves(_) = S::FORM {
        let mut of_half = [_mm512_setzero_ps(); 2];
        for half in 0..2 {
            let s = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[half][0]), sums[half][1]);
            of_half[half] = _mm512_cvtepi32_ps(_mm512_sub_epi32(s, _mm512_set1_epi32(offset * x.sums[half])));
        }
        let first = _mm512_mul_ps(of_half[0], load_f32(&panel.scales[0]));
        _mm512_fmadd_ps(of_half[1], load_f32(&panel.scales[1]), first)
    } else {
        let first = _mm512_add_epi32(sums[0][0], sums[1][0]);
        let mut s = _mm512_add_epi32(_mm512_slli_epi32::<8>(first), _mm512_add_epi32(sums[0][1], sums[1][1]));
        if offset > 0 {
            s = _mm512_sub_epi32(s, _mm512_set1_epi32(offset * (x.sums[0] + x.sums[1])));
        }
        _mm512_mul_ps(_mm512_cvtepi32_ps(s), load_f32(&panel.scales[0]))
    };
    let acc = _mm512_fmadd_ps(product, _mm512_set1_ps(x.scale), acc);
    if let Form::Minimum = S::FORM {
        _mm512_fmadd_ps(load_f32(&panel.minima), _mm512_set1_ps(x.scaled_sum), acc)
    } else {
        acc
    }
}

/// Vector `k` of a group's codes, as `scheme::unpack` makes it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn vector<S: Scheme>(codes: &[[u8; 64]], k: usize) -> __m512i {
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
