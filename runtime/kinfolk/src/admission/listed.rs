//! The table of a model that is only listed: the description's tensors, in the types that config, names and sizes tell.

use std::collections::BTreeSet;

use kinfolk_decoder::{Config, Decoder, Source};
use kinfolk_weights::{Dtype, ListedModel, Listing, TensorInfo, WeightFormat, WeightsError};

use super::{Basis, Refused};

/// What stands for a model that is not there.
pub(super) struct Listed {
    /// Its table, without bytes.
    pub source: Source,
    /// What the types were told from.
    pub basis: Basis,
    /// Bytes of the files, where they hold nothing but the described weights.
    pub file_bytes: Option<u64>,
}

impl Listed {
    /// The table that `decoder` gives the files `model` of `listing`.
    ///
    /// # Errors
    /// If no such table can be.
    pub fn new(listing: &Listing, model: &ListedModel, config: &Config, decoder: &Decoder) -> Result<Listed, Refused> {
        let outline = |tensors| Source::outline(listing.path(), model.format, config.clone(), tensors);
        let named = outline(model.tensor_names.iter().flatten().map(|name| known_by_name(name)).collect())?;
        let table = |dtype, untied| -> Result<Source, WeightsError> { outline(decoder.outline(&named, dtype, untied)) };
        let (dtype, untied, basis) = match model.format {
            WeightFormat::Gguf => gguf_type(model, config, table)?,
            _ => float_type(model, config, table)?,
        };
        let source = table(dtype, untied)?;
        let describes_all = |names: &BTreeSet<String>| names.iter().all(|name| source.info(name).is_some());
        let nothing_else = model.tensor_names.as_ref().is_none_or(describes_all);
        let file_bytes = sizes(model).filter(|_| nothing_else);
        Ok(Listed { source, basis, file_bytes })
    }
}

/// Other GGUF models of the listing than the one of `files`, each by the name of its first file, with its table and bytes.
pub(super) fn alternatives(
    listing: &Listing,
    files: &[String],
    decoder: &Decoder,
) -> Vec<(String, Source, Option<u64>)> {
    let Some(config) = listing.config() else { return Vec::new() };
    let others = listing.gguf_models().unwrap_or_default().into_iter().filter(|model| model.files != files);
    let weighed = others.filter_map(|model| {
        let listed = Listed::new(listing, &model, config, decoder).ok()?;
        Some((model.files.into_iter().next()?, listed.source, listed.file_bytes))
    });
    weighed.collect()
}

/// Stands for a tensor of which only the name is known.
fn known_by_name(name: &str) -> TensorInfo {
    TensorInfo { name: name.to_owned(), dtype: Dtype::F32, shape: Vec::new() }
}

/// Bytes of the weights, as files or index say; the larger if both do.
fn sizes(model: &ListedModel) -> Option<u64> {
    model.n_bytes.max(model.tensor_bytes)
}

/// The type of safetensors. The config says, unless the files are too large for that.
fn float_type(
    model: &ListedModel,
    config: &Config,
    table: impl Fn(Dtype, bool) -> Result<Source, WeightsError>,
) -> Result<(Dtype, bool, Basis), Refused> {
    let said = match config.opt_str("torch_dtype")? {
        Some(name) => float_named(name),
        None => config.opt_str("dtype")?.and_then(float_named),
    };
    let assumed = said.unwrap_or(Dtype::F32);
    let untied = is_untied(model, config, |untied| table(assumed, untied))?;
    let Some(n_bytes) = sizes(model) else {
        return Ok((assumed, untied, if said.is_some() { Basis::Config } else { Basis::Assumed }));
    };
    // Between the two widths that checkpoints have, at three bytes.
    let wide = n_bytes / 3 > table(Dtype::F32, untied)?.tensor_bytes() / 4;
    Ok(match said {
        Some(dtype) if dtype.block_bytes() >= 4 || !wide => (dtype, untied, Basis::Config),
        _ if wide => (Dtype::F32, untied, Basis::FileSizes),
        _ => (Dtype::BF16, untied, Basis::FileSizes),
    })
}

/// The type of most tensors of GGUF files: what the name says, or the one nearest in size.
fn gguf_type(
    model: &ListedModel,
    config: &Config,
    table: impl Fn(Dtype, bool) -> Result<Source, WeightsError>,
) -> Result<(Dtype, bool, Basis), Refused> {
    const USUAL: [Dtype; 8] =
        [Dtype::F32, Dtype::F16, Dtype::Q8_0, Dtype::Q6_K, Dtype::Q5_K, Dtype::Q4_K, Dtype::Q3_K, Dtype::Q2_K];
    let hint = model.files.first().and_then(|name| Dtype::from_file_name(name));
    let untied = is_untied(model, config, |untied| table(hint.unwrap_or(Dtype::Q4_K), untied))?;
    if let Some(dtype) = hint {
        return Ok((dtype, untied, Basis::FileName));
    }
    let n_bytes = sizes(model).unwrap_or(u64::MAX);
    let mut nearest = (u64::MAX, Dtype::F32);
    for dtype in USUAL {
        nearest = nearest.min((table(dtype, untied)?.tensor_bytes().abs_diff(n_bytes), dtype));
    }
    Ok((nearest.1, untied, Basis::FileSizes))
}

/// Whether the head has weights of its own: by the files' sizes where those are known, else as the config says. Where it says nothing
/// they are tied, as transformers takes it.
fn is_untied(
    model: &ListedModel,
    config: &Config,
    table: impl Fn(bool) -> Result<Source, WeightsError>,
) -> Result<bool, Refused> {
    let said = config.opt_bool("tie_word_embeddings")?.is_some_and(|tied| !tied);
    let Some(n_bytes) = sizes(model).filter(|_| model.tensor_names.is_none() && !config.has("vision_config")) else {
        return Ok(said);
    };
    let [tied, untied] = [table(false)?, table(true)?].map(|source| source.tensor_bytes().abs_diff(n_bytes));
    // Sizes decide only where they leave no doubt.
    let tolerance = n_bytes / 50;
    Ok(match (tied <= tolerance, untied <= tolerance) {
        (true, false) => false,
        (false, true) => true,
        _ => said,
    })
}

/// A type as `torch_dtype` and `dtype` name it.
fn float_named(name: &str) -> Option<Dtype> {
    Some(match name.strip_prefix("torch.").unwrap_or(name) {
        "float32" | "float" => Dtype::F32,
        "float16" | "half" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "float64" | "double" => Dtype::F64,
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "float8_e5m2" => Dtype::F8_E5M2,
        _ => return None,
    })
}
