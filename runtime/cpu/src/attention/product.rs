//! Products of a few rows with a matrix: of queries with keys, and of weights with values.
//!
//! ```text
//! c[r][16 · s + lane] += Σ over i of a[r][i] · b[i · step + s · stride][lane]
//! ```
//! Every sum is one chain of fused multiply-adds in the order of `i`, so its bits depend neither on the instruction set nor on how many rows
//! and strips are computed together.

use std::ops::Range;

use crate::{
    cache::{BLOCK, LANES},
    prefetch,
};

/// One row of `a`; the distance of two rows is a constant, so that one pointer serves all.
pub(super) type Row = [f32; BLOCK];

/// A matrix in vectors of 16 columns.
#[derive(Clone, Copy)]
pub(super) struct Strips<'a> {
    pub vectors: &'a [[f32; LANES]],
    /// From a vector to the one of the next row.
    pub step: usize,
    /// From a vector to the one of the next 16 columns.
    pub stride: usize,
    /// Where a matrix of the same shape begins that is needed next, to be asked for in time.
    pub next: Option<*const [f32; LANES]>,
}

/// Vectors of an instruction set, and how many fit its registers.
pub(super) trait Isa {
    /// 16 f32.
    type Vector: Copy;
    /// Strips computed together where there are enough rows.
    const WIDE: bool;
    /// # Safety
    /// The processor has the instruction set, as for all of these; 16 f32 can be read at `at`.
    unsafe fn load(at: *const f32) -> Self::Vector;
    /// # Safety
    /// 16 f32 can be written at `at`.
    unsafe fn store(at: *mut f32, x: Self::Vector);
    /// `a · b + c`, rounded once.
    ///
    /// # Safety
    /// As above.
    unsafe fn fma(a: f32, b: Self::Vector, c: Self::Vector) -> Self::Vector;
}

/// Adds the product of rows `a` and rows `inner` of `b`, strips `strips`, to `c`, whose rows are `c_len` apart and start with strip 0.
#[inline(always)]
pub(super) fn accumulate<I: Isa>(
    a: &[Row],
    b: Strips<'_>,
    inner: Range<usize>,
    strips: Range<usize>,
    c: &mut [f32],
    c_len: usize,
) {
    let mut first = 0;
    while first < a.len() {
        let a = &a[first..];
        let c = &mut c[first * c_len..];
        first += match a.len() {
            12.. if I::WIDE => rows::<I, 12>(a, b, inner.clone(), strips.clone(), c, c_len),
            8.. if I::WIDE => rows::<I, 8>(a, b, inner.clone(), strips.clone(), c, c_len),
            6.. => rows::<I, 6>(a, b, inner.clone(), strips.clone(), c, c_len),
            4.. => rows::<I, 4>(a, b, inner.clone(), strips.clone(), c, c_len),
            3 => rows::<I, 3>(a, b, inner.clone(), strips.clone(), c, c_len),
            2 => rows::<I, 2>(a, b, inner.clone(), strips.clone(), c, c_len),
            _ => rows::<I, 1>(a, b, inner.clone(), strips.clone(), c, c_len),
        };
    }
}

/// The first `R` rows of `a`. Returns `R`.
#[inline(always)]
fn rows<I: Isa, const R: usize>(
    a: &[Row],
    b: Strips<'_>,
    inner: Range<usize>,
    strips: Range<usize>,
    c: &mut [f32],
    c_len: usize,
) -> usize {
    let mut strip = strips.start;
    if I::WIDE {
        // Memory is what one or two rows wait for: it is best read in the order in which it lies.
        while R <= 2 && strip + 8 <= strips.end {
            tile::<I, R, 8>(a, b, inner.clone(), strip, c, c_len);
            strip += 8;
        }
        while R <= 2 && strip + 4 <= strips.end {
            tile::<I, R, 4>(a, b, inner.clone(), strip, c, c_len);
            strip += 4;
        }
        while strip + 2 <= strips.end {
            tile::<I, R, 2>(a, b, inner.clone(), strip, c, c_len);
            strip += 2;
        }
    }
    while strip < strips.end {
        tile::<I, R, 1>(a, b, inner.clone(), strip, c, c_len);
        strip += 1;
    }
    R
}

/// `R` rows by `S` strips from `strip` on, whose sums stay in registers.
#[inline(always)]
fn tile<I: Isa, const R: usize, const S: usize>(
    a: &[Row],
    b: Strips<'_>,
    inner: Range<usize>,
    strip: usize,
    c: &mut [f32],
    c_len: usize,
) {
    if inner.is_empty() {
        return;
    }
    let a = &a[..R];
    assert!(inner.end <= BLOCK);
    assert!((inner.end - 1) * b.step + (strip + S - 1) * b.stride < b.vectors.len());
    assert!((R - 1) * c_len + (strip + S) * LANES <= c.len());
    // SAFETY: the instruction set is the caller's promise. Within `a` by its type and the first assertion, within `b` and `c` by the others:
    // each of their indices is largest for the last row, strip and element.
    unsafe {
        let c = c.as_mut_ptr().add(strip * LANES);
        let b_first = b.vectors.as_ptr().add(strip * b.stride);
        let mut sums: [[I::Vector; S]; R] = [[I::load(c); S]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (s, sum) in sums.iter_mut().enumerate() {
                *sum = I::load(c.add(r * c_len + s * LANES));
            }
        }
        let a = a.as_ptr().cast::<f32>();
        let next = b.next.unwrap_or(b.vectors.as_ptr()).wrapping_add(strip * b.stride);
        for i in inner {
            let b_row = b_first.add(i * b.step);
            for s in 0..S {
                // A block and the next are more than the first-level cache holds.
                prefetch::second_level(next.wrapping_add(i * b.step + s * b.stride));
            }
            let mut vectors = [I::load(b_row.cast()); S];
            for (s, vector) in vectors.iter_mut().enumerate().skip(1) {
                *vector = I::load(b_row.add(s * b.stride).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let weight = *a.add(r * BLOCK + i);
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = I::fma(weight, vector, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (s, sum) in sums.into_iter().enumerate() {
                I::store(c.add(r * c_len + s * LANES), sum);
            }
        }
    }
}

/// Plain Rust, for every processor.
pub(super) struct Portable;

impl Isa for Portable {
    type Vector = [f32; LANES];
    const WIDE: bool = false;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> [f32; LANES] {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, x: [f32; LANES]) {
        // SAFETY: the caller's promise.
        unsafe { at.cast::<[f32; LANES]>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn fma(a: f32, b: [f32; LANES], mut c: [f32; LANES]) -> [f32; LANES] {
        for lane in 0..LANES {
            c[lane] = a.mul_add(b[lane], c[lane]);
        }
        c
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Isa;

    /// AVX-512 F.
    pub(crate) struct Avx512;

    impl Isa for Avx512 {
        type Vector = __m512;
        const WIDE: bool = true;

        #[inline(always)]
        unsafe fn load(at: *const f32) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_loadu_ps(at) }
        }

        #[inline(always)]
        unsafe fn store(at: *mut f32, x: __m512) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(at, x) }
        }

        #[inline(always)]
        unsafe fn fma(a: f32, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_fmadd_ps(_mm512_set1_ps(a), b, c) }
        }
    }

    /// AVX2 and FMA.
    pub(crate) struct Avx2;

    impl Isa for Avx2 {
        type Vector = [__m256; 2];
        const WIDE: bool = false;

        #[inline(always)]
        unsafe fn load(at: *const f32) -> [__m256; 2] {
            // SAFETY: the caller's promise.
            unsafe { [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))] }
        }

        #[inline(always)]
        unsafe fn store(at: *mut f32, x: [__m256; 2]) {
            // SAFETY: the caller's promise.
            unsafe {
                _mm256_storeu_ps(at, x[0]);
                _mm256_storeu_ps(at.add(8), x[1]);
            }
        }

        #[inline(always)]
        unsafe fn fma(a: f32, b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: the caller's promise.
            unsafe {
                let a = _mm256_set1_ps(a);
                [_mm256_fmadd_ps(a, b[0], c[0]), _mm256_fmadd_ps(a, b[1], c[1])]
            }
        }
    }
}
