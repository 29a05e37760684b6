//! Where each slot's weights are in a checkpoint, and what the format did to them.

use kinfolk_weights::{ConfigKind, Source};

use crate::{Slot, slots::EMBED};

/// What a checkpoint calls its tensors, and the transforms between its layout and the canonical one.
///
/// [`Names::default`] knows the common Hugging Face and GGUF patterns; a family says only where it differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    rules: Vec<Rule>,
    /// Whether `model.safetensors` norms are to be used as `1 + w`. GGUF files have the 1 added already.
    pub norms_add_one: bool,
    /// Row order of the query and key projections in GGUF files.
    pub gguf_qk_rows: QkRows,
}

/// How the rows of a query or key head are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkRows {
    /// First all first halves of the rotated pairs, then all second halves: the canonical order.
    Halves,
    /// The two rows of a rotated pair side by side, as llama.cpp's converter orders the llama architecture.
    Pairs,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    slot: &'static str,
    hf: &'static str,
    gguf: &'static str,
}

const DEFAULT: &[(&str, &str, &str)] = &[
    (EMBED, "embed_tokens", "token_embd"),
    ("head", "lm_head", "output"),
    ("norm.final", "norm", "output_norm"),
    ("rope.divisors", "", "rope_freqs"),
    ("layers.{i}.norm.pre_mixer", "layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    ("layers.{i}.norm.post_mixer", "layers.{i}.post_attention_layernorm", "blk.{i}.post_attention_norm"),
    ("layers.{i}.norm.pre_ffn", "layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    ("layers.{i}.norm.post_ffn", "layers.{i}.post_feedforward_layernorm", "blk.{i}.post_ffw_norm"),
    ("layers.{i}.attn.q", "layers.{i}.self_attn.q_proj", "blk.{i}.attn_q"),
    ("layers.{i}.attn.k", "layers.{i}.self_attn.k_proj", "blk.{i}.attn_k"),
    ("layers.{i}.attn.v", "layers.{i}.self_attn.v_proj", "blk.{i}.attn_v"),
    ("layers.{i}.attn.o", "layers.{i}.self_attn.o_proj", "blk.{i}.attn_output"),
    ("layers.{i}.attn.q_norm", "layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm"),
    ("layers.{i}.attn.k_norm", "layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm"),
    ("layers.{i}.ffn.gate", "layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate"),
    ("layers.{i}.ffn.up", "layers.{i}.mlp.up_proj", "blk.{i}.ffn_up"),
    ("layers.{i}.ffn.down", "layers.{i}.mlp.down_proj", "blk.{i}.ffn_down"),
    ("layers.{i}.moe.router", "layers.{i}.mlp.gate", "blk.{i}.ffn_gate_inp"),
    ("layers.{i}.moe.experts.{e}.gate", "layers.{i}.mlp.experts.{e}.gate_proj", "blk.{i}.ffn_gate_exps"),
    ("layers.{i}.moe.experts.{e}.up", "layers.{i}.mlp.experts.{e}.up_proj", "blk.{i}.ffn_up_exps"),
    ("layers.{i}.moe.experts.{e}.down", "layers.{i}.mlp.experts.{e}.down_proj", "blk.{i}.ffn_down_exps"),
    ("layers.{i}.moe.shared_gate", "layers.{i}.mlp.shared_expert_gate", "blk.{i}.ffn_gate_inp_shexp"),
    ("layers.{i}.moe.shared.gate", "layers.{i}.mlp.shared_expert.gate_proj", "blk.{i}.ffn_gate_shexp"),
    ("layers.{i}.moe.shared.up", "layers.{i}.mlp.shared_expert.up_proj", "blk.{i}.ffn_up_shexp"),
    ("layers.{i}.moe.shared.down", "layers.{i}.mlp.shared_expert.down_proj", "blk.{i}.ffn_down_shexp"),
];

/// What published repositories put before the names of the body (`embed_tokens`, `layers`, `norm`). The first under which the
/// embedding is found holds for the whole body.
const BODY_PREFIXES: &[&str] = &["model.", "", "language_model.model.", "model.language_model.", "language_model."];
/// The same for the head, which multimodal wrappers may keep elsewhere than the body.
const HEAD_PREFIXES: &[&str] = &["", "language_model.", "model."];

impl Default for Names {
    fn default() -> Self {
        let rules = DEFAULT.iter().map(|&(slot, hf, gguf)| Rule { slot, hf, gguf }).collect();
        Names { rules, norms_add_one: false, gguf_qk_rows: QkRows::Halves }
    }
}

impl Names {
    /// Says where this family keeps `slot` in Hugging Face checkpoints (without the body's prefix, such as `model.`).
    ///
    /// # Panics
    /// If no description has such a slot: a mistake in the family's source, found by its first test.
    pub fn hf(mut self, slot: &str, name: &'static str) -> Self {
        let rule = self.rules.iter_mut().find(|r| r.slot == slot);
        rule.unwrap_or_else(|| panic!("no slot is called `{slot}`")).hf = name;
        self
    }

    /// Norm weights of Hugging Face checkpoints are used as `1 + w`.
    pub fn with_norms_add_one(self) -> Self {
        Names { norms_add_one: true, ..self }
    }

    /// Query and key rows of GGUF files stand in `rows` order.
    pub fn with_gguf_qk_rows(self, rows: QkRows) -> Self {
        Names { gguf_qk_rows: rows, ..self }
    }

    /// The names `slot` can have in `source`, in the order to look, without suffix. Experts of GGUF files are slices of one tensor.
    pub(crate) fn candidates(&self, slot: Slot, source: &Source) -> Vec<String> {
        let Some(rule) = self.rules.iter().find(|r| r.slot == slot.pattern) else {
            return Vec::new();
        };
        match source.config().kind() {
            ConfigKind::Gguf => vec![slot.fill(rule.gguf)],
            ConfigKind::Json if rule.hf.is_empty() => Vec::new(),
            ConfigKind::Json if slot.pattern == "head" => {
                HEAD_PREFIXES.iter().map(|p| format!("{p}{}", rule.hf)).collect()
            }
            ConfigKind::Json => {
                let name = slot.fill(rule.hf);
                match self.body_prefix(source) {
                    Some(prefix) => vec![format!("{prefix}{name}")],
                    None => BODY_PREFIXES.iter().map(|p| format!("{p}{name}")).collect(),
                }
            }
        }
    }

    fn body_prefix(&self, source: &Source) -> Option<&'static str> {
        let embed = self.rules.iter().find(|r| r.slot == EMBED)?.hf;
        BODY_PREFIXES.iter().copied().find(|p| source.info(&format!("{p}{embed}.weight")).is_some())
    }
}
