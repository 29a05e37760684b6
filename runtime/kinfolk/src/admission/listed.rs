//! The table of a model that is only listed: the description's tensors, in the types that config, names and sizes tell.

use std::collections::BTreeSet;

use kinfolk_decoder::{Config, Decoder, Source, stored_as};
use kinfolk_weights::{Dtype, ListedModel, Listing, TensorInfo, WeightFormat};

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

/// Every tensor of a description, by name and shape, where the head is tied and where it is not.
struct Tables {
    tied: Vec<TensorInfo>,
    untied: Vec<TensorInfo>,
}

impl Tables {
    /// `names`: what an index lists, which then says whether there is a head.
    fn new(
        listing: &Listing,
        names: Option<&BTreeSet<String>>,
        config: &Config,
        decoder: &Decoder,
    ) -> Result<Tables, Refused> {
        let named = names.into_iter().flatten().map(|name| known_by_name(name)).collect();
        let named = Source::outline(listing.path(), WeightFormat::Safetensors, config.clone(), named)?;
        let table = |untied| decoder.outline(&named, Dtype::F32, untied);
        Ok(Tables { tied: table(false), untied: table(true) })
    }

    fn of(&self, untied: bool) -> &[TensorInfo] {
        if untied { &self.untied } else { &self.tied }
    }

    /// Whether the files hold what is described and nothing else, as far as config and index tell.
    fn are_all_of(&self, model: &ListedModel, config: &Config) -> bool {
        // Sorted by name.
        let is_described = |name: &String| self.untied.binary_search_by(|info| info.name.cmp(name)).is_ok();
        !config.has("vision_config") && model.tensor_names.as_ref().is_none_or(|names| names.iter().all(is_described))
    }

    /// Bytes of all tensors with projections as `dtype`.
    fn bytes(&self, dtype: Dtype, untied: bool) -> u64 {
        let bytes = |info: &TensorInfo| stored_as(dtype, &info.shape).bytes_for(info.n_elements()).unwrap_or(0) as u64;
        self.of(untied).iter().map(bytes).fold(0, u64::saturating_add)
    }
}

impl Listed {
    /// The table that `decoder` gives the files `model` of `listing`.
    ///
    /// # Errors
    /// If no such table can be.
    pub fn new(listing: &Listing, model: &ListedModel, config: &Config, decoder: &Decoder) -> Result<Listed, Refused> {
        let tables = Tables::new(listing, model.tensor_names.as_ref(), config, decoder)?;
        Self::with(&tables, listing, model, config)
    }

    fn with(tables: &Tables, listing: &Listing, model: &ListedModel, config: &Config) -> Result<Listed, Refused> {
        let (dtype, untied, basis) = match model.format {
            WeightFormat::Gguf => gguf_type(model, config, tables)?,
            _ => float_type(model, config, tables)?,
        };
        let tensors = tables.of(untied).iter().cloned();
        let stored = tensors.map(|info| TensorInfo { dtype: stored_as(dtype, &info.shape), ..info }).collect();
        let source = Source::outline(listing.path(), model.format, config.clone(), stored)?;
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
    let others = || listing.gguf_models().unwrap_or_default().into_iter().filter(|model| model.files != files);
    let Some(config) = listing.config().filter(|_| others().next().is_some()) else { return Vec::new() };
    let Ok(tables) = Tables::new(listing, None, config, decoder) else { return Vec::new() };
    let weighed = others().filter_map(|model| {
        let listed = Listed::with(&tables, listing, &model, config).ok()?;
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

/// The type of safetensors, and whether they have a head. The config says the type, unless the files are too large for that and hold
/// nothing else that would make them so.
fn float_type(model: &ListedModel, config: &Config, tables: &Tables) -> Result<(Dtype, bool, Basis), Refused> {
    let said = match config.opt_str("torch_dtype")? {
        Some(name) => float_named(name),
        None => config.opt_str("dtype")?.and_then(float_named),
    };
    let untied = is_untied(model, config, tables, &said.map_or(vec![Dtype::F32, Dtype::BF16], |dtype| vec![dtype]))?;
    let Some(n_bytes) = sizes(model) else {
        let basis = if said.is_some() { Basis::Config } else { Basis::Assumed };
        return Ok((said.unwrap_or(Dtype::F32), untied, basis));
    };
    // Between the two widths that checkpoints have, at three bytes.
    let wide = n_bytes / 3 > tables.bytes(Dtype::F32, untied) / 4;
    Ok(match said {
        Some(dtype) if dtype.block_bytes() >= 4 || !wide || !tables.are_all_of(model, config) => {
            (dtype, untied, Basis::Config)
        }
        _ if wide => (Dtype::F32, untied, Basis::FileSizes),
        _ => (Dtype::BF16, untied, Basis::FileSizes),
    })
}

/// The type of most tensors of GGUF files: what the name says, or the one nearest in size.
fn gguf_type(model: &ListedModel, config: &Config, tables: &Tables) -> Result<(Dtype, bool, Basis), Refused> {
    const USUAL: [Dtype; 8] =
        [Dtype::F32, Dtype::F16, Dtype::Q8_0, Dtype::Q6_K, Dtype::Q5_K, Dtype::Q4_K, Dtype::Q3_K, Dtype::Q2_K];
    let hint = model.files.first().and_then(|name| Dtype::from_file_name(name));
    let untied = is_untied(model, config, tables, hint.as_slice())?;
    if let Some(dtype) = hint {
        return Ok((dtype, untied, Basis::FileName));
    }
    let n_bytes = sizes(model).unwrap_or(u64::MAX);
    let nearest = USUAL.into_iter().min_by_key(|&dtype| tables.bytes(dtype, untied).abs_diff(n_bytes));
    Ok((nearest.unwrap_or(Dtype::F32), untied, Basis::FileSizes))
}

/// Whether the head has weights of its own: by the files' sizes where those leave no doubt, else as the config says. Where it says
/// nothing they are tied, as transformers takes it. `dtypes`: what the weights may be stored as.
fn is_untied(model: &ListedModel, config: &Config, tables: &Tables, dtypes: &[Dtype]) -> Result<bool, Refused> {
    let said = config.opt_bool("tie_word_embeddings")?.is_some_and(|tied| !tied);
    let Some(n_bytes) = sizes(model).filter(|_| model.tensor_names.is_none() && !config.has("vision_config")) else {
        return Ok(said);
    };
    let tolerance = n_bytes / 50;
    let fits = |untied| dtypes.iter().any(|&dtype| tables.bytes(dtype, untied).abs_diff(n_bytes) <= tolerance);
    Ok(match (fits(false), fits(true)) {
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
