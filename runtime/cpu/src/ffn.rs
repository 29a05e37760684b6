//! Feed-forward: one gated projection, or routed experts.

use kinfolk_decoder::{Ffn, GatedMlp, LoadError, Moe, Slot};

use crate::{
    activation::{Gating, sigmoid},
    activations::Activations,
    buffers::Buffer,
    linear::Linear,
    load::Loader,
    model::{Context, TOKENS},
    rows::TURN,
    simd,
    supports::refusal,
    team::Team,
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
    gate_up: GateUp,
    down: Linear,
    gating: Gating,
}

/// The projections of which one is the other's gate.
#[derive(Debug)]
enum GateUp {
    /// As one, with their rows [in turns](crate::rows::StoredRows::in_turns), so that a thread has both products at the same time.
    Joint(Linear),
    /// Where they differ in type or are too small.
    Apart([Linear; 2]),
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
        let gating = Gating::of(mlp.activation)
            .ok_or_else(|| refusal(format!("activation {:?} is not implemented", mlp.activation)))?;
        let gate_up = match loader.linear_in_turns([gate, up])? {
            Some(joint) => GateUp::Joint(joint),
            None => GateUp::Apart([loader.linear(gate)?, loader.linear(up)?]),
        };
        Ok(GatedWeights { gate_up, down: loader.linear(down)?, gating })
    }

    fn forward<'t>(&self, ctx: &Context<'t>, x: &Activations<'_, 't>) -> Buffer<'t, f32> {
        let hidden = self.gate_up.forward(ctx, x, self.gating);
        ctx.timers.time(Op::Down, || self.down.forward(ctx.team, &Activations::new(&hidden)))
    }
}

impl GateUp {
    /// `gating` of both products, `[tokens, intermediate]`.
    fn forward<'t>(&self, ctx: &Context<'t>, x: &Activations<'_, 't>, gating: Gating) -> Buffer<'t, f32> {
        let Context { team, timers, level } = *ctx;
        match self {
            GateUp::Joint(joint) => {
                if let Some(hidden) = timers.time(Op::GateUp, || joint.forward_gated(team, x, gating)) {
                    return hidden;
                }
                let both = timers.time(Op::GateUp, || joint.forward(team, x));
                let width = joint.n_rows() / 2;
                let mut hidden = team.floats.take(both.len() / 2, 0.0);
                timers.time(Op::Activation, || {
                    team.for_each_chunk(&mut hidden, TOKENS * width, |chunk, hidden| {
                        let both = &both[2 * chunk * TOKENS * width..];
                        for (hidden, both) in hidden.chunks_exact_mut(TURN).zip(both.chunks_exact(2 * TURN)) {
                            let (gate, up) = both.split_at(TURN);
                            hidden.copy_from_slice(gate);
                            gating.apply(level, hidden, up);
                        }
                    });
                });
                hidden
            }
            GateUp::Apart([gate, up]) => {
                let width = gate.n_rows();
                let [mut hidden, up] = timers.time(Op::GateUp, || Linear::forward_all([gate, up], team, x));
                timers.time(Op::Activation, || {
                    team.for_each_chunk(&mut hidden, TOKENS * width, |chunk, hidden| {
                        gating.apply(level, hidden, &up[chunk * TOKENS * width..][..hidden.len()]);
                    });
                });
                hidden
            }
        }
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
            let gathered = timers.time(Op::Experts, || {
                let mut gathered = team.floats.take(tokens.len() * hidden, 0.0);
                for (row, (token, _)) in gathered.chunks_exact_mut(hidden).zip(tokens) {
                    row.copy_from_slice(&x[token * hidden..][..hidden]);
                }
                gathered
            });
            let y = expert.forward(ctx, &Activations::new(&gathered));
            timers.time(Op::Experts, || add(team, tokens, &y, &mut out, hidden));
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
            for (expert, weight) in route(logits, self.top_k, self.renormalize) {
                chosen[expert].push((token, weight));
            }
        }
        chosen
    }
}

/// The `top_k` experts of one token with their weights, in the order of their probability and for one of their number.
fn route(logits: &[f32], top_k: usize, renormalize: bool) -> Vec<(usize, f32)> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp: Vec<f32> = logits.iter().map(|l| (l - max).exp()).collect();
    let sum: f32 = exp.iter().sum();
    let mut experts: Vec<(usize, f32)> = exp.into_iter().map(|e| e / sum).enumerate().collect();
    let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if top_k < experts.len() {
        experts.select_nth_unstable_by(top_k, order);
        experts.truncate(top_k);
    }
    experts.sort_unstable_by(order);
    if renormalize {
        let kept: f32 = experts.iter().map(|(_, p)| p).sum();
        experts.iter_mut().for_each(|(_, p)| *p /= kept);
    }
    experts
}

/// Adds what an expert made of its tokens, which are in their order, with their weights.
fn add(team: &Team, tokens: &[(usize, f32)], y: &[f32], out: &mut [f32], hidden: usize) {
    /// Tokens of the pass that a thread takes at a time, few of which are this expert's.
    const SHARE: usize = 128;
    team.for_each_chunk(out, SHARE * hidden, |share, out| {
        let first = share * SHARE;
        let begin = tokens.partition_point(|(token, _)| *token < first);
        let own = tokens[begin..].iter().take_while(|(token, _)| *token < first + SHARE);
        for ((token, weight), y) in own.zip(y[begin * hidden..].chunks_exact(hidden)) {
            simd::axpy(*weight, y, &mut out[(token - first) * hidden..][..hidden]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_likely_experts_are_chosen_and_of_equal_ones_the_first() {
        let chosen = |logits: &[f32], top_k| route(logits, top_k, true).into_iter().map(|(e, _)| e).collect::<Vec<_>>();
        assert_eq!(chosen(&[1.0, 3.0, 2.0, 3.0, -1.0], 3), [1, 3, 2]);
        assert_eq!(chosen(&[0.5; 9], 4), [0, 1, 2, 3]);
        assert_eq!(chosen(&[2.0, 1.0], 2), [0, 1]);
        let weights = |renormalize| route(&[0.0, 0.0, 0.0, 0.0], 2, renormalize).into_iter().map(|(_, p)| p);
        assert!(weights(true).eq([0.5, 0.5]) && weights(false).eq([0.25, 0.25]));
    }

    #[test]
    fn what_an_expert_made_is_added_to_its_tokens_alone() {
        let hidden = 5;
        for (n_tokens, team) in [(1, Team::new(2)), (128, Team::new(2)), (700, Team::new(3))] {
            let tokens: Vec<(usize, f32)> =
                (0..n_tokens).filter(|t| t % 3 != 1 && !(200..400).contains(t)).map(|t| (t, t as f32 + 0.5)).collect();
            let y: Vec<f32> = (0..tokens.len() * hidden).map(|i| (i % 17) as f32 - 8.0).collect();
            let mut out: Vec<f32> = (0..n_tokens * hidden).map(|i| i as f32).collect();
            let mut expected = out.clone();
            for ((token, weight), y) in tokens.iter().zip(y.chunks(hidden)) {
                expected[token * hidden..][..hidden].iter_mut().zip(y).for_each(|(out, y)| *out += weight * y);
            }
            add(&team, &tokens, &y, &mut out, hidden);
            assert_eq!(out, expected, "{n_tokens} tokens");
        }
    }
}
