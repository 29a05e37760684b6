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
