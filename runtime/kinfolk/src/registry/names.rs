//! When two spellings name one architecture.

/// Reduces an architecture name to what identifies it: lower case, without spaces, `-` and `_`.
///
/// `Qwen3-MoE`, `qwen3_moe` and `qwen3moe` are one name.
pub fn normalise(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace() && !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// The model type inside a normalised class name: `llama` of `llamaforcausallm`. Other tasks than causal language
/// modelling share the body of a model but not its head, so their classes have no stem here.
pub(super) fn class_stem(normalised: &str) -> Option<&str> {
    normalised.strip_suffix("forcausallm").filter(|stem| !stem.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_variants_are_one_name() {
        for spelling in ["Qwen3-MoE", "qwen3_moe", "qwen3 moe", " QWEN3MOE\n"] {
            assert_eq!(normalise(spelling), "qwen3moe", "{spelling:?}");
        }
        assert_ne!(normalise("qwen2.5"), normalise("qwen25"));
    }

    #[test]
    fn only_a_causal_language_model_class_has_a_stem() {
        assert_eq!(class_stem(&normalise("LlamaForCausalLM")), Some("llama"));
        assert_eq!(class_stem(&normalise("LlamaForSequenceClassification")), None);
        assert_eq!(class_stem("forcausallm"), None);
    }
}
