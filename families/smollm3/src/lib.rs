//! SmolLM3.
//!
//! Reference: `SmolLM3ForCausalLM` of transformers; Hugging Face 2025, "SmolLM3: smol, multilingual, long-context reasoner".
//!
//! Unusual: every fourth layer has no positions at all (Yang et al. 2025, arXiv:2501.18795). `no_rope_layers` lists the layers that
//! *do* rotate, with a 1.

use kinfolk::decoder::{Activation, Config, Decoder, QkRows, Result};

#[kinfolk::family(
    name = "smollm3",
    description = "SmolLM3",
    model_types = ["smollm3"],
    gguf = ["smollm3"],
    classes = ["SmolLM3ForCausalLM"],
    tool_calls = "hermes",
    turn_ends = ["<|im_end|>", "<|end_of_text|>"],
)]
fn describe(config: &Config) -> Result<Decoder> {
    let mut decoder = Decoder::llama_shaped(config, 2_000_000.0, Activation::from_config(config)?)?;
    decoder.names = decoder.names.with_gguf_qk_rows(QkRows::Pairs);
    decoder.slide_from_max_window_layers(config)?;
    let interval = config.opt_usize("no_rope_layer_interval")?.unwrap_or(4).max(1);
    let listed = config.opt_usizes("no_rope_layers")?;
    for (i, attention) in decoder.attentions_mut().enumerate() {
        let rotates = match &listed {
            Some(list) => list.get(i) != Some(&0),
            None => !(i + 1).is_multiple_of(interval),
        };
        if !rotates {
            attention.rope = None;
        }
    }
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotating(keys: &str) -> Vec<bool> {
        let text = format!(
            r#"{{"hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 8,
                "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "model_type": "smollm3"{keys}}}"#
        );
        let mut decoder = describe(&Config::from_json("config.json", &text).unwrap()).unwrap();
        decoder.attentions_mut().map(|a| a.rope.is_some()).collect()
    }

    #[test]
    fn listed_layers_are_those_that_rotate() {
        assert_eq!(rotating(r#", "no_rope_layers": [0, 1, 1, 0]"#), [false, true, true, false]);
    }

    #[test]
    fn without_a_list_every_fourth_layer_has_no_positions() {
        assert_eq!(rotating(""), [true, true, true, false]);
    }
}
