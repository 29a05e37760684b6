//! The inner products everything else is made of.
//!
//! One generic body in plain Rust, compiled once for the baseline and once for each wider instruction set of x86-64, and chosen
//! at run time. The summation order is the same everywhere: 16 running sums, then pairwise.

/// Running sums per product. Fills the registers of AVX2 for four rows and leaves the compiler room on narrower machines.
const LANES: usize = 16;

/// `out[r] = rows[r] · x` for four rows at a time, so that each load of `x` serves four products.
pub(crate) fn dot4(rows: [&[f32]; 4], x: &[f32]) -> [f32; 4] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the instruction sets were just found on this machine.
        return unsafe { dot4_avx2(rows, x) };
    }
    dot_rows::<4, false>(rows, x)
}

/// `a · b`.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the instruction sets were just found on this machine.
        return unsafe { dot_avx2(a, b) };
    }
    dot_rows::<1, false>([a], b)[0]
}

/// `y += a · x`.
pub(crate) fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot4_avx2(rows: [&[f32]; 4], x: &[f32]) -> [f32; 4] {
    dot_rows::<4, true>(rows, x)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
    dot_rows::<1, true>([a], b)[0]
}

/// `FMA` only where the target has the instruction: elsewhere `mul_add` is a slow library call.
#[inline(always)]
fn dot_rows<const N: usize, const FMA: bool>(rows: [&[f32]; N], x: &[f32]) -> [f32; N] {
    let rows = rows.map(|row| &row[..x.len()]);
    let mut sums = [[0f32; LANES]; N];
    let whole = x.len() - x.len() % LANES;
    for at in (0..whole).step_by(LANES) {
        let x = &x[at..at + LANES];
        for (sum, row) in sums.iter_mut().zip(rows) {
            let row = &row[at..at + LANES];
            for lane in 0..LANES {
                sum[lane] = if FMA { row[lane].mul_add(x[lane], sum[lane]) } else { sum[lane] + row[lane] * x[lane] };
            }
        }
    }
    let mut out = [0f32; N];
    for ((out, sum), row) in out.iter_mut().zip(&mut sums).zip(rows) {
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                sum[lane] += sum[lane + width];
            }
        }
        *out = sum[0] + row[whole..].iter().zip(&x[whole..]).map(|(a, b)| a * b).sum::<f32>();
    }
    out
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
            assert!((f64::from(dot(&a, &b)) - plain).abs() < 1e-4, "{len}");
            for each in dot4([&a; 4], &b) {
                assert_eq!(each, dot(&a, &b), "{len}");
            }
        }
    }
}
