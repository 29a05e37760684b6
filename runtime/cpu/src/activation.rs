//! Elementwise nonlinearities.

use kinfolk_decoder::Activation;

/// `gate = activation(gate) · up`, elementwise.
pub(crate) type Gated = fn(&mut [f32], &[f32]);

/// The gated form of an activation; `None` if this executor does not have it.
pub(crate) fn gated(activation: Activation) -> Option<Gated> {
    match activation {
        Activation::Silu => Some(|gate, up| multiply(gate, up, silu)),
        Activation::GeluTanh => Some(|gate, up| multiply(gate, up, gelu_tanh)),
        _ => None,
    }
}

fn multiply(gate: &mut [f32], up: &[f32], activation: impl Fn(f32) -> f32) {
    gate.iter_mut().zip(up).for_each(|(g, u)| *g = activation(*g) * u);
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
}

/// `cap · tanh(x / cap)`, in place.
pub(crate) fn softcap(x: &mut [f32], cap: f32) {
    x.iter_mut().for_each(|v| *v = cap * (*v / cap).tanh());
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
            assert!((silu(x) - of_silu).abs() < 1e-6, "silu({x}) = {}", silu(x));
            assert!((gelu_tanh(x) - of_gelu).abs() < 1e-6, "gelu({x}) = {}", gelu_tanh(x));
        }
    }

    #[test]
    fn far_out_activations_are_the_identity_or_nothing() {
        for activation in [silu as fn(f32) -> f32, gelu_tanh] {
            for x in [1e3f32, 1e20] {
                assert_eq!(activation(x), x);
                assert_eq!(activation(-x).abs(), 0.0);
            }
        }
    }

    #[test]
    fn a_soft_cap_bounds_and_keeps_what_is_small() {
        let mut x = [-1e9, -0.01, 0.0, 0.01, 1e9];
        softcap(&mut x, 30.0);
        assert_eq!((x[0], x[2], x[4]), (-30.0, 0.0, 30.0));
        assert!((x[3] - 0.01).abs() < 1e-6 && x[1] == -x[3]);
    }
}
