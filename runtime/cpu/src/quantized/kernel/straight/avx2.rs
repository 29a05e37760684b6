//! AVX2, with AVX-VNNI and without: eight rows to a register.

use std::arch::x86_64::*;

use super::*;
use crate::quantized::{
    header::Portable,
    scheme::{FAR_BYTES, Header, Read, Scaling, prefetch_part},
};

/// The processor's own conversion of halves, which takes as long for subnormal ones as for others; bytes need none of their own.
#[derive(Clone, Copy)]
struct Conversions(());

// Only made where there are the instructions.
impl Read for Conversions {
    #[inline(always)]
    fn halves(self, field: &[u8; 2 * ROWS]) -> Lanes {
        let mut lanes = [0.0; ROWS];
        for (halves, lanes) in field.as_chunks::<16>().0.iter().zip(lanes.as_chunks_mut::<8>().0) {
            // SAFETY: the processor has the instructions; the arrays are as long as the registers.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()))) };
        }
        lanes
    }

    #[inline(always)]
    fn bytes(self, field: &[u8; ROWS]) -> Lanes {
        Portable.bytes(field)
    }

    #[inline(always)]
    fn signed_bytes(self, field: &[u8; ROWS]) -> Lanes {
        Portable.signed_bytes(field)
    }
}

/// Defines a version, for up to `$most` tokens at a time: with more the registers do not suffice, and with scales for halves there are products to
/// keep beside the sums. Sums are two for each token: `$products(sums, codes, x, k)` adds the products of quad `k` of columns, and `$total(sums)`
/// is what both stand for.
macro_rules! version_of_256_bits {
    ($module:ident, $features:literal, $token:ident, $most:expr, |$s:ident, $w:ident, $x:ident, $k:ident| $products:expr, |$sums:ident| $total:expr) => {
        pub mod $module {
            use super::*;

            /// As [`accumulate`](super::super::accumulate).
            #[target_feature(enable = $features)]
            pub fn accumulate<S: Scheme>(tile: &[u8], n: usize, x: &[&[$token]], sums: &mut [Sums]) {
                for_each_share!(
                    some,
                    if let Form::OffsetOfHalves(_) = S::FORM { 3 } else { $most },
                    tile,
                    n,
                    x,
                    sums,
                    [1, 2, 3, 4]
                );
            }

            /// Of the first `T` tokens.
            #[inline]
            #[target_feature(enable = $features)]
            fn some<S: Scheme, const T: usize>(tile: &[u8], n: usize, x: &[&[$token]], sums: &mut [Sums]) {
                let (x, sums) = (x.first_chunk::<T>().expect("tokens"), sums.first_chunk_mut::<T>().expect("sums"));
                let mut acc = [[_mm256_setzero_ps(); T]; 2];
                for rows in 0..2 {
                    for t in 0..T {
                        acc[rows][t] = load_f32(&sums[t][n], rows);
                    }
                }
                let mut scaling = Scaling::NONE;
                let of_block = S::BLOCK_LEN / GROUP;
                for (b, (block, first)) in tile.chunks_exact(S::TILE_BYTES).zip(x[0].chunks_exact(of_block)).enumerate()
                {
                    let fields = S::Header::fields(block, Conversions(()));
                    for (g, first) in first.iter().enumerate() {
                        let codes = &block[S::Header::BYTES + g * S::GROUP_BYTES..][..S::GROUP_BYTES];
                        S::Header::unpack(block, &fields, g, &mut scaling, Conversions(()));
                        let mut groups = [first; T];
                        for t in 1..T {
                            groups[t] = &x[t][b * of_block + g];
                        }
                        for rows in 0..2 {
                            group::<S, T>(codes, rows, &scaling, groups, &mut acc[rows]);
                        }
                    }
                }
                for rows in 0..2 {
                    for t in 0..T {
                        let sums = &mut sums[t][n].as_chunks_mut::<8>().0[rows];
                        // SAFETY: the array is as long as the register.
                        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), acc[rows][t]) };
                    }
                }
            }

            /// Of one half of the tile's rows.
            #[inline]
            #[target_feature(enable = $features)]
            fn group<S: Scheme, const T: usize>(
                stored: &[u8],
                rows: usize,
                scaling: &Scaling,
                x: [&$token; T],
                acc: &mut [__m256; T],
            ) {
                let codes = stored.as_chunks::<64>().0;
                let offset = i32::from(S::FORM.offset());
                let of_halves = matches!(S::FORM, Form::OffsetOfHalves(_));
                let mut sums = [[_mm256_setzero_si256(); 2]; T];
                let mut product = [_mm256_setzero_ps(); T];
                quads::<S, T, 0>(codes, rows, x, &mut sums);
                if of_halves {
                    let scales = load_f32(&scaling.scales[0], rows);
                    for t in 0..T {
                        let s = _mm256_sub_epi32(total(sums[t]), _mm256_set1_epi32(offset * x[t].sums[0]));
                        product[t] = _mm256_mul_ps(_mm256_cvtepi32_ps(s), scales);
                        sums[t] = [_mm256_setzero_si256(); 2];
                    }
                }
                quads::<S, T, 1>(codes, rows, x, &mut sums);
                if of_halves {
                    let scales = load_f32(&scaling.scales[1], rows);
                    for t in 0..T {
                        let s = _mm256_sub_epi32(total(sums[t]), _mm256_set1_epi32(offset * x[t].sums[1]));
                        product[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), scales, product[t]);
                    }
                }
                if !of_halves {
                    let scales = load_f32(&scaling.scales[0], rows);
                    for t in 0..T {
                        let mut s = total(sums[t]);
                        if offset > 0 {
                            s = _mm256_sub_epi32(s, _mm256_set1_epi32(offset * (x[t].sums[0] + x[t].sums[1])));
                        }
                        product[t] = _mm256_mul_ps(_mm256_cvtepi32_ps(s), scales);
                    }
                }
                for t in 0..T {
                    acc[t] = _mm256_fmadd_ps(product[t], _mm256_set1_ps(x[t].scale), acc[t]);
                    if let Form::Minimum = S::FORM {
                        let minima = load_f32(&scaling.minima, rows);
                        acc[t] = _mm256_fmadd_ps(minima, _mm256_set1_ps(x[t].scaled_sum), acc[t]);
                    }
                }
            }

            /// Adds the products of half of the columns. One half's code knows which codes it unpacks how.
            #[inline]
            #[target_feature(enable = $features)]
            fn quads<S: Scheme, const T: usize, const HALF: usize>(
                codes: &[[u8; 64]],
                rows: usize,
                x: [&$token; T],
                sums: &mut [[__m256i; 2]; T],
            ) {
                for k in 4 * HALF..4 * HALF + 4 {
                    let w = vector::<S>(codes, k, rows);
                    for t in 0..T {
                        sums[t] = products(sums[t], w, x[t], k);
                    }
                    prefetch_part(codes.as_flattened(), S::BYTES_PER_GROUP, FAR_BYTES, 8 * rows + k, 16);
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn products($s: [__m256i; 2], $w: __m256i, $x: &$token, $k: usize) -> [__m256i; 2] {
                $products
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn total($sums: [__m256i; 2]) -> __m256i {
                $total
            }
        }
    };
}

version_of_256_bits!(
    with_vnni,
    "avx2,fma,f16c,avxvnni",
    Group,
    3,
    |sums, w, x, k| [
        _mm256_dpbusd_avx_epi32(sums[0], w, _mm256_set1_epi32(quad(&x.codes[0], k))),
        _mm256_dpbusd_avx_epi32(sums[1], w, _mm256_set1_epi32(quad(&x.codes[1], k))),
    ],
    |sums| _mm256_add_epi32(_mm256_slli_epi32::<8>(sums[0]), sums[1])
);

// Columns one and three of a quad, and two and four.
version_of_256_bits!(
    without_vnni,
    "avx2,fma,f16c",
    Words,
    4,
    |sums, w, x, k| {
        let even = _mm256_and_si256(w, _mm256_set1_epi16(255));
        let odd = _mm256_srli_epi16::<8>(w);
        [
            _mm256_add_epi32(sums[0], _mm256_madd_epi16(even, _mm256_set1_epi32(x.pair(2 * k)))),
            _mm256_add_epi32(sums[1], _mm256_madd_epi16(odd, _mm256_set1_epi32(x.pair(2 * k + 1)))),
        ]
    },
    |sums| _mm256_add_epi32(sums[0], sums[1])
);

/// Codes `k` of a group, of one half of the rows, as `scheme::unpack` makes them.
#[inline]
#[target_feature(enable = "avx2")]
fn vector<S: Scheme>(codes: &[[u8; 64]], k: usize, rows: usize) -> __m256i {
    if S::BITS == 8 {
        return load(&codes[k], rows);
    }
    let (high, low) = codes.split_at(S::BITS - 4);
    let low = load(&low[k % 4], rows);
    let low = if k < 4 { low } else { _mm256_srli_epi16::<4>(low) };
    let low = _mm256_and_si256(low, _mm256_set1_epi8(15));
    match S::BITS {
        5 => {
            let bits = load(&high[0], rows);
            let bits = match k {
                0 => _mm256_slli_epi16::<4>(bits),
                1 => _mm256_slli_epi16::<3>(bits),
                2 => _mm256_slli_epi16::<2>(bits),
                3 => _mm256_slli_epi16::<1>(bits),
                4 => bits,
                5 => _mm256_srli_epi16::<1>(bits),
                6 => _mm256_srli_epi16::<2>(bits),
                _ => _mm256_srli_epi16::<3>(bits),
            };
            _mm256_or_si256(low, _mm256_and_si256(bits, _mm256_set1_epi8(16)))
        }
        6 => {
            let pairs = load(&high[k / 4], rows);
            let pairs = match k % 4 {
                0 => _mm256_slli_epi16::<4>(pairs),
                1 => _mm256_slli_epi16::<2>(pairs),
                2 => pairs,
                _ => _mm256_srli_epi16::<2>(pairs),
            };
            _mm256_or_si256(low, _mm256_and_si256(pairs, _mm256_set1_epi8(48)))
        }
        _ => low,
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(codes: &[u8; 64], rows: usize) -> __m256i {
    let codes = &codes.as_chunks::<32>().0[rows];
    // SAFETY: the array is as long as the register.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(lanes: &Lanes, rows: usize) -> __m256 {
    let lanes = &lanes.as_chunks::<8>().0[rows];
    // SAFETY: the array is as long as the register.
    unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
}
