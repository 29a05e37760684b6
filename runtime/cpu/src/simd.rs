//! The inner products everything else is made of.
//!
//! One generic body in plain Rust that the compiler turns into vector code, compiled once for the baseline and once for each wider
//! instruction set of x86-64; which one runs is the process's level. Every product is summed in running sums, one per lane,
//! then pairwise. The number of lanes, and so the last bits of a sum, depends on the instruction set, and on nothing else.

#[cfg(target_arch = "x86_64")]
use crate::level::Level;

/// `rows[r] · x` for four rows, so that each load of `x` serves four products.
pub(crate) fn dot4(rows: [&[f32]; 4], x: &[f32]) -> [f32; 4] {
    dispatch(rows, x)
}

/// `a · b`.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    dispatch([a], b)[0]
}

/// `y += a · x`.
pub(crate) fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
}

#[cfg(target_arch = "x86_64")]
fn dispatch<const N: usize>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    match Level::current() {
        // SAFETY: a level is only made where the processor has its instruction sets.
        Level::Avx512Vnni | Level::Amx => unsafe { products_avx512(rows, x) },
        // SAFETY: as above.
        Level::Avx2 | Level::AvxVnni => unsafe { products_avx2(rows, x) },
        Level::Scalar => products::<N, 8, false>(rows, x),
    }
}

/// NEON is part of the baseline, with a fused multiply-add.
#[cfg(not(target_arch = "x86_64"))]
fn dispatch<const N: usize>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    products::<N, 8, { cfg!(target_arch = "aarch64") }>(rows, x)
}

/// 4 rows of 32 lanes are 8 registers of running sums: enough to hide the latency of the additions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn products_avx512<const N: usize>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    products::<N, 32, true>(rows, x)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn products_avx2<const N: usize>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    products::<N, 16, true>(rows, x)
}

/// `FMA` only where the target has the instruction: elsewhere `mul_add` is a slow library call.
#[inline(always)]
fn products<const N: usize, const LANES: usize, const FMA: bool>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let rows = rows.map(|row| row.as_chunks::<LANES>());
    // Of one length, so that the loop below checks no bounds.
    let whole = rows.map(|(row, _)| &row[..x.len()]);
    let mut sums = [[0f32; LANES]; N];
    for i in 0..x.len() {
        // Whole arrays, not elements: that is what the compiler turns into vector registers.
        let x = x[i];
        for r in 0..N {
            let w = whole[r][i];
            for lane in 0..LANES {
                let sum = sums[r][lane];
                sums[r][lane] = if FMA { w[lane].mul_add(x[lane], sum) } else { w[lane] * x[lane] + sum };
            }
        }
    }
    std::array::from_fn(|r| {
        let rest: f32 = rows[r].1.iter().zip(x_rest).map(|(w, x)| w * x).sum();
        pairwise_sum(sums[r]) + rest
    })
}

#[inline(always)]
fn pairwise_sum<const LANES: usize>(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_equal_the_plain_sum_at_every_length() {
        for len in [0, 1, 15, 16, 17, 48, 129] {
            let a: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin()).collect();
            let b: Vec<f32> = (0..len).map(|i| (i as f32 * 0.91).cos()).collect();
            let plain: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a * b)).sum();
            let all = [products::<1, 8, false>([&a], &b)[0], products::<1, 32, false>([&a], &b)[0], dot(&a, &b)];
            for found in all {
                assert!((f64::from(found) - plain).abs() < 1e-4, "{len}: {found} for {plain}");
            }
            for each in dot4([&a; 4], &b) {
                assert_eq!(each, dot(&a, &b), "{len}");
            }
        }
    }
}
