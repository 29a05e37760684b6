//! How a model's weights are stored.

use std::{collections::BTreeMap, fmt};

use kinfolk_decoder::Weights;
use kinfolk_weights::{Dtype, quant};
use serde::Serialize;

/// How the weights are stored that a load takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Quantisation {
    /// Types by their share of the bytes, largest first.
    pub schemes: Vec<SchemeShare>,
    /// Bits that a weight takes on average.
    pub bits_per_weight: f64,
    /// What it was told from.
    pub basis: Basis,
}

/// One type among a model's weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SchemeShare {
    /// The type, such as `Q4_K`.
    pub scheme: &'static str,
    /// Part of the bytes, from 0 to 1.
    pub share: f64,
    /// Whether kinfolk has a dequantiser for it.
    pub decodable: bool,
}

/// What a model's types were told from, most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Basis {
    /// The tensors' own types.
    Tensors,
    /// The `dtype` of the config.
    Config,
    /// The sizes of the files, over the number of weights.
    FileSizes,
    /// The name of a GGUF file, which is a hint.
    FileName,
    /// Nothing: f32 is assumed, which is the most there can be.
    Assumed,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Basis::Tensors => "as the tensors are",
            Basis::Config => "by the config",
            Basis::FileSizes => "by the sizes of the files",
            Basis::FileName => "by the file name, a hint",
            Basis::Assumed => "assumed, for want of a `dtype` and of sizes",
        })
    }
}

/// The number of weights, and how they are stored. `file_bytes` are those of the files that hold them, as far as known.
pub(super) fn of(weights: &Weights<'_>, basis: Basis, file_bytes: u64) -> (u64, Quantisation) {
    let mut bytes: BTreeMap<Dtype, u64> = BTreeMap::new();
    let mut n_parameters = 0u64;
    for stored in weights.stored() {
        let of_type = bytes.entry(stored.dtype).or_default();
        *of_type = of_type.saturating_add(stored.n_bytes());
        n_parameters = n_parameters.saturating_add(stored.n_elements as u64);
    }
    let total = bytes.values().copied().fold(0, u64::saturating_add);
    let mut schemes: Vec<SchemeShare> = bytes
        .into_iter()
        .map(|(dtype, bytes)| SchemeShare {
            scheme: dtype.name(),
            share: bytes as f64 / total.max(1) as f64,
            decodable: quant::is_decodable(dtype),
        })
        .collect();
    schemes.sort_by(|a, b| b.share.total_cmp(&a.share));
    let bits_per_weight = 8.0 * total.max(file_bytes) as f64 / n_parameters.max(1) as f64;
    (n_parameters, Quantisation { schemes, bits_per_weight, basis })
}
