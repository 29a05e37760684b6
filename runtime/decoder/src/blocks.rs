//! The blocks a decoder is said in.
//!
//! Every block is plain data with the field's own words. Sizes are elements, `n_` counts things. Biases are not described: a
//! projection has one if the checkpoint holds it.

use crate::{Names, Rope};

/// A decoder-only transformer: token ids in, logits out.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// Token ids to the residual stream.
    pub embedding: Embedding,
    /// In order.
    pub layers: Vec<Layer>,
    /// Before the head.
    pub final_norm: Norm,
    /// The residual stream to logits.
    pub head: Head,
    /// Longest sequence the checkpoint was made for, in tokens.
    pub context_length: usize,
    /// Where each slot's weights are and what the format did to them.
    pub names: Names,
}

impl Decoder {
    /// Elements that the keys and values of `len` tokens come to, all layers together; windows hold no more than they see.
    pub fn cache_elements(&self, len: usize) -> usize {
        let of_layer = |layer: &Layer| {
            let Mixer::Attention(a) = &layer.mixer;
            let held = match a.mask {
                Mask::Causal => len,
                Mask::Window(window) => len.min(window),
            };
            // Saturating: the numbers are a config's, which is not checked against tensors yet.
            held.saturating_mul(2).saturating_mul(a.n_kv_heads).saturating_mul(a.head_dim)
        };
        self.layers.iter().map(of_layer).fold(0, usize::saturating_add)
    }
}

/// A table of one row per token.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Rows of the table.
    pub vocab_size: usize,
    /// Width of a row and of the residual stream.
    pub hidden_size: usize,
    /// Multiplies the row, as Gemma's √hidden.
    pub scale: Option<f32>,
}

/// Projection to the vocabulary. Tied to the embedding if the checkpoint holds no head of its own, whatever its config says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// `cap · tanh(logits / cap)`, as Gemma 2.
    pub softcap: Option<f32>,
}

/// One layer: a mixer across tokens, then a feed-forward within each.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// How both are joined to the residual stream.
    pub wiring: Wiring,
    /// Across tokens.
    pub mixer: Mixer,
    /// Within each token.
    pub ffn: Ffn,
}

/// How a layer's two halves meet the residual stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Wiring {
    /// `x += post_mixer(mixer(pre_mixer(x)))`, then `x += post_ffn(ffn(pre_ffn(x)))`. A norm that is `None` is left out.
    Sequential {
        /// Before the mixer.
        pre_mixer: Option<Norm>,
        /// On the mixer's output, as Gemma 2.
        post_mixer: Option<Norm>,
        /// Before the feed-forward.
        pre_ffn: Option<Norm>,
        /// On the feed-forward's output, as Gemma 2.
        post_ffn: Option<Norm>,
    },
}

/// Normalisation over the last dimension, times a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Which statistic.
    pub kind: NormKind,
    /// Added under the square root.
    pub eps: f32,
}

impl Norm {
    /// Root-mean-square norm (Zhang and Sennrich 2019, arXiv:1910.07467): `w · x / √(mean(x²) + eps)`.
    pub fn rms(eps: f32) -> Norm {
        Norm { kind: NormKind::Rms, eps }
    }
}

/// Which statistic a [`Norm`] divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormKind {
    /// Root mean square.
    Rms,
}

/// What mixes information across tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
}

/// Causal softmax attention with grouped key/value heads (Ainslie et al. 2023, arXiv:2305.13245).
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a head, independent of `hidden_size / n_heads`.
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Rotary positions; `None` for no positions at all.
    pub rope: Option<Rope>,
    /// Norm over each query and key head before rotation, as Qwen3.
    pub qk_norm: Option<Norm>,
    /// `cap · tanh(scores / cap)` before the mask, as Gemma 2.
    pub softcap: Option<f32>,
    /// Scales the query by its position, as Ministral 3.
    pub query_temperature: Option<QueryTemperature>,
}

/// `query · (1 + scale · ln(1 + ⌊position / floor⌋))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryTemperature {
    /// Strength.
    pub scale: f32,
    /// Positions per step.
    pub floor: usize,
}

/// Which keys a query at position `q` sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mask {
    /// Every `k ≤ q`.
    Causal,
    /// `k ≤ q` with `q - k < window`: the window counts the token itself.
    Window(usize),
}

/// What works within each token.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Ffn {
    /// One gated projection.
    Gated(GatedMlp),
    /// Routed experts, each a gated projection.
    Moe(Moe),
}

/// `down(activation(gate(x)) · up(x))` (Shazeer 2020, arXiv:2002.05202).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedMlp {
    /// Width between.
    pub intermediate_size: usize,
    /// On the gate.
    pub activation: Activation,
}

/// The `top_k` experts of the softmax over the router's logits, weighted by their probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moe {
    /// How many experts there are.
    pub n_experts: usize,
    /// How many run per token.
    pub top_k: usize,
    /// Every expert.
    pub expert: GatedMlp,
    /// Whether the chosen probabilities are divided by their sum.
    pub renormalize: bool,
    /// One expert that every token runs, as Qwen2-MoE.
    pub shared: Option<SharedExpert>,
}

/// The expert every token runs, its output times `sigmoid(shared_gate(x))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    /// The expert.
    pub expert: GatedMlp,
}

/// Elementwise nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x · sigmoid(x)`, also called swish.
    Silu,
    /// The tanh form of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415).
    GeluTanh,
}
