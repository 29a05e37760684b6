//! Qwen3, dense and mixture-of-experts, and the embedding models made from it.
//!
//! Paper: Yang et al. 2025 (arXiv:2505.09388). Reference: `Qwen3ForCausalLM`, `Qwen3MoeForCausalLM` of transformers.
//!
//! Unusual: a norm over each query and key head before rotation, and a head width of its own. Embedding models are published without
//! the `model.` prefix.

use kinfolk::decoder::{Activation, Config, Decoder, Moe, Result, has_experts};

#[kinfolk::family(
    name = "qwen3",
    description = "Qwen3, dense and mixture-of-experts",
    model_types = ["qwen3", "qwen3_moe"],
    gguf = ["qwen3", "qwen3moe"],
    classes = ["Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3Model"],
    tool_calls = "hermes",
    turn_ends = ["<|im_end|>", "<|endoftext|>"],
)]
fn describe(config: &Config) -> Result<Decoder> {
    let activation = Activation::from_config(config)?;
    let mut decoder = Decoder::llama_shaped(config, 1_000_000.0, activation)?;
    let norm = decoder.final_norm;
    decoder.attentions_mut().for_each(|a| a.qk_norm = Some(norm));
    decoder.slide_from_max_window_layers(config)?;
    if has_experts(config)? {
        // GGUF files do not say; every published checkpoint renormalises.
        let renormalize = config.opt_bool("norm_topk_prob")?.unwrap_or(true);
        let moe = Moe::from_config(config, "moe_intermediate_size", activation, renormalize)?;
        decoder.set_experts(config, moe)?;
    }
    Ok(decoder)
}

#[cfg(test)]
mod tests;
