//! Models split over several GGUF files: `NAME-00001-of-00003.gguf` and its siblings.

use std::path::{Path, PathBuf};

use super::{Gguf, GgufMetadata, missing, parse};
use crate::{Result, file::FileBytes, quote::quoted_list};

/// A file name of the form `STEM-IIIII-of-NNNNN.EXTENSION` with `1 <= I <= N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardName {
    /// What comes before the numbers.
    pub stem: String,
    /// Number of this shard, from 1.
    pub number: u32,
    /// Number of shards.
    pub count: u32,
    extension: String,
}

impl ShardName {
    /// Reads a file name; `None` for names that only look alike, such as `best-of-breed.gguf` or `m-00004-of-00003.gguf`.
    pub fn parse(file_name: &str, extension: &str) -> Option<ShardName> {
        let (base, found) = file_name.rsplit_once('.')?;
        let (head, count) = base.rsplit_once("-of-")?;
        let (stem, number) = head.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        let is_shard = found.eq_ignore_ascii_case(extension) && !stem.is_empty() && (1..=count).contains(&number);
        is_shard.then(|| ShardName { stem: stem.into(), number, count, extension: found.into() })
    }

    /// The file name of another shard of the set.
    pub fn sibling(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.{}", self.stem, self.count, self.extension)
    }

    /// Paths of the whole set, in order.
    ///
    /// # Errors
    /// `Err` holds the file names that do not exist in `directory`.
    pub fn set_in(
        &self,
        directory: &Path,
        exists: impl Fn(&str) -> bool,
    ) -> std::result::Result<Vec<PathBuf>, Vec<String>> {
        let (mut paths, mut absent) = (Vec::new(), Vec::new());
        for number in 1..=self.count {
            let name = self.sibling(number);
            if exists(&name) {
                paths.push(directory.join(&name));
            } else {
                absent.push(name);
            }
        }
        if absent.is_empty() { Ok(paths) } else { Err(absent) }
    }
}

fn five_digits(text: &str) -> Option<u32> {
    (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Opens a file that has no siblings to look for, being in memory.
pub(crate) fn open_single(file: FileBytes) -> Result<Vec<(FileBytes, Gguf)>> {
    let parsed = parse(&file)?;
    match parsed.metadata.u64("split.count")? {
        Some(count) if count > 1 => {
            Err(file.malformed(format!("expected a whole model in memory, found one of {count} shards")))
        }
        _ => Ok(vec![(file, parsed)]),
    }
}

/// Opens every file of the model that `file` is, or is a shard of. Siblings are looked for beside the path as given.
///
/// Metadata decides: `split.count` says whether there are siblings, and the name, where a file lacks that key. A missing sibling is
/// an error before any tensor is looked at.
pub(crate) fn open_set(file: FileBytes) -> Result<Vec<(FileBytes, Gguf)>> {
    let parsed = parse(&file)?;
    let name = file.path().file_name().and_then(|name| name.to_str()).and_then(|name| ShardName::parse(name, "gguf"));
    let declared = parsed.metadata.u64("split.count")?;
    let count = declared.unwrap_or(name.as_ref().map_or(1, |name| name.count.into()));
    if count <= 1 {
        return Ok(vec![(file, parsed)]);
    }
    let Some(name) = name.filter(|name| u64::from(name.count) == count) else {
        return Err(file.malformed(format!(
            "found one of {count} shards: expected a name like `NAME-00001-of-{count:05}.gguf` to find the others by"
        )));
    };
    let directory = file.path().parent().unwrap_or(Path::new(""));
    let paths = name
        .set_in(directory, |name| directory.join(name).is_file())
        .map_err(|absent| missing(&file, describe_absent(&absent, name.count)))?;

    let given = name.number;
    let mut given_file = Some((file, parsed));
    let mut set = Vec::with_capacity(paths.len());
    for (number, path) in (1..).zip(paths) {
        let shard = match given_file.take_if(|_| number == given) {
            Some(shard) => shard,
            None => {
                let file = FileBytes::map(&path)?;
                crate::sniff::expect_gguf(&file)?;
                let parsed = parse(&file)?;
                (file, parsed)
            }
        };
        check_number(&shard.0, &shard.1.metadata, number, count)?;
        set.push(shard);
    }
    check_total(&set)?;
    Ok(set)
}

/// What a shard says of itself must be what its name says.
fn check_number(file: &FileBytes, metadata: &GgufMetadata, number: u32, count: u64) -> Result<()> {
    if let Some(found) = metadata.u64("split.count")?.filter(|&found| found != count) {
        return Err(
            file.malformed(format!("metadata key `split.count`: expected {count} as in the name, found {found}"))
        );
    }
    let expected = u64::from(number) - 1;
    if let Some(found) = metadata.u64("split.no")?.filter(|&found| found != expected) {
        return Err(
            file.malformed(format!("metadata key `split.no`: expected {expected} as in the name, found {found}"))
        );
    }
    Ok(())
}

/// The shards together must hold as many tensors as the first one says.
fn check_total(set: &[(FileBytes, Gguf)]) -> Result<()> {
    let Some((first, Gguf { metadata, .. })) = set.first() else {
        return Ok(());
    };
    let found: usize = set.iter().map(|(_, gguf)| gguf.tensors.len()).sum();
    match metadata.u64("split.tensors.count")? {
        Some(expected) if expected != found as u64 => Err(first.malformed(format!(
            "metadata key `split.tensors.count`: expected {expected} tensors in the shards together, found {found}"
        ))),
        _ => Ok(()),
    }
}

fn describe_absent(absent: &[String], count: u32) -> String {
    let names = quoted_list(absent.iter().map(String::as_str));
    format!("expected {count} shards, found {} missing: {names} (incomplete download?)", absent.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a17_shard_names_are_five_digits_of_five_digits_in_range() {
        let name = ShardName::parse("a-b-00002-of-00003.gguf", "gguf").unwrap();
        assert_eq!((name.stem.as_str(), name.number, name.count), ("a-b", 2, 3));
        assert_eq!(name.sibling(1), "a-b-00001-of-00003.gguf");
        assert!(ShardName::parse("m-00001-of-00001.GGUF", "gguf").is_some());
        let alike = [
            "best-of-breed.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-00001-of-00000.gguf",
            "m-1-of-3.gguf",
            "m-000001-of-000003.gguf",
            "m-0000a-of-00003.gguf",
            "m-+0001-of-00003.gguf",
            "-00001-of-00003.gguf",
            "00001-of-00003.gguf",
            "m-00001-of-00003.safetensors",
            "m-00001-of-00003",
            "",
        ];
        for name in alike {
            assert_eq!(ShardName::parse(name, "gguf"), None, "{name}");
        }
    }
}
