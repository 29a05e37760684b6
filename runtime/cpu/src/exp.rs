//! Exponential functions without branches and calls, so that loops over them become vector code.
//!
//! ```text
//! eˣ = 2ⁿ · eʳ    n = round(x / ln 2)    r = x - n · ln 2    eʳ - 1 ≈ r + r² · q(r)
//! ```
//! `q` is the polynomial of degree 4 whose largest relative error over |r| ≤ ½ ln 2 is the smallest, 3·10⁻⁹ of eʳ, found by Remez' exchange
//! algorithm. Every step is one IEEE operation, so the result is the same on every processor.

/// Below this eˣ is less than 2⁻¹²⁵ and taken for nothing: what is smaller slows arithmetic down.
const LOWEST: f32 = -86.9;
/// Above this eˣ is infinite.
const HIGHEST: f32 = 88.8;

/// eˣ, to one unit in the last place.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let (half_power, p) = reduced(x);
    let y = p.mul_add(2.0, 2.0) * half_power;
    let y = if x < LOWEST { 0.0 } else { y };
    if x > HIGHEST { f32::INFINITY } else { y }
}

/// tanh x, to three units in the last place.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    // From here on it is 1. The comparison lets what is no number through.
    let size = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    let (half_power, p) = reduced(2.0 * size);
    // e²ˣ - 1, exact where it is small too.
    let e = 2.0 * half_power.mul_add(p, half_power - 0.5);
    (e / (e + 2.0)).copysign(x)
}

/// 2ⁿ⁻¹ and eʳ - 1, for x between [`LOWEST`] and [`HIGHEST`].
#[inline(always)]
fn reduced(x: f32) -> (f32, f32) {
    /// Added to a small number it leaves the nearest integer in the last bits.
    const ROUND: f32 = 12_582_912.0;
    /// The first digits of ln 2, short enough for exact products with n, and the rest.
    const LN_2: (f32, f32) = (0.693_145_75, 1.428_606_8e-6);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2.1, n.mul_add(-LN_2.0, x));
    let q = 0.001_381_463_5_f32.mul_add(r, 0.008_368_698);
    let q = q.mul_add(r, 0.041_668_385);
    let q = q.mul_add(r, 0.166_665_21);
    let q = q.mul_add(r, 0.499_999_94);
    let half_power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(126 << 23));
    (half_power, q.mul_add(r * r, r))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Difference in units of the last place of the exact value.
    fn units(found: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        let unit = f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
        (f64::from(found) - exact).abs() / unit
    }

    fn check(function: fn(f32) -> f32, exact: fn(f64) -> f64, range: f32, most: f64) {
        let mut worst = (0.0, 0.0);
        for i in -400_000i32..=400_000 {
            let x = range * i as f32 / 400_000.0;
            let found = units(function(x), exact(f64::from(x)));
            if found > worst.0 {
                worst = (found, x);
            }
        }
        assert!(worst.0 <= most, "{} units at {}", worst.0, worst.1);
    }

    #[test]
    fn exp_is_within_a_unit_in_the_last_place() {
        check(exp, f64::exp, 86.8, 1.0);
        check(exp, f64::exp, 1.0, 1.0);
    }

    #[test]
    fn tanh_is_within_three_units_in_the_last_place() {
        check(tanh, f64::tanh, 12.0, 3.0);
        check(tanh, f64::tanh, 0.01, 3.0);
    }

    #[test]
    fn the_ends_are_nothing_and_infinity() {
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY), exp(-1e30), exp(-100.0)), (1.0, 0.0, 0.0, 0.0));
        assert_eq!((exp(f32::INFINITY), exp(1e30), exp(89.0)), (f32::INFINITY, f32::INFINITY, f32::INFINITY));
        assert!(units(exp(88.7), f64::exp(f64::from(88.7f32))) < 1.0);
        for x in [10.0, 1e30, f32::INFINITY] {
            assert_eq!((tanh(x), tanh(-x)), (1.0, -1.0));
        }
        assert_eq!((tanh(0.0).to_bits(), tanh(-0.0).to_bits()), (0.0f32.to_bits(), (-0.0f32).to_bits()));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }
}
