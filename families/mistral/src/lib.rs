//! Mistral, Mixtral, Ministral and Mistral Small 3.
//!
//! Papers: Jiang et al. 2023 (arXiv:2310.06825), 2024 (arXiv:2401.04088). Reference: `MistralForCausalLM`, `MixtralForCausalLM`,
//! `MinistralForCausalLM`, `Ministral3ForCausalLM` of transformers.
//!
//! Unusual: a window on every layer unless `layer_types` says otherwise; Ministral 3 scales its queries by their position. GGUF files
//! of the older models call themselves `llama`, and that family runs them.

use kinfolk::decoder::{Activation, Config, Decoder, Mask, Moe, QkRows, QueryTemperature, Result, has_experts};

#[kinfolk::family(
    name = "mistral",
    description = "Mistral, Mixtral, Ministral and Mistral Small 3",
    model_types = ["mistral", "mixtral", "ministral", "ministral3", "mistral3"],
    gguf = ["mistral3"],
    classes = [
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "MinistralForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
    ],
    tool_calls = "mistral",
    turn_ends = ["</s>", "<|im_end|>"],
)]
fn describe(config: &Config) -> Result<Decoder> {
    let activation = Activation::from_config(config)?;
    let mut decoder = Decoder::llama_shaped(config, 10_000.0, activation)?;
    decoder.names = decoder.names.with_gguf_qk_rows(QkRows::Pairs);
    if !config.has("layer_types") {
        let mask = Mask::from_config(config)?;
        decoder.attentions_mut().for_each(|a| a.mask = mask);
    }
    let temperature = query_temperature(config)?;
    decoder.attentions_mut().for_each(|a| a.query_temperature = temperature);
    if has_experts(config)? {
        let moe = Moe::from_config(config, "intermediate_size", activation, true)?;
        decoder.set_experts(config, moe)?;
        decoder.names = decoder
            .names
            .hf("layers.{i}.moe.router", "layers.{i}.block_sparse_moe.gate")
            .hf("layers.{i}.moe.experts.{e}.gate", "layers.{i}.block_sparse_moe.experts.{e}.w1")
            .hf("layers.{i}.moe.experts.{e}.up", "layers.{i}.block_sparse_moe.experts.{e}.w3")
            .hf("layers.{i}.moe.experts.{e}.down", "layers.{i}.block_sparse_moe.experts.{e}.w2");
    }
    Ok(decoder)
}

/// Ministral 3's growth of the queries beyond the context it was trained with.
fn query_temperature(config: &Config) -> Result<Option<QueryTemperature>> {
    let rope = match config.section("rope_parameters")? {
        Some(section) => Some(section),
        None => config.section("rope_scaling")?,
    };
    let Some(rope) = rope else { return Ok(None) };
    let scale = match rope.opt_f32("llama_4_scaling_beta")? {
        Some(scale) => Some(scale),
        None => config.opt_f32("attention.temperature_scale")?,
    };
    let Some(scale) = scale else { return Ok(None) };
    match rope.usize("original_max_position_embeddings")? {
        0 => Err(rope.unsupported("original_max_position_embeddings", "expected a number > 0, found 0").into()),
        floor => Ok(Some(QueryTemperature { scale, floor })),
    }
}

#[cfg(test)]
mod tests;
