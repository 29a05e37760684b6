//! Root-mean-square norm.

use kinfolk_decoder::Norm;

use crate::level::{Level, compiled_per_level};

/// A norm with its weight, `[n]`.
#[derive(Debug)]
pub(crate) struct NormWeights {
    eps: f32,
    weight: Vec<f32>,
}

impl NormWeights {
    pub fn new(norm: &Norm, weight: Vec<f32>) -> NormWeights {
        NormWeights { eps: norm.eps, weight }
    }

    /// Elements that are normalised together.
    pub fn len(&self) -> usize {
        self.weight.len()
    }

    /// Normalises each run of `weight.len()` elements of `x` in place.
    pub fn apply(&self, level: Level, x: &mut [f32]) {
        rows_in_place(level, x, self);
        compiled_per_level!(rows_in_place = each_in_place [] (x: &mut [f32], norm: &NormWeights));
    }

    /// Writes the norm of each row of `x` to `out`.
    pub fn write(&self, level: Level, x: &[f32], out: &mut [f32]) {
        rows(level, x, out, self);
        compiled_per_level!(rows = each [] (x: &[f32], out: &mut [f32], norm: &NormWeights));
    }

    /// Adds the norm of each row of `y` to `x`.
    pub fn add(&self, level: Level, y: &[f32], x: &mut [f32]) {
        sums(level, y, x, self);
        compiled_per_level!(sums = add_each [] (y: &[f32], x: &mut [f32], norm: &NormWeights));
    }
}

/// `x += y`
pub(crate) fn add(level: Level, y: &[f32], x: &mut [f32]) {
    sums(level, y, x);
    compiled_per_level!(sums = add_plain [] (y: &[f32], x: &mut [f32]));
}

#[inline(always)]
fn each_in_place(x: &mut [f32], norm: &NormWeights) {
    for row in x.chunks_exact_mut(norm.weight.len()) {
        let scale = scale(row, norm.eps);
        for (v, w) in row.iter_mut().zip(&norm.weight) {
            *v = *v * scale * w;
        }
    }
}

#[inline(always)]
fn each(x: &[f32], out: &mut [f32], norm: &NormWeights) {
    let len = norm.weight.len();
    for (row, out) in x.chunks_exact(len).zip(out.chunks_exact_mut(len)) {
        let scale = scale(row, norm.eps);
        for ((v, w), out) in row.iter().zip(&norm.weight).zip(out) {
            *out = *v * scale * w;
        }
    }
}

#[inline(always)]
fn add_each(y: &[f32], x: &mut [f32], norm: &NormWeights) {
    let len = norm.weight.len();
    for (row, x) in y.chunks_exact(len).zip(x.chunks_exact_mut(len)) {
        let scale = scale(row, norm.eps);
        for ((v, w), x) in row.iter().zip(&norm.weight).zip(x) {
            *x += *v * scale * w;
        }
    }
}

#[inline(always)]
fn add_plain(y: &[f32], x: &mut [f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// One over the root mean square of `row`.
#[inline(always)]
fn scale(row: &[f32], eps: f32) -> f32 {
    /// Running sums, enough to hide the time that an addition takes.
    const LANES: usize = 32;
    // In f64: the sum of thousands of squares is where f32 would lose the digits that parity needs.
    let mut sums = [0f64; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for v in whole {
        let v = *v;
        for lane in 0..LANES {
            // The product of two f32 is exact in f64.
            sums[lane] += f64::from(v[lane]) * f64::from(v[lane]);
        }
    }
    for lane in 0..rest.len() {
        sums[lane] += f64::from(rest[lane]) * f64::from(rest[lane]);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    (1.0 / (sums[0] / row.len() as f64 + f64::from(eps)).sqrt()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_divided_by_its_own_root_mean_square() {
        let norm = NormWeights::new(&Norm::rms(0.0), vec![1.0, 2.0]);
        let mut x = [3.0, 4.0, -300.0, 400.0];
        norm.apply(Level::current(), &mut x);
        let rms = 12.5f32.sqrt();
        let expected = [3.0 / rms, 8.0 / rms, -3.0 / rms, 8.0 / rms];
        assert!(x.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-6), "{x:?}");
    }

    #[test]
    fn eps_keeps_a_row_of_nothing_nothing() {
        let norm = NormWeights::new(&Norm::rms(1e-6), vec![1.0; 3]);
        let mut x = [0.0; 3];
        norm.apply(Level::current(), &mut x);
        assert_eq!(x, [0.0; 3]);
    }

    #[test]
    fn squares_beyond_f32_do_not_overflow() {
        let norm = NormWeights::new(&Norm::rms(1e-6), vec![1.0; 2]);
        let mut x = [1e30, -1e30];
        norm.apply(Level::current(), &mut x);
        assert!((x[0] - 1.0).abs() < 1e-6 && (x[1] + 1.0).abs() < 1e-6, "{x:?}");
    }

    #[test]
    fn the_three_forms_and_all_instruction_sets_agree() {
        for len in [1, 31, 32, 100, 576] {
            let value = |i: usize| ((i * i) as f32 * 0.37).sin();
            let norm = NormWeights::new(&Norm::rms(1e-5), (0..len).map(|i| value(i + 7)).collect());
            let x: Vec<f32> = (0..3 * len).map(value).collect();
            let expected = {
                let mut x = x.clone();
                norm.apply(Level::Scalar, &mut x);
                x
            };
            for level in Level::available() {
                let (mut in_place, mut written, mut added) = (x.clone(), vec![0.0; x.len()], vec![0.0; x.len()]);
                norm.apply(level, &mut in_place);
                norm.write(level, &x, &mut written);
                norm.add(level, &x, &mut added);
                assert_eq!((&in_place, &written, &added), (&expected, &expected, &expected), "{level:?}, {len}");
            }
        }
    }
}
