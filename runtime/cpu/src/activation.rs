//! Elementwise nonlinearities.

use kinfolk_decoder::Activation;

use crate::{
    exp::{exp, tanh},
    level::{Level, compiled_per_level},
};

/// `activation(gate) · up`, elementwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gating {
    Silu,
    GeluTanh,
}

impl Gating {
    /// That of an activation; `None` if this executor does not have it.
    pub fn of(activation: Activation) -> Option<Gating> {
        match activation {
            Activation::Silu => Some(Gating::Silu),
            Activation::GeluTanh => Some(Gating::GeluTanh),
            _ => None,
        }
    }

    /// Puts it in the place of the gate.
    pub fn apply(self, level: Level, gate: &mut [f32], up: &[f32]) {
        match self {
            Gating::Silu => apply::<Silu>(level, gate, up),
            Gating::GeluTanh => apply::<GeluTanh>(level, gate, up),
        }
        compiled_per_level!(apply = apply_each [A: Nonlinear] (gate: &mut [f32], up: &[f32]));
    }

    /// Puts it in the place of the gates of pairs of gates and what they open for.
    pub fn apply_to_pairs(self, level: Level, pairs: &mut [[[f32; LANES]; 2]]) {
        match self {
            Gating::Silu => apply::<Silu>(level, pairs),
            Gating::GeluTanh => apply::<GeluTanh>(level, pairs),
        }
        compiled_per_level!(apply = apply_to_each_pair [A: Nonlinear] (pairs: &mut [[[f32; LANES]; 2]]));
    }

    /// For those who have an instruction set.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn of_lanes(self, gate: [f32; LANES], up: &[f32; LANES]) -> [f32; LANES] {
        match self {
            Gating::Silu => of_lanes::<Silu>(gate, up),
            Gating::GeluTanh => of_lanes::<GeluTanh>(gate, up),
        }
    }
}

/// Numbers of a vector.
const LANES: usize = 16;

/// What [`compiled_per_level`] can be generic over.
trait Nonlinear {
    fn of(x: f32) -> f32;
}

#[inline(always)]
fn apply_each<A: Nonlinear>(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = A::of(*g) * u;
    }
}

#[inline(always)]
fn apply_to_each_pair<A: Nonlinear>(pairs: &mut [[[f32; LANES]; 2]]) {
    for [gate, up] in pairs {
        *gate = of_lanes::<A>(*gate, up);
    }
}

#[inline(always)]
fn of_lanes<A: Nonlinear>(mut gate: [f32; LANES], up: &[f32; LANES]) -> [f32; LANES] {
    apply_each::<A>(&mut gate, up);
    gate
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
        type Apply = fn(Level, &mut [f32], &[f32]);
        let all: [Apply; 3] = [
            |level, x, up| Gating::Silu.apply(level, x, up),
            |level, x, up| Gating::GeluTanh.apply(level, x, up),
            |level, x, _| softcap(level, x, 5.0),
        ];
        for apply in all {
            let of = |level| {
                let mut x = gate.clone();
                apply(level, &mut x, &up);
                x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
            };
            for level in Level::available() {
                assert_eq!(of(level), of(Level::Scalar), "{level:?}");
            }
        }
    }
}
