//! Qwen2 and Qwen2.5, dense and mixture-of-experts.
//!
//! Paper: Yang et al. 2024 (arXiv:2407.10671). Reference: `Qwen2ForCausalLM`, `Qwen2MoeForCausalLM` of transformers.
//!
//! Unusual: biases on query, key and value; layers from `max_window_layers` on may slide; the experts stand beside one that every
//! token runs, behind a gate of its own, and their weights are not renormalised.

use kinfolk::decoder::{Activation, Config, Decoder, GatedMlp, Moe, Result, SharedExpert, has_experts};

#[kinfolk::family(
    name = "qwen2",
    description = "Qwen2 and Qwen2.5, dense and mixture-of-experts",
    model_types = ["qwen2", "qwen2_moe"],
    gguf = ["qwen2", "qwen2moe"],
    classes = ["Qwen2ForCausalLM", "Qwen2MoeForCausalLM"],
    tool_calls = "hermes",
    turn_ends = ["<|im_end|>", "<|endoftext|>"],
)]
fn describe(config: &Config) -> Result<Decoder> {
    let activation = Activation::from_config(config)?;
    let mut decoder = Decoder::llama_shaped(config, 10_000.0, activation)?;
    decoder.slide_from_max_window_layers(config)?;
    if has_experts(config)? {
        let renormalize = config.opt_bool("norm_topk_prob")?.unwrap_or(false);
        let shared = GatedMlp::from_config(config, "shared_expert_intermediate_size", activation)?;
        let moe = Moe {
            shared: Some(SharedExpert { expert: shared }),
            ..Moe::from_config(config, "moe_intermediate_size", activation, renormalize)?
        };
        decoder.set_experts(config, moe)?;
    }
    Ok(decoder)
}

#[cfg(test)]
mod tests;
