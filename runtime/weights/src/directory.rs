//! Which model a directory holds.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    GgufMetadata, OpenOptions, Result, WeightFormat, WeightsError,
    file::{FileBytes, io_error},
    gguf::{ShardName, parse_metadata},
    quote::quoted_list,
    safetensors,
};

/// The quantisation taken from a folder of several when the caller names none: the one most people download.
const DEFAULT_PREFERENCE: &str = "q4_k_m";

/// The index most repositories have; others only count without it.
const USUAL_INDEX: &str = "model.safetensors.index.json";

/// Names under which repositories publish whole models, one file or shards. Files of other names (references, adapters) are not the
/// model where one of these is there.
const MODEL_STEMS: &[&str] = &["model", "consolidated"];

/// A folder as far as it is known: on disk, or listed before a download.
pub(crate) struct Folder<'a> {
    /// For messages, and what file names are joined to.
    pub path: &'a Path,
    /// Its files, sorted.
    pub names: &'a [String],
    /// Whether every file that this index names is there.
    pub index_is_complete: &'a dyn Fn(&Path) -> bool,
    /// Whether this GGUF file is a model rather than a part of one.
    pub is_model: &'a dyn Fn(&Path) -> bool,
}

/// What to open.
#[derive(Debug)]
pub(crate) enum Choice {
    /// A GGUF file, or the first shard present of a set.
    Gguf(PathBuf),
    /// An index and the files it names.
    SafetensorsIndex(PathBuf),
    /// A safetensors file, or all shards of a set without an index.
    Safetensors(Vec<PathBuf>),
}

impl Choice {
    /// Whether all that opening safetensors takes is there.
    fn is_complete(&self, folder: &Folder<'_>) -> bool {
        let has_config = folder.names.iter().any(|name| name == "config.json");
        match self {
            Choice::Gguf(_) => true,
            Choice::SafetensorsIndex(index) => has_config && (folder.index_is_complete)(index),
            Choice::Safetensors(_) => has_config,
        }
    }
}

/// Picks the model of `directory`.
///
/// Safetensors come before GGUF where both are there and the caller has no wish. Among GGUF files: the only one; the one the caller
/// prefers; the one named like the directory; the usual quantisation.
///
/// # Errors
/// `Ambiguous` with the choices, sorted; `Missing` if there is no model.
pub(crate) fn choose(directory: &Path, options: &OpenOptions) -> Result<Choice> {
    choose_in(
        &Folder {
            path: directory,
            names: &file_names(directory)?,
            index_is_complete: &|index| safetensors::check_index(index).is_ok(),
            is_model: &is_model,
        },
        options,
    )
}

/// [`choose`] from what is known of a folder.
///
/// # Errors
/// As [`choose`].
pub(crate) fn choose_in(folder: &Folder<'_>, options: &OpenOptions) -> Result<Choice> {
    let safetensors = || choose_safetensors(folder);
    let gguf = || folder.names.iter().any(|name| has_extension(name, "gguf")).then(|| choose_gguf(folder, options));
    let choice = match options.format {
        Some(WeightFormat::Safetensors) => safetensors(),
        Some(WeightFormat::Gguf) => gguf(),
        None => match safetensors() {
            Some(Ok(choice)) if choice.is_complete(folder) => Some(Ok(choice)),
            // Only without GGUF files is it worth saying what is wrong with the safetensors.
            other => gguf().or(other),
        },
    };
    choice.unwrap_or_else(|| Err(nothing(folder, options.format)))
}

/// Every file of a directory, sorted.
pub(crate) fn file_names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(io_error(directory))? {
        let entry = entry.map_err(io_error(directory))?;
        // A name that is not Unicode cannot be one of the names looked for. Links count as what they lead to.
        if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_file()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

fn nothing(folder: &Folder<'_>, format: Option<WeightFormat>) -> WeightsError {
    let names = folder.names;
    let expected = match format {
        Some(format) => format!("expected a {format} model in this directory"),
        None => "expected a GGUF file, or safetensors with `config.json`, in this directory".into(),
    };
    let checkpoints = names.iter().filter(|name| ["bin", "pt", "pth"].iter().any(|end| has_extension(name, end)));
    let checkpoints = quoted_list(checkpoints.map(String::as_str));
    let reason = match (names.is_empty(), checkpoints.is_empty()) {
        (true, _) => format!("{expected}, found no files"),
        (false, true) => format!("{expected}, found none"),
        (false, false) => format!("{expected}, found PyTorch checkpoints (convert them to safetensors): {checkpoints}"),
    };
    WeightsError::Missing { path: folder.path.to_path_buf(), reason }
}

/// A set of safetensors, if the folder has any.
fn choose_safetensors(folder: &Folder<'_>) -> Option<Result<Choice>> {
    let Folder { path: directory, names, .. } = *folder;
    let exists = |name: &str| folder.names.iter().any(|found| found == name);
    let indexes: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| name.ends_with(".safetensors.index.json")).collect();
    match indexes.as_slice() {
        [] => {}
        [index] => return Some(Ok(Choice::SafetensorsIndex(directory.join(index)))),
        several if several.contains(&USUAL_INDEX) => {
            return Some(Ok(Choice::SafetensorsIndex(directory.join(USUAL_INDEX))));
        }
        several => return Some(Err(ambiguous(directory, "indexes", several))),
    }
    let candidates = candidates(names, "safetensors");
    let models: Vec<&Candidate> =
        candidates.iter().filter(|c| c.shard.is_some() || MODEL_STEMS.contains(&c.stem.as_str())).collect();
    if let [model] = models.as_slice() {
        return Some(model.paths(directory, exists).map(Choice::Safetensors));
    }
    match candidates.as_slice() {
        [] => None,
        [only] => Some(only.paths(directory, exists).map(Choice::Safetensors)),
        several => {
            let titles: Vec<&str> = several.iter().map(|candidate| candidate.title.as_str()).collect();
            Some(Err(ambiguous(directory, "safetensors files and no index that joins them", &titles)))
        }
    }
}

/// The set that a safetensors file is a shard of, by its name: what its index joins, or all shards where there is no index.
///
/// # Errors
/// `Missing` if there is no index and not all shards are there.
pub(crate) fn set_of(file: &Path) -> Option<Result<Choice>> {
    let name = file.file_name()?.to_str()?;
    let directory = file.parent()?;
    let shard = ShardName::parse(name, "safetensors")?;
    let index = directory.join(format!("{}.safetensors.index.json", shard.stem));
    if index.is_file() {
        return Some(Ok(Choice::SafetensorsIndex(index)));
    }
    let [candidate] = candidates(&[name.to_owned()], "safetensors").try_into().ok()?;
    Some(candidate.paths(directory, |name| directory.join(name).is_file()).map(Choice::Safetensors))
}

/// One file, or the shards of one set that are there.
pub(crate) struct Candidate {
    /// File name; for a set, its first shard's.
    pub title: String,
    /// Name without extension and shard numbers.
    stem: String,
    /// The file, or a shard that is there.
    pub present: String,
    shard: Option<ShardName>,
}

impl Candidate {
    /// Every file of it.
    ///
    /// # Errors
    /// `Missing` if one of its files does not exist.
    pub fn paths(&self, directory: &Path, exists: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        let Some(shard) = &self.shard else {
            return Ok(vec![directory.join(&self.present)]);
        };
        shard.set_in(directory, exists).map_err(|absent| WeightsError::Missing {
            path: directory.to_path_buf(),
            reason: format!(
                "expected {} shards of `{}`, found {} missing: {} (incomplete download?)",
                shard.count,
                shard.stem,
                absent.len(),
                quoted_list(absent.iter().map(String::as_str))
            ),
        })
    }
}

/// Files of one extension with shards of a set counted once, sorted.
pub(crate) fn candidates(names: &[String], extension: &str) -> Vec<Candidate> {
    let mut found: BTreeMap<String, Candidate> = BTreeMap::new();
    for name in names.iter().filter(|name| has_extension(name, extension)) {
        let shard = ShardName::parse(name, extension);
        let title = shard.as_ref().map_or_else(|| name.clone(), |shard| shard.sibling(1));
        let stem = match &shard {
            Some(shard) => shard.stem.clone(),
            None => Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        found.entry(title.clone()).or_insert(Candidate { title, stem, present: name.clone(), shard });
    }
    found.into_values().collect()
}

fn choose_gguf(folder: &Folder<'_>, options: &OpenOptions) -> Result<Choice> {
    let directory = folder.path;
    let mut models = candidates(folder.names, "gguf");
    models.retain(|candidate| (folder.is_model)(&directory.join(&candidate.present)));
    let open = |candidate: &Candidate| Ok(Choice::Gguf(directory.join(&candidate.present)));

    if let [only] = models.as_slice() {
        return open(only);
    }
    if models.is_empty() {
        let reason = "expected a model, found only GGUF files that belong to one (projectors, adapters)".into();
        return Err(WeightsError::Missing { path: directory.to_path_buf(), reason });
    }
    let wish = options.prefer_gguf.as_deref();
    let named_alike =
        wish.is_none().then(|| models.iter().find(|c| Some(&c.stem) == directory_name(directory).as_ref()));
    if let Some(candidate) = named_alike.flatten() {
        return open(candidate);
    }
    let preference = wish.unwrap_or(DEFAULT_PREFERENCE).to_ascii_lowercase();
    let preferred: Vec<&Candidate> =
        models.iter().filter(|candidate| candidate.title.to_ascii_lowercase().contains(&preference)).collect();
    match preferred.as_slice() {
        [one] => open(one),
        _ => {
            let titles: Vec<&str> = models.iter().map(|candidate| candidate.title.as_str()).collect();
            Err(ambiguous(directory, "GGUF models", &titles))
        }
    }
}

fn directory_name(directory: &Path) -> Option<String> {
    let name = match directory.file_name() {
        Some(name) => name.to_owned(),
        // `.` and `..` have a name only once resolved.
        None => fs::canonicalize(directory).ok()?.file_name()?.to_owned(),
    };
    name.into_string().ok()
}

/// Whether a GGUF file is a model rather than a part of one. Its metadata says; the name only where that cannot be read.
fn is_model(path: &Path) -> bool {
    let metadata = FileBytes::map(path).and_then(|file| {
        crate::sniff::expect_gguf(&file)?;
        parse_metadata(&file)
    });
    match metadata {
        Ok(metadata) => !is_companion(&metadata),
        Err(_) => is_model_by_name(path),
    }
}

/// As [`is_model`] of a file that cannot be read: projectors are published under names that say so.
pub(crate) fn is_model_by_name(path: &Path) -> bool {
    !path.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().starts_with("mmproj"))
}

/// Whether the metadata is that of a projector, an adapter or the like.
fn is_companion(metadata: &GgufMetadata) -> bool {
    let text = |key| metadata.str(key).ok().flatten();
    text("general.architecture") == Some("clip") || text("general.type").is_some_and(|kind| kind != "model")
}

fn ambiguous(directory: &Path, what: &str, choices: &[&str]) -> WeightsError {
    let names = quoted_list(choices.iter().copied());
    let reason = format!("expected one model, found {} {what}: {names}; name one of them", choices.len());
    WeightsError::Ambiguous { path: directory.to_path_buf(), reason }
}
