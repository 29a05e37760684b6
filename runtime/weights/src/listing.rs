//! A model before it is there: the names and sizes of its files, its `config.json` and its index.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    Config, ConfigError, OpenOptions, Result, WeightFormat, WeightsError,
    directory::{self, Candidate, Choice, Folder, file_names, is_model_by_name},
    file::{io_error, read_text},
    quote::quoted,
    safetensors::{self, MAX_INDEX_BYTES},
    source::MAX_CONFIG_BYTES,
};

/// What a repository lists of a model: enough to tell what it is and needs before a byte of weights is fetched.
///
/// Which of the files are the model is decided as [`Source::open`](crate::Source::open) decides it of a folder, but for what only
/// the bytes of a file say: a projector is told from a model by its name.
///
/// # Example
/// ```
/// # use kinfolk_weights::{Listing, OpenOptions};
/// let listing = Listing::new("org/tiny", [("config.json".to_owned(), 600), ("model.safetensors".to_owned(), 270_000_000)])?
///     .with_config(r#"{"model_type": "llama"}"#)?;
/// assert_eq!(listing.choose(&OpenOptions::default())?.n_bytes, Some(270_000_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Listing {
    path: PathBuf,
    /// Name to bytes.
    files: BTreeMap<String, u64>,
    config: Option<Config>,
    /// Name to text.
    indexes: BTreeMap<String, String>,
}

/// The files of a [`Listing`] that are the model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedModel {
    /// Their format.
    pub format: WeightFormat,
    /// Their names, in order. None if the listing has no weights and the config is all there is.
    pub files: Vec<String>,
    /// Those that an index names and the listing lacks.
    pub absent: Vec<String>,
    /// Bytes of all of them; `None` if one is absent.
    pub n_bytes: Option<u64>,
    /// Names of all tensors, from the index.
    pub tensor_names: Option<BTreeSet<String>>,
    /// Bytes of all tensors, as the index says.
    pub tensor_bytes: Option<u64>,
}

impl Listing {
    /// Files by name with their bytes. `path` is what messages name: a repository or a folder. Files in subfolders do not count.
    ///
    /// # Errors
    /// `Malformed` if a name is listed twice.
    pub fn new(path: impl Into<PathBuf>, files: impl IntoIterator<Item = (String, u64)>) -> Result<Listing> {
        let path = path.into();
        let mut by_name = BTreeMap::new();
        for (name, n_bytes) in files.into_iter().filter(|(name, _)| safetensors::is_base_name(name)) {
            if by_name.insert(name.clone(), n_bytes).is_some() {
                let reason = format!("expected each file once, found {} listed twice", quoted(&name));
                return Err(WeightsError::Malformed { path, reason });
            }
        }
        Ok(Listing { path, files: by_name, config: None, indexes: BTreeMap::new() })
    }

    /// The listing of a folder on disk, whose weights need not be there.
    ///
    /// # Errors
    /// `Io`; `Malformed` or `Config` if `config.json` or an index is there and cannot be read.
    pub fn of_directory(path: impl AsRef<Path>) -> Result<Listing> {
        let path = path.as_ref();
        let names = file_names(path)?;
        let sized = names.iter().map(|name| {
            let file = path.join(name);
            Ok((name.clone(), file.metadata().map_err(io_error(&file))?.len()))
        });
        let mut listing = Listing::new(path, sized.collect::<Result<Vec<_>>>()?)?;
        if listing.files.contains_key(CONFIG) {
            listing = listing.with_config(&read_text(&path.join(CONFIG), MAX_CONFIG_BYTES)?)?;
        }
        for name in names.iter().filter(|name| is_index(name)).take(MAX_INDEXES) {
            listing = listing.with_index(name, read_text(&path.join(name), MAX_INDEX_BYTES)?);
        }
        Ok(listing)
    }

    /// The text of its `config.json`.
    ///
    /// # Errors
    /// `NotAnObject` if the text is none.
    pub fn with_config(mut self, text: &str) -> std::result::Result<Listing, ConfigError> {
        self.config = Some(Config::from_json(self.path.join(CONFIG), text)?);
        self.files.entry(CONFIG.to_owned()).or_insert(text.len() as u64);
        Ok(self)
    }

    /// The text of an index, such as `model.safetensors.index.json`. An index that is only listed by name is not made use of.
    pub fn with_index(mut self, file_name: &str, text: String) -> Listing {
        self.files.entry(file_name.to_owned()).or_insert(text.len() as u64);
        self.indexes.insert(file_name.to_owned(), text);
        self
    }

    /// What messages call it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its `config.json`.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// Every file with its bytes, sorted by name.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().map(|(name, n_bytes)| (name.as_str(), *n_bytes))
    }

    /// The files that are the model.
    ///
    /// # Errors
    /// As [`Source::open`](crate::Source::open) of a folder, less what takes the bytes of weights to see; `Malformed` if sizes add
    /// up to more than any disk holds.
    pub fn choose(&self, options: &OpenOptions) -> Result<ListedModel> {
        let names: Vec<String> =
            self.files.keys().filter(|name| !is_index(name) || self.indexes.contains_key(*name)).cloned().collect();
        if self.config.is_some() && options.format.is_none() && !names.iter().any(|name| is_of_weights(name)) {
            return self.listed(WeightFormat::Safetensors, Vec::new());
        }
        let folder = Folder {
            path: &self.path,
            names: &names,
            index_is_complete: &|index| self.indexed(index).is_ok_and(|model| model.absent.is_empty()),
            is_model: &is_model_by_name,
        };
        match directory::choose_in(&folder, options)? {
            Choice::SafetensorsIndex(index) => self.indexed(&index),
            Choice::Safetensors(paths) => {
                self.listed(WeightFormat::Safetensors, paths.iter().map(|path| base_name(path)).collect())
            }
            Choice::Gguf(path) => {
                let candidates = directory::candidates(&[base_name(&path)], "gguf");
                let chosen = candidates.first().map_or_else(|| Ok(Vec::new()), |candidate| self.files_of(candidate))?;
                self.listed(WeightFormat::Gguf, chosen)
            }
        }
    }

    /// Every GGUF model, whole ones only, sorted by name: what one could choose instead.
    ///
    /// # Errors
    /// `Malformed` as [`choose`](Self::choose).
    pub fn gguf_models(&self) -> Result<Vec<ListedModel>> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let candidates = directory::candidates(&names, "gguf");
        let models = candidates.iter().filter(|candidate| is_model_by_name(Path::new(&candidate.present)));
        models
            .filter_map(|candidate| self.files_of(candidate).ok())
            .map(|files| self.listed(WeightFormat::Gguf, files))
            .collect()
    }

    fn files_of(&self, candidate: &Candidate) -> Result<Vec<String>> {
        let paths = candidate.paths(&self.path, |name| self.files.contains_key(name))?;
        Ok(paths.iter().map(|path| base_name(path)).collect())
    }

    fn indexed(&self, index: &Path) -> Result<ListedModel> {
        let text = self.indexes.get(&base_name(index)).map_or("", String::as_str);
        let weight_map = safetensors::parse_index(index, text)?;
        let files: BTreeSet<String> = weight_map.values().cloned().collect();
        let model = self.listed(WeightFormat::Safetensors, files.into_iter().collect())?;
        Ok(ListedModel {
            tensor_names: Some(weight_map.into_keys().collect()),
            tensor_bytes: safetensors::total_bytes(text),
            ..model
        })
    }

    fn listed(&self, format: WeightFormat, files: Vec<String>) -> Result<ListedModel> {
        let absent: Vec<String> = files.iter().filter(|name| !self.files.contains_key(*name)).cloned().collect();
        let sizes = || files.iter().filter_map(|name| self.files.get(name));
        let n_bytes = sizes().try_fold(0u64, |sum, n| sum.checked_add(*n)).ok_or_else(|| WeightsError::Malformed {
            path: self.path.clone(),
            reason: format!("expected files of at most {} bytes together, found more", u64::MAX),
        })?;
        let complete = absent.is_empty() && !files.is_empty();
        Ok(ListedModel {
            format,
            files,
            absent,
            n_bytes: complete.then_some(n_bytes),
            tensor_names: None,
            tensor_bytes: None,
        })
    }
}

const CONFIG: &str = "config.json";

/// Folders have one index, or two where a checkpoint is there in two layouts.
const MAX_INDEXES: usize = 4;

fn is_index(name: &str) -> bool {
    name.ends_with(".safetensors.index.json")
}

/// Whether a file holds weights of some kind, or says where they are.
fn is_of_weights(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    is_index(name) || ["gguf", "safetensors", "bin", "pt", "pth"].contains(&extension.as_str())
}

fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
