//! Softmax over many logits.
//!
//! `f32::exp` is the platform's, one value at a time. This one is the same on every platform and compiles to vector
//! instructions, which makes the difference between a tenth of a millisecond and more than one over a large vocabulary.

/// Lanes that sums are split into, so that they vectorise and still have one defined order.
const LANES: usize = 8;
/// Values summed in f32 before they are added up in f64.
const BLOCK: usize = 64;

/// e^x for x ≤ 0, within 2 units in the last place; 0 below -87, where f32 has no normal number left, and for NaN.
///
/// Cody and Waite's reduction to x = n ln 2 + r with |r| ≤ ln 2 / 2, and the polynomial of degree 6 for e^r.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding it rounds to a whole number and leaves that number in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; a whole number times the first is exact.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut p = 1.987_569_2e-4;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let power = p * (r * r) + r + 1.0;
    let two_to_n = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    if x > -87.0 { power * two_to_n } else { 0.0 }
}

/// Sum in an order that is the same on every platform.
#[inline(always)]
fn sum_block(values: &[f32]) -> f64 {
    let mut lanes = [0.0f32; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] += block[lane];
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += value;
    }
    lanes.iter().map(|lane| f64::from(*lane)).sum()
}

/// Writes e^(logit - max) for every logit into `weights` and returns their sum. Minus infinity weighs nothing.
pub(super) fn weigh(logits: &[f32], max: f32, weights: &mut Vec<f32>) -> f64 {
    weights.clear();
    weights.extend(logits.iter().map(|l| exp(l - max)));
    total(weights)
}

/// Sum of weights.
pub(super) fn total(weights: &[f32]) -> f64 {
    weights.chunks(BLOCK).map(sum_block).sum()
}

/// Sum of e^(logit - max). NaN and infinities add nothing.
pub(super) fn sum_exp(logits: &[f32], max: f32) -> f64 {
    let mut weights = [0.0; BLOCK];
    let of_block = |block: &[f32]| {
        for (weight, logit) in weights.iter_mut().zip(block) {
            *weight = exp(if *logit < f32::INFINITY { logit - max } else { f32::NEG_INFINITY });
        }
        sum_block(&weights[..block.len()])
    };
    logits.chunks(BLOCK).map(of_block).sum()
}

/// Sum of weight times logit - max: with [`weigh`]'s sum, what the expected logit and the entropy are made of.
pub(super) fn weighted_sum(weights: &[f32], logits: &[f32], max: f32) -> f64 {
    let mut products = [0.0; BLOCK];
    let of_block = |(weights, logits): (&[f32], &[f32])| {
        for (product, (weight, logit)) in products.iter_mut().zip(weights.iter().zip(logits)) {
            // Nothing times minus infinity would be NaN.
            *product = if *weight > 0.0 { weight * (logit - max) } else { 0.0 };
        }
        sum_block(&products[..weights.len()])
    };
    weights.chunks(BLOCK).zip(logits.chunks(BLOCK)).map(of_block).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in 0..870_000u32 {
            let x = -(i as f32) * 1e-4;
            let (found, expected) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((found - expected).abs() <= expected * 2.5e-7, "exp({x}): expected {expected}, found {found}");
        }
    }

    #[test]
    fn exp_of_nothing_is_nothing() {
        assert_eq!(exp(0.0), 1.0);
        for x in [-87.0, -88.0, -1e30, f32::MIN, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp(x), 0.0, "exp({x})");
        }
    }

    #[test]
    fn sums_hold_every_value_once() {
        for n in [0, 1, 7, 8, 9, 63, 64, 65, 1000] {
            let ones = vec![1.0; n];
            assert_eq!(total(&ones), n as f64);
        }
        let logits = [1.0, f32::NEG_INFINITY, 3.0, f32::NAN, f32::INFINITY];
        let expected = 1.0 + (-2.0f64).exp();
        assert!((sum_exp(&logits, 3.0) - expected).abs() < 1e-7);
    }
}
