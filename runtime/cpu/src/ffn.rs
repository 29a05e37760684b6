//! Feed-forward: one gated projection, or routed experts.

use kinfolk_decoder::{Ffn, GatedMlp, LoadError, Moe, Slot};

use crate::{
    activation::{self, Gated, sigmoid},
    activations::Activations,
    buffers::Buffer,
    linear::Linear,
    load::Loader,
    model::{Context, TOKENS},
    simd,
    supports::refusal,
    timers::Op,
};

/// What works within each token of a layer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum FfnWeights {
    Gated(GatedWeights),
    Moe(MoeWeights),
}

/// `down(activation(gate(x)) · up(x))`.
#[derive(Debug)]
pub(crate) struct GatedWeights {
    gate: Linear,
    up: Linear,
    down: Linear,
    gated: Gated,
}

#[derive(Debug)]
pub(crate) struct MoeWeights {
    router: Linear,
    experts: Vec<GatedWeights>,
    top_k: usize,
    renormalize: bool,
    shared: Option<(Linear, GatedWeights)>,
}

impl FfnWeights {
    pub fn load(ffn: &Ffn, i: usize, loader: &mut Loader<'_>) -> Result<FfnWeights, LoadError> {
        match ffn {
            Ffn::Gated(mlp) => {
                let slots = ["layers.{i}.ffn.gate", "layers.{i}.ffn.up", "layers.{i}.ffn.down"];
                Ok(FfnWeights::Gated(GatedWeights::load(mlp, slots.map(|s| Slot::layer(s, i)), loader)?))
            }
            Ffn::Moe(moe) => Ok(FfnWeights::Moe(MoeWeights::load(moe, i, loader)?)),
            other => Err(refusal(format!("feed-forward {other:?} is not implemented")).into()),
        }
    }

    /// `[tokens, hidden]` to the same.
    pub fn forward<'t>(&self, ctx: &Context<'t>, x: &[f32], hidden: usize) -> Buffer<'t, f32> {
        match self {
            FfnWeights::Gated(mlp) => mlp.forward(ctx, &Activations::new(x)),
            FfnWeights::Moe(moe) => moe.forward(ctx, x, hidden),
        }
    }
}

impl GatedWeights {
    fn load(mlp: &GatedMlp, [gate, up, down]: [Slot; 3], loader: &mut Loader<'_>) -> Result<GatedWeights, LoadError> {
        let gated = activation::gated(mlp.activation)
            .ok_or_else(|| refusal(format!("activation {:?} is not implemented", mlp.activation)))?;
        Ok(GatedWeights { gate: loader.linear(gate)?, up: loader.linear(up)?, down: loader.linear(down)?, gated })
    }

    fn forward<'t>(&self, ctx: &Context<'t>, x: &Activations<'_, 't>) -> Buffer<'t, f32> {
        let Context { team, timers, .. } = *ctx;
        let [mut gate, up] = timers.time(Op::GateUp, || Linear::forward_all([&self.gate, &self.up], team, x));
        let width = self.gate.n_rows();
        timers.time(Op::Activation, || {
            team.for_each_chunk(&mut gate, TOKENS * width, |chunk, rows| {
                (self.gated)(ctx.level, rows, &up[chunk * TOKENS * width..][..rows.len()]);
            });
        });
        timers.time(Op::Down, || self.down.forward(team, &Activations::new(&gate)))
    }
}

impl MoeWeights {
    fn load(moe: &Moe, i: usize, loader: &mut Loader<'_>) -> Result<MoeWeights, LoadError> {
        let router = loader.linear(Slot::layer("layers.{i}.moe.router", i))?;
        let patterns =
            ["layers.{i}.moe.experts.{e}.gate", "layers.{i}.moe.experts.{e}.up", "layers.{i}.moe.experts.{e}.down"];
        let experts = (0..moe.n_experts)
            .map(|e| GatedWeights::load(&moe.expert, patterns.map(|p| Slot::expert(p, i, e)), loader))
            .collect::<Result<_, _>>()?;
        let shared = match &moe.shared {
            None => None,
            Some(shared) => {
                let gate = loader.linear(Slot::layer("layers.{i}.moe.shared_gate", i))?;
                let slots = ["layers.{i}.moe.shared.gate", "layers.{i}.moe.shared.up", "layers.{i}.moe.shared.down"];
                Some((gate, GatedWeights::load(&shared.expert, slots.map(|s| Slot::layer(s, i)), loader)?))
            }
        };
        Ok(MoeWeights { router, experts, top_k: moe.top_k, renormalize: moe.renormalize, shared })
    }

    fn forward<'t>(&self, ctx: &Context<'t>, x: &[f32], hidden: usize) -> Buffer<'t, f32> {
        let Context { team, timers, .. } = *ctx;
        let of_all = Activations::new(x);
        let chosen = timers.time(Op::Router, || self.choose(&self.router.forward(team, &of_all)));
        let mut out = team.floats.take(x.len(), 0.0);
        out.fill(0.0);
        for (expert, tokens) in self.experts.iter().zip(&chosen).filter(|(_, tokens)| !tokens.is_empty()) {
            let gathered: Vec<f32> = timers.time(Op::Experts, || {
                tokens.iter().flat_map(|(t, _)| &x[t * hidden..(t + 1) * hidden]).copied().collect()
            });
            let y = expert.forward(ctx, &Activations::new(&gathered));
            timers.time(Op::Experts, || {
                for ((token, weight), y) in tokens.iter().zip(y.chunks_exact(hidden)) {
                    simd::axpy(*weight, y, &mut out[token * hidden..(token + 1) * hidden]);
                }
            });
        }
        if let Some((gate, expert)) = &self.shared {
            let weights = timers.time(Op::Router, || gate.forward(team, &of_all));
            let y = expert.forward(ctx, &of_all);
            timers.time(Op::Experts, || {
                for ((out, y), weight) in out.chunks_exact_mut(hidden).zip(y.chunks_exact(hidden)).zip(&*weights) {
                    simd::axpy(sigmoid(*weight), y, out);
                }
            });
        }
        out
    }

    /// For each expert the tokens that chose it, with its weight for each.
    fn choose(&self, logits: &[f32]) -> Vec<Vec<(usize, f32)>> {
        let mut chosen: Vec<Vec<(usize, f32)>> = vec![Vec::new(); self.experts.len()];
        for (token, logits) in logits.chunks_exact(self.experts.len()).enumerate() {
            for (expert, weight) in self.route(logits) {
                chosen[expert].push((token, weight));
            }
        }
        chosen
    }

    /// The experts of one token with their weights, in the order of their probability.
    fn route(&self, logits: &[f32]) -> Vec<(usize, f32)> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exp: Vec<f32> = logits.iter().map(|l| (l - max).exp()).collect();
        let sum: f32 = exp.iter().sum();
        let mut experts: Vec<(usize, f32)> = exp.into_iter().map(|e| e / sum).enumerate().collect();
        experts.sort_by(|a, b| b.1.total_cmp(&a.1));
        experts.truncate(self.top_k);
        if self.renormalize {
            let kept: f32 = experts.iter().map(|(_, p)| p).sum();
            experts.iter_mut().for_each(|(_, p)| *p /= kept);
        }
        experts
    }
}
