//! Elementwise nonlinearities.

use kinfolk_decoder::Activation;

use crate::{
    exp::{exp, tanh},
    level::{Level, compiled_per_level},
};

/// `gate = activation(gate) · up`, elementwise.
pub(crate) type Gated = fn(Level, &mut [f32], &[f32]);

/// The gated form of an activation; `None` if this executor does not have it.
pub(crate) fn gated(activation: Activation) -> Option<Gated> {
    match activation {
        Activation::Silu => Some(multiply::<Silu>),
        Activation::GeluTanh => Some(multiply::<GeluTanh>),
        _ => None,
    }
}

/// What [`compiled_per_level`] can be generic over.
trait Nonlinear {
    fn of(x: f32) -> f32;
}

compiled_per_level!(multiply = multiply_each [A: Nonlinear] (gate: &mut [f32], up: &[f32]));

#[inline(always)]
fn multiply_each<A: Nonlinear>(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = A::of(*g) * u;
    }
}

struct Silu;

impl Nonlinear for Silu {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x / (1.0 + exp(-x))
    }
}

struct GeluTanh;

impl Nonlinear for GeluTanh {
    /// With ½(1 + tanh u) = 1 / (1 + e⁻²ᵘ).
    #[inline(always)]
    fn of(x: f32) -> f32 {
        const SQRT_2_OVER_PI: f32 = 0.797_884_6;
        let u = SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x);
        x / (1.0 + exp(-2.0 * u))
    }
}

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `cap · tanh(x / cap)`, in place.
pub(crate) fn softcap(level: Level, x: &mut [f32], cap: f32) {
    cap_all(level, x, cap);
    compiled_per_level!(cap_all = cap_each [] (x: &mut [f32], cap: f32));
}

#[inline(always)]
fn cap_each(x: &mut [f32], cap: f32) {
    for v in x {
        *v = capped(*v, cap);
    }
}

/// `cap · tanh(x / cap)`
#[inline(always)]
pub(crate) fn capped(x: f32, cap: f32) -> f32 {
    cap * tanh(x / cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_have_the_values_of_their_formulas() {
        // In double precision: x·σ(x), and ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
        let cases = [
            (-10.0, -0.000_453_978_7, -0.0),
            (-1.0, -0.268_941_42, -0.158_808_01),
            (0.0, 0.0, 0.0),
            (0.5, 0.311_229_67, 0.345_714),
            (3.0, 2.857_722_4, 2.996_362_6),
        ];
        for (x, of_silu, of_gelu) in cases {
            assert!((Silu::of(x) - of_silu).abs() < 1e-6, "silu({x}) = {}", Silu::of(x));
            assert!((GeluTanh::of(x) - of_gelu).abs() < 1e-6, "gelu({x}) = {}", GeluTanh::of(x));
        }
    }

    #[test]
    fn far_out_activations_are_the_identity_or_nothing() {
        for activation in [Silu::of as fn(f32) -> f32, GeluTanh::of] {
            for x in [1e3f32, 1e20] {
                assert_eq!(activation(x), x);
                assert_eq!(activation(-x).abs(), 0.0);
            }
        }
    }

    #[test]
    fn a_soft_cap_bounds_and_keeps_what_is_small() {
        let mut x = [-1e9, -0.01, 0.0, 0.01, 1e9];
        softcap(Level::current(), &mut x, 30.0);
        assert_eq!((x[0], x[2], x[4]), (-30.0, 0.0, 30.0));
        assert!((x[3] - 0.01).abs() < 1e-6 && x[1] == -x[3]);
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let gate: Vec<f32> = (0..1003).map(|i| ((i * 37) as f32).sin() * (i % 23) as f32).collect();
        let up: Vec<f32> = gate.iter().map(|g| 1.0 - g).collect();
        for gated in [multiply::<Silu>, multiply::<GeluTanh>, |level, x: &mut [f32], _: &[f32]| softcap(level, x, 5.0)]
        {
            let of = |level| {
                let mut x = gate.clone();
                gated(level, &mut x, &up);
                x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
            };
            for level in Level::available() {
                assert_eq!(of(level), of(Level::Scalar), "{level:?}");
            }
        }
    }
}
