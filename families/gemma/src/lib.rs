//! Gemma 1, 2 and 3 and VaultGemma; of multimodal Gemma 3 checkpoints the text part.
//!
//! Papers: Gemma Team 2024 (arXiv:2403.08295, arXiv:2408.00118), 2025 (arXiv:2503.19786). Reference: `GemmaForCausalLM`,
//! `Gemma2ForCausalLM`, `Gemma3ForCausalLM`, `VaultGemmaForCausalLM` of transformers.
//!
//! Unusual: norm weights are stored less one; embeddings are scaled by √hidden; from Gemma 2 on every half has a norm on both sides
//! and layers alternate between a window and the whole context; Gemma 2 soft-caps scores and logits; Gemma 3 rotates sliding layers
//! with a base of their own.

use kinfolk::decoder::{Activation, Config, Decoder, Mask, Result, RopeScaling, Wiring, sliding_layers, softcap};

#[kinfolk::family(
    name = "gemma",
    description = "Gemma 1, 2 and 3 and VaultGemma",
    model_types = ["gemma", "gemma2", "gemma3", "gemma3_text", "vaultgemma"],
    gguf = ["gemma", "gemma2", "gemma3"],
    classes = [
        "GemmaForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "VaultGemmaForCausalLM",
    ],
    turn_ends = ["<end_of_turn>", "<eos>"],
)]
fn describe(config: &Config) -> Result<Decoder> {
    // Old configs say "gelu" and mean the tanh form.
    let mut decoder = Decoder::llama_shaped(config, 10_000.0, Activation::GeluTanh)?;
    decoder.names = decoder.names.with_norms_add_one();
    decoder.embedding.scale = Some((decoder.embedding.hidden_size as f32).sqrt());
    decoder.head.softcap = softcap(config, "final_logit_softcapping")?;
    match Generation::of(config) {
        Generation::First => {}
        Generation::Second { post_norms } => {
            alternate(config, &mut decoder, 2, post_norms)?;
            scale_queries(config, &mut decoder, 46)?;
            let cap = softcap(config, "attn_logit_softcapping")?;
            decoder.attentions_mut().for_each(|a| a.softcap = cap);
        }
        Generation::Third => {
            let pattern = config.opt_usize("sliding_window_pattern")?.unwrap_or(6);
            alternate(config, &mut decoder, pattern, true)?;
            scale_queries(config, &mut decoder, 62)?;
            let norm = decoder.final_norm;
            decoder.attentions_mut().for_each(|a| a.qk_norm = Some(norm));
            rotate_locally(config, &mut decoder)?;
        }
    }
    Ok(decoder)
}

enum Generation {
    First,
    Second { post_norms: bool },
    Third,
}

impl Generation {
    fn of(config: &Config) -> Generation {
        let names = config.architectures().join(" ").to_lowercase();
        if names.contains("gemma3") {
            Generation::Third
        } else if names.contains("gemma2") {
            Generation::Second { post_norms: true }
        } else if names.contains("vaultgemma") {
            Generation::Second { post_norms: false }
        } else {
            Generation::First
        }
    }
}

/// Norms on both sides of each half, and a window on all layers but every `pattern`-th.
fn alternate(config: &Config, decoder: &mut Decoder, pattern: usize, post_norms: bool) -> Result<()> {
    let norm = decoder.final_norm;
    let post = post_norms.then_some(norm);
    let window = Mask::from_config(config)?;
    let n_layers = decoder.layers.len();
    for layer in &mut decoder.layers {
        layer.wiring =
            Wiring::Sequential { pre_mixer: Some(norm), post_mixer: post, pre_ffn: Some(norm), post_ffn: post };
    }
    let sliding = sliding_layers(config, n_layers, |i| !(i + 1).is_multiple_of(pattern.max(1)))?;
    for (attention, slides) in decoder.attentions_mut().zip(sliding) {
        attention.mask = if slides { window } else { Mask::Causal };
    }
    let names = std::mem::take(&mut decoder.names);
    decoder.names = names.hf("layers.{i}.norm.pre_ffn", "layers.{i}.pre_feedforward_layernorm");
    Ok(())
}

/// Scores scaled by `query_pre_attn_scalar`. GGUF files lack it: there the 27B model, known by its layers, scales by the width per
/// head of the residual stream, and all others by the head's.
fn scale_queries(config: &Config, decoder: &mut Decoder, n_layers_of_27b: usize) -> Result<()> {
    let given = config.opt_f32("query_pre_attn_scalar")?;
    if let Some(scalar) = given.filter(|scalar| !(scalar.is_finite() && *scalar > 0.0)) {
        return Err(config
            .unsupported("query_pre_attn_scalar", format!("expected a number > 0, found {scalar}"))
            .into());
    }
    let is_27b = decoder.layers.len() == n_layers_of_27b;
    let hidden = decoder.embedding.hidden_size;
    for a in decoder.attentions_mut() {
        let width = if is_27b { hidden / a.n_heads } else { a.head_dim };
        a.scale = given.unwrap_or(width as f32).powf(-0.5);
    }
    Ok(())
}

/// Sliding layers rotate with a base of their own, and are never stretched.
fn rotate_locally(config: &Config, decoder: &mut Decoder) -> Result<()> {
    // Newer configs give each kind of layer its own rope, which is already read.
    if let Some(ropes) = config.section("rope_parameters")?
        && ropes.has("sliding_attention")
    {
        return Ok(());
    }
    let theta = config.opt_f32("rope_local_base_freq")?.unwrap_or(10_000.0);
    for a in decoder.attentions_mut().filter(|a| a.mask != Mask::Causal) {
        a.rope.iter_mut().for_each(|rope| (rope.theta, rope.scaling) = (theta, RopeScaling::Default));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
