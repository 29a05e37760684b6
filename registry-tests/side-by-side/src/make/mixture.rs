//! Which type each tensor of a file has, as llama.cpp's own quantisation program chooses them for a model with a tied head.

use std::fmt;

use clap::ValueEnum;
use llama_cpp_sys_2 as ggml;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mixture {
    #[value(name = "Q4_0")]
    Q4_0,
    #[value(name = "Q4_1")]
    Q4_1,
    #[value(name = "Q8_0")]
    Q8_0,
    #[value(name = "Q4_K_M")]
    Q4KM,
    #[value(name = "Q5_K_M")]
    Q5KM,
    #[value(name = "Q6_K")]
    Q6K,
    #[value(name = "F16")]
    F16,
    #[value(name = "BF16")]
    Bf16,
}

/// What a matrix is for, as far as its type depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Embedding and head in one.
    Embedding,
    /// Values or the projection down, which the mixtures with `M` keep better in some layers.
    Delicate {
        layer: usize,
    },
    /// Which experts a token goes to.
    Router,
    Other,
}

impl Mixture {
    pub fn tensor_type(self, used_for: Use, n_layers: usize) -> ggml::ggml_type {
        let main = match self {
            Mixture::Q4_0 => ggml::GGML_TYPE_Q4_0,
            Mixture::Q4_1 => ggml::GGML_TYPE_Q4_1,
            Mixture::Q8_0 => ggml::GGML_TYPE_Q8_0,
            Mixture::Q4KM => ggml::GGML_TYPE_Q4_K,
            Mixture::Q5KM => ggml::GGML_TYPE_Q5_K,
            Mixture::Q6K => ggml::GGML_TYPE_Q6_K,
            Mixture::F16 => ggml::GGML_TYPE_F16,
            Mixture::Bf16 => ggml::GGML_TYPE_BF16,
        };
        let keeps_head = matches!(self, Mixture::Q8_0 | Mixture::F16 | Mixture::Bf16);
        let is_medium = matches!(self, Mixture::Q4KM | Mixture::Q5KM);
        match used_for {
            Use::Router => ggml::GGML_TYPE_F32,
            Use::Embedding if !keeps_head => ggml::GGML_TYPE_Q6_K,
            Use::Delicate { layer } if is_medium && takes_more_bits(layer, n_layers) => ggml::GGML_TYPE_Q6_K,
            _ => main,
        }
    }

    /// The number of `general.file_type`.
    pub fn file_type(self) -> u32 {
        match self {
            Mixture::F16 => 1,
            Mixture::Q4_0 => 2,
            Mixture::Q4_1 => 3,
            Mixture::Q8_0 => 7,
            Mixture::Q4KM => 15,
            Mixture::Q5KM => 17,
            Mixture::Q6K => 18,
            Mixture::Bf16 => 32,
        }
    }
}

/// The first and the last eighth of the layers, and every third between.
fn takes_more_bits(layer: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_delicate_matrices_of_a_medium_mixture_take_more_bits() {
        let types = (0..28).map(|layer| Mixture::Q4KM.tensor_type(Use::Delicate { layer }, 28));
        assert_eq!(types.filter(|t| *t == ggml::GGML_TYPE_Q6_K).count(), 14);
        assert_eq!(Mixture::Q4_0.tensor_type(Use::Delicate { layer: 0 }, 28), ggml::GGML_TYPE_Q4_0);
    }
}
