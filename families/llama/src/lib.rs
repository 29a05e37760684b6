//! Llama 1 to 3.x and the many checkpoints that share their architecture (SmolLM2, TinyLlama, Vicuna, …).
//!
//! Papers: Touvron et al. 2023 (arXiv:2302.13971, arXiv:2307.09288), Grattafiori et al. 2024 (arXiv:2407.21783).
//! Reference: `LlamaForCausalLM` of transformers.
//!
//! The plainest decoder there is. What is unusual lies in its files: llama.cpp's converter reorders the query and key rows, stores
//! the rope scaling of Llama 3.1 as a tensor, and writes Mixtral under this architecture too.

use kinfolk::decoder::{Activation, Config, Decoder, Moe, QkRows, Result, has_experts};

#[kinfolk::family(
    name = "llama",
    description = "Llama 1 to 3.x and what shares their architecture",
    model_types = ["llama"],
    gguf = ["llama"],
    classes = ["LlamaForCausalLM"],
    tool_calls = "llama3",
    turn_ends = ["<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>"],
)]
fn describe(config: &Config) -> Result<Decoder> {
    let activation = Activation::from_config(config)?;
    let mut decoder = Decoder::llama_shaped(config, 10_000.0, activation)?;
    decoder.names = decoder.names.with_gguf_qk_rows(QkRows::Pairs);
    // Mixtral as GGUF.
    if has_experts(config)? {
        let moe = Moe::from_config(config, "intermediate_size", activation, true)?;
        decoder.set_experts(config, moe)?;
    }
    Ok(decoder)
}

#[cfg(test)]
mod tests;
