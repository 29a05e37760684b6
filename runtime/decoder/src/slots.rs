//! The slots of a description: every weight it can ask for, with its shape.

use std::fmt;

use crate::{Attention, Decoder, Ffn, GatedMlp, Mixer, Wiring};

/// The place of one weight in a description, such as `layers.3.attn.q`. Norm weights, projection matrices and biases
/// (`layers.3.attn.q.bias`) are slots of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// With `{i}` for the layer and `{e}` for the expert.
    pub pattern: &'static str,
    /// Whether this is the bias of the projection at `pattern`.
    pub bias: bool,
    /// Fills `{i}`.
    pub layer: usize,
    /// Fills `{e}`.
    pub expert: usize,
}

impl Slot {
    /// A slot outside the layers.
    pub const fn model(pattern: &'static str) -> Slot {
        Slot { pattern, bias: false, layer: 0, expert: 0 }
    }

    /// A slot of layer `i`.
    pub const fn layer(pattern: &'static str, i: usize) -> Slot {
        Slot { pattern, bias: false, layer: i, expert: 0 }
    }

    /// A slot of expert `e` of layer `i`.
    pub const fn expert(pattern: &'static str, i: usize, e: usize) -> Slot {
        Slot { pattern, bias: false, layer: i, expert: e }
    }

    /// The bias that belongs to this projection.
    pub const fn bias(self) -> Slot {
        Slot { bias: true, ..self }
    }

    /// Fills `{i}` and `{e}` in a name pattern with this slot's numbers.
    pub(crate) fn fill(&self, pattern: &str) -> String {
        pattern.replace("{i}", &self.layer.to_string()).replace("{e}", &self.expert.to_string())
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fill(self.pattern))?;
        if self.bias { f.write_str(".bias") } else { Ok(()) }
    }
}

/// A slot with the shape its tensor must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotShape {
    /// Which.
    pub slot: Slot,
    /// `[out, in]` of a projection, `[n]` of a vector.
    pub shape: Vec<usize>,
    /// Whether a checkpoint may lack it.
    pub optional: bool,
}

/// Token embedding, `[vocab, hidden]`.
pub(crate) const EMBED: &str = "embed";
/// Head, `[vocab, hidden]`; absent where tied.
pub(crate) const HEAD: &str = "head";

impl Decoder {
    /// Every weight this description can ask for, in the order a forward pass meets them.
    pub fn slots(&self) -> Vec<SlotShape> {
        let hidden = self.embedding.hidden_size;
        let table = vec![self.embedding.vocab_size, hidden];
        let mut all = Slots::default();
        all.required(Slot::model(EMBED), table.clone());
        if let Some(dims) = self.rope_dims() {
            // GGUF files of Llama 3.1 and later carry their rope scaling as one divisor per frequency.
            all.optional(Slot::model("rope.divisors"), vec![dims / 2]);
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let at = |pattern| Slot::layer(pattern, i);
            let Wiring::Sequential { pre_mixer, post_mixer, pre_ffn, post_ffn } = layer.wiring;
            all.norm(pre_mixer.is_some(), at("layers.{i}.norm.pre_mixer"), hidden);
            let Mixer::Attention(attention) = &layer.mixer;
            all.attention(attention, i, hidden);
            all.norm(post_mixer.is_some(), at("layers.{i}.norm.post_mixer"), hidden);
            all.norm(pre_ffn.is_some(), at("layers.{i}.norm.pre_ffn"), hidden);
            all.ffn(&layer.ffn, i, hidden);
            all.norm(post_ffn.is_some(), at("layers.{i}.norm.post_ffn"), hidden);
        }
        all.required(Slot::model("norm.final"), vec![hidden]);
        all.optional(Slot::model(HEAD), table);
        all.0
    }

    /// Rotated dimensions of the first layer that rotates.
    fn rope_dims(&self) -> Option<usize> {
        self.layers.iter().find_map(|layer| {
            let Mixer::Attention(a) = &layer.mixer;
            a.rope.as_ref().map(|r| r.dims)
        })
    }
}

#[derive(Default)]
struct Slots(Vec<SlotShape>);

impl Slots {
    fn required(&mut self, slot: Slot, shape: Vec<usize>) {
        self.0.push(SlotShape { slot, shape, optional: false });
    }

    fn optional(&mut self, slot: Slot, shape: Vec<usize>) {
        self.0.push(SlotShape { slot, shape, optional: true });
    }

    fn norm(&mut self, described: bool, slot: Slot, len: usize) {
        if described {
            self.required(slot, vec![len]);
        }
    }

    fn projection(&mut self, slot: Slot, out: usize, into: usize) {
        self.required(slot, vec![out, into]);
        self.optional(slot.bias(), vec![out]);
    }

    fn attention(&mut self, a: &Attention, i: usize, hidden: usize) {
        let (q, kv) = (a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim);
        self.projection(Slot::layer("layers.{i}.attn.q", i), q, hidden);
        self.projection(Slot::layer("layers.{i}.attn.k", i), kv, hidden);
        self.projection(Slot::layer("layers.{i}.attn.v", i), kv, hidden);
        self.norm(a.qk_norm.is_some(), Slot::layer("layers.{i}.attn.q_norm", i), a.head_dim);
        self.norm(a.qk_norm.is_some(), Slot::layer("layers.{i}.attn.k_norm", i), a.head_dim);
        self.projection(Slot::layer("layers.{i}.attn.o", i), hidden, q);
    }

    fn ffn(&mut self, ffn: &Ffn, i: usize, hidden: usize) {
        match ffn {
            Ffn::Gated(mlp) => self.gated(
                mlp,
                hidden,
                Slot::layer("layers.{i}.ffn.gate", i),
                Slot::layer("layers.{i}.ffn.up", i),
                Slot::layer("layers.{i}.ffn.down", i),
            ),
            Ffn::Moe(moe) => {
                self.required(Slot::layer("layers.{i}.moe.router", i), vec![moe.n_experts, hidden]);
                for e in 0..moe.n_experts {
                    self.gated(
                        &moe.expert,
                        hidden,
                        Slot::expert("layers.{i}.moe.experts.{e}.gate", i, e),
                        Slot::expert("layers.{i}.moe.experts.{e}.up", i, e),
                        Slot::expert("layers.{i}.moe.experts.{e}.down", i, e),
                    );
                }
                if let Some(shared) = &moe.shared {
                    self.required(Slot::layer("layers.{i}.moe.shared_gate", i), vec![1, hidden]);
                    self.gated(
                        &shared.expert,
                        hidden,
                        Slot::layer("layers.{i}.moe.shared.gate", i),
                        Slot::layer("layers.{i}.moe.shared.up", i),
                        Slot::layer("layers.{i}.moe.shared.down", i),
                    );
                }
            }
        }
    }

    fn gated(&mut self, mlp: &GatedMlp, hidden: usize, gate: Slot, up: Slot, down: Slot) {
        self.projection(gate, mlp.intermediate_size, hidden);
        self.projection(up, mlp.intermediate_size, hidden);
        self.projection(down, hidden, mlp.intermediate_size);
    }
}
