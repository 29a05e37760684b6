//! One model on disk (or in memory), whatever its format.

use std::{
    io::ErrorKind,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{
    Config, GgufMetadata, Result, Tensor, TensorInfo, WeightFormat, WeightsError,
    directory::{self, Choice},
    file::{FileBytes, MAX_TEXT_BYTES, read_text},
    fingerprint::blocks,
    gguf::{self, Gguf},
    quote::quoted,
    safetensors::{self, Table},
    sniff::{expect_gguf, sniff},
};

/// A `config.json` is a few kilobytes; as values in memory it takes up to 16 times its size.
pub(crate) const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// How to open a [`Source`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Which of several GGUF files in a directory: matched against the file name, case-insensitively. `None`: the file named
    /// like the directory, else `Q4_K_M`.
    pub prefer_gguf: Option<String>,
    /// Insist on a format where a directory holds several. `None`: safetensors if a complete set is there, else GGUF.
    pub format: Option<WeightFormat>,
}

/// An open model: its config and its tensors. Cheap to keep; tensor bytes stay in the mapped file.
///
/// # Example
/// ```no_run
/// let source = kinfolk_weights::Source::open("SmolLM2-135M-Instruct.Q4_1.gguf")?;
/// println!("{} layers", source.config().usize("num_hidden_layers")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    /// Where files that belong to the model are; `None` in memory.
    directory: Option<PathBuf>,
    format: WeightFormat,
    config: Config,
    metadata: Option<GgufMetadata>,
    files: Vec<FileBytes>,
    paths: Vec<PathBuf>,
    /// Sorted by name.
    tensors: Vec<TensorInfo>,
    /// Runs in parallel to `tensors`; empty in an outline.
    places: Vec<Place>,
}

/// Where a tensor's bytes are.
#[derive(Clone, Debug)]
struct Place {
    file: usize,
    range: Range<usize>,
}

/// Whether safetensors are opened as a model, which has a `config.json`, or as tensors alone.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    Model,
    Tensors,
}

impl Source {
    /// Opens a GGUF file (any shard of a set), a safetensors file, a safetensors index, or a directory that holds a model.
    ///
    /// A path to a file always means that file, whatever lies beside it; what it is, its first bytes say. A shard means its set.
    /// Files that belong to the model are looked for beside the path as given, not beside what a link leads to.
    ///
    /// # Errors
    /// Every way a path or file can be wrong; see [`WeightsError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Source> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// [`open`](Self::open) with choices.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Source> {
        Self::open_path(path.as_ref(), options, Need::Model)
    }

    /// Opens a file of tensors that is no model, such as reference outputs. The config of a safetensors file is then empty.
    ///
    /// # Errors
    /// As [`open`](Self::open), less those about `config.json`.
    pub fn open_tensors(path: impl AsRef<Path>) -> Result<Source> {
        Self::open_path(path.as_ref(), &OpenOptions::default(), Need::Tensors)
    }

    /// A GGUF file that is part of the program, such as an embedded model. `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf_bytes(name: &str, bytes: &'static [u8]) -> Result<Source> {
        let file = FileBytes::from_static(name, bytes);
        expect_gguf(&file)?;
        Self::from_gguf(PathBuf::from(name), None, gguf::open_single(file)?)
    }

    /// A single file of either format in memory, without config for safetensors. `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Source> {
        let file = FileBytes::from_vec(name, bytes);
        match sniff(&file)? {
            WeightFormat::Gguf => Self::from_gguf(PathBuf::from(name), None, gguf::open_single(file)?),
            WeightFormat::Safetensors => {
                let table = safetensors::parse(&file)?;
                let config = Config::from_json(name, "{}")?;
                Self::assemble(PathBuf::from(name), None, WeightFormat::Safetensors, config, vec![(file, table)])
            }
        }
    }

    /// A model of which only the table is known, before its bytes are there: every question but for bytes has its answer, and
    /// [`tensor`](Self::tensor) is `None` for all. `path` is what messages name.
    ///
    /// # Errors
    /// `Malformed` if a tensor is there twice, or has a shape that cannot be.
    pub fn outline(
        path: impl Into<PathBuf>,
        format: WeightFormat,
        config: Config,
        mut tensors: Vec<TensorInfo>,
    ) -> Result<Source> {
        let path = path.into();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let malformed = |reason: String| Err(WeightsError::Malformed { path: path.clone(), reason });
        if let Some(twice) =
            tensors.iter().zip(tensors.iter().skip(1)).find_map(|(a, b)| (a.name == b.name).then_some(a))
        {
            return malformed(format!("tensor {}: expected it once, found it twice", quoted(&twice.name)));
        }
        let has_size = |info: &TensorInfo| {
            let n_elements = info.shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
            n_elements.and_then(|n| info.dtype.bytes_for(n)).is_some()
        };
        if let Some(TensorInfo { name, dtype, shape }) = tensors.iter().find(|info| !has_size(info)) {
            return malformed(format!(
                "tensor {}: expected a shape of whole {dtype} blocks, found {shape:?}",
                quoted(name)
            ));
        }
        Ok(Source {
            path,
            directory: None,
            format,
            config,
            metadata: None,
            files: Vec::new(),
            paths: Vec::new(),
            tensors,
            places: Vec::new(),
        })
    }

    fn open_path(path: &Path, options: &OpenOptions, need: Need) -> Result<Source> {
        if path.is_dir() {
            return match directory::choose(path, options)? {
                Choice::Gguf(file) => {
                    let set = gguf::open_set(FileBytes::map(&file)?)?;
                    Self::from_gguf(path.to_path_buf(), Some(path.to_path_buf()), set)
                }
                Choice::SafetensorsIndex(index) => {
                    Self::from_safetensors(path, path, need, || safetensors::open_index(&index))
                }
                Choice::Safetensors(files) => Self::from_safetensors(path, path, need, || safetensors::open_all(files)),
            };
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        if is_index(path) {
            return Self::from_safetensors(path, directory, need, || safetensors::open_index(path));
        }
        let file = FileBytes::map(path)?;
        match sniff(&file)? {
            WeightFormat::Gguf => {
                let set = gguf::open_set(file)?;
                Self::from_gguf(path.to_path_buf(), Some(directory.to_path_buf()), set)
            }
            WeightFormat::Safetensors => {
                let set = if need == Need::Model { directory::set_of(path).transpose()? } else { None };
                Self::from_safetensors(path, directory, need, || match set {
                    Some(Choice::SafetensorsIndex(index)) => safetensors::open_index(&index),
                    Some(Choice::Safetensors(files)) => safetensors::open_all(files),
                    _ => {
                        let table = safetensors::parse(&file)?;
                        Ok(vec![(file, table)])
                    }
                })
            }
        }
    }

    fn from_gguf(path: PathBuf, directory: Option<PathBuf>, set: Vec<(FileBytes, Gguf)>) -> Result<Source> {
        // The first shard of a set carries the metadata of all.
        let metadata = set.first().map(|(_, gguf)| gguf.metadata.clone()).unwrap_or_default();
        let config = Config::from_gguf(metadata.path(), metadata.clone());
        let files = set.into_iter().map(|(file, gguf)| (file, gguf.tensors)).collect();
        let source = Self::assemble(path, directory, WeightFormat::Gguf, config, files)?;
        Ok(Source { metadata: Some(metadata), ..source })
    }

    fn from_safetensors(
        path: &Path,
        directory: &Path,
        need: Need,
        open: impl FnOnce() -> Result<Vec<(FileBytes, Table)>>,
    ) -> Result<Source> {
        let config = read_config(path, directory, need)?;
        let directory = Some(directory.to_path_buf());
        Self::assemble(path.to_path_buf(), directory, WeightFormat::Safetensors, config, open()?)
    }

    /// Joins the tables of several files into one, sorted by name.
    fn assemble(
        path: PathBuf,
        directory: Option<PathBuf>,
        format: WeightFormat,
        config: Config,
        tables: Vec<(FileBytes, Table)>,
    ) -> Result<Source> {
        let mut files = Vec::with_capacity(tables.len());
        let mut rows = Vec::new();
        for (index, (file, table)) in tables.into_iter().enumerate() {
            files.push(file);
            rows.extend(table.into_iter().map(|(info, range)| (info, Place { file: index, range })));
        }
        rows.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        for pair in rows.windows(2) {
            if let [(first, a), (second, b)] = pair
                && first.name == second.name
            {
                let [a, b] = [a, b].map(|place| files.get(place.file).map_or(path.as_path(), FileBytes::path));
                let reason =
                    format!("tensor {} is there twice: expected it only in `{}`", quoted(&first.name), a.display());
                return Err(WeightsError::Malformed { path: b.to_path_buf(), reason });
            }
        }
        let paths = files.iter().map(|file| file.path().to_path_buf()).collect();
        let (tensors, places) = rows.into_iter().unzip();
        Ok(Source { path, directory, format, config, metadata: None, files, paths, tensors, places })
    }

    /// The path as the caller gave it (not resolved through links), or the name of an in-memory source.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold the tensors, in order: one, or all shards.
    pub fn files(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The format found.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// `config.json` or the GGUF metadata.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Replaces the config, for a host that brings its own.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// The key/value section, where the format is GGUF: vocabularies, templates and the like.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        self.metadata.as_ref()
    }

    /// Every tensor, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let index = self.find(name)?;
        let (info, place) = (self.tensors.get(index)?, self.places.get(index)?);
        let bytes = self.files.get(place.file)?.bytes().get(place.range.clone())?;
        Some(Tensor { info, bytes })
    }

    /// Hands samples of a tensor's bytes to `tell`: `n_blocks` of `block_len`, or all of it if that is no more. Reads them from the
    /// file rather than through its mapping, which would bring in the pages around each.
    ///
    /// # Errors
    /// `Io`; `Malformed` in an outline, which has no bytes.
    pub(crate) fn sample(
        &self,
        info: &TensorInfo,
        n_blocks: usize,
        block_len: usize,
        tell: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let place = self.find(&info.name).and_then(|index| self.places.get(index));
        let Some((place, file)) = place.and_then(|place| Some((place, self.files.get(place.file)?))) else {
            let reason = format!("expected the bytes of tensor {} in its file, found none", quoted(&info.name));
            return Err(WeightsError::Malformed { path: self.path.clone(), reason });
        };
        let mut block = Vec::new();
        for range in blocks(place.range.len(), n_blocks, block_len) {
            block.resize(range.len(), 0);
            file.read_at(place.range.start + range.start, &mut block)?;
            tell(&block);
        }
        Ok(())
    }

    /// What the file says of the tensor of this name.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(self.find(name)?)
    }

    /// Lets the system take back the memory that the tensor's part of the mapped file holds, after it was copied or repacked. The
    /// tensor can still be read, from the file again.
    pub fn release(&self, name: &str) {
        let place = self.find(name).and_then(|index| self.places.get(index));
        if let Some((place, file)) = place.and_then(|place| Some((place, self.files.get(place.file)?))) {
            file.release(place.range.clone());
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.tensors.binary_search_by(|info| info.name.as_str().cmp(name)).ok()
    }

    /// A small text file that belongs to the model (`tokenizer.json`, `generation_config.json`, …), from the directory
    /// of the path as given or a folder in it (`1_Pooling/config.json`). `None` if there is none, or the source is in memory.
    ///
    /// # Errors
    /// `Io`; `Malformed` if it is larger than a text file of its kind can be or not UTF-8, or if the name is that of a file elsewhere.
    pub fn sidecar(&self, file_name: &str) -> Result<Option<String>> {
        if !file_name.split('/').all(safetensors::is_base_name) {
            let reason = "expected the name of a file beside the model or in a folder there, found another path".into();
            return Err(WeightsError::Malformed { path: PathBuf::from(file_name), reason });
        }
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let path = directory.join(file_name);
        // Only absence is no error: a link that leads nowhere or a file without permission should be heard of.
        match path.symlink_metadata() {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            _ => read_text(&path, MAX_TEXT_BYTES).map(Some),
        }
    }

    /// Bytes of all tensors in the files.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|info| info.n_bytes() as u64).fold(0, u64::saturating_add)
    }
}

fn is_index(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(".safetensors.index.json"))
}

fn read_config(path: &Path, directory: &Path, need: Need) -> Result<Config> {
    if need == Need::Tensors {
        return Ok(Config::from_json(path, "{}")?);
    }
    let file = directory.join("config.json");
    if !file.is_file() {
        let reason = format!("expected the model's config beside its safetensors as `{}`, found none", file.display());
        return Err(WeightsError::Missing { path: path.to_path_buf(), reason });
    }
    Ok(Config::from_json(&file, &read_text(&file, MAX_CONFIG_BYTES)?)?)
}
