//! A session's context as a file.
//!
//! ```text
//! "kinfolk session\n"  16 bytes
//! version              u32 LE
//! checksum             32 bytes, SHA-256 of everything after it
//! vocab_size           u64 LE
//! family_len, family   u32 LE, UTF-8
//! context              up to the end: what the runner exports, in which the model's own fingerprint is
//! ```

use std::{fs, io::Write, path::Path, path::PathBuf};

use anyhow::Result;
use sha2::{Digest, Sha256};

use crate::{host_driven::HostDriven, runner::LmRunner};

const MAGIC: &[u8; 16] = b"kinfolk session\n";
const VERSION: u32 = 1;

/// Why a session was not saved or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedSessionError {
    /// The file cannot be read or written.
    #[error("session file `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// The file is something else, or was damaged.
    #[error("session file `{}`: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: &'static str,
    },
    /// Another version of the runtime wrote it.
    #[error("session file `{}`: expected version {VERSION}, found {found}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Another model wrote it.
    #[error("session file `{}`: expected one of family `{family}` with {vocab_size} tokens, found {found}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The family asked to restore it.
        family: String,
        /// The vocabulary of its model.
        vocab_size: usize,
        /// Whose session the file is.
        found: String,
    },
}

pub(super) fn save<R: LmRunner>(runner: &mut HostDriven<R>, path: &Path) -> Result<()> {
    if runner.has_lost_context() {
        // What is saved without the runner's own part would be computed anew at every start.
        let context = runner.context().to_vec();
        runner.prefill_logits_reusing(&context)?;
    }
    let mut body = (runner.vocab_size() as u64).to_le_bytes().to_vec();
    body.extend((runner.family().len() as u32).to_le_bytes());
    body.extend(runner.family().as_bytes());
    body.extend(runner.export_session()?);
    write_whole(path, &[MAGIC, &VERSION.to_le_bytes(), &Sha256::digest(&body), &body])
        .map_err(|error| SavedSessionError::File { path: path.to_owned(), error })?;
    Ok(())
}

/// Writes beside the file and puts it in place at the end, so that nobody finds half of it.
fn write_whole(path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

pub(super) fn load<R: LmRunner>(runner: &mut HostDriven<R>, path: &Path) -> Result<()> {
    let file = |error| SavedSessionError::File { path: path.to_owned(), error };
    let damaged = |reason| SavedSessionError::Damaged { path: path.to_owned(), reason };
    // A device or a pipe may have no end.
    if !fs::metadata(path).map_err(file)?.is_file() {
        return Err(damaged("expected a file, found something else").into());
    }
    let bytes = fs::read(path).map_err(file)?;
    let cut_short = || damaged("expected a whole session, found the end of the file");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("expected a saved session, found something else"))?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
    let found = u32::from_le_bytes(*version);
    if found != VERSION {
        return Err(SavedSessionError::Version { path: path.to_owned(), found }.into());
    }
    let (checksum, body) = rest.split_first_chunk::<32>().ok_or_else(cut_short)?;
    if Sha256::digest(body).as_slice() != checksum {
        return Err(damaged("expected the bytes that its checksum was made of, found others").into());
    }
    let (vocab_size, rest) = body.split_first_chunk::<8>().ok_or_else(cut_short)?;
    let (family_len, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
    let family_len = usize::try_from(u32::from_le_bytes(*family_len)).unwrap_or(usize::MAX);
    let (family, context) = rest.split_at_checked(family_len).ok_or_else(cut_short)?;
    let vocab_size = u64::from_le_bytes(*vocab_size);
    if family != runner.family().as_bytes() || vocab_size != runner.vocab_size() as u64 {
        let found = format!("`{}` with {vocab_size}", String::from_utf8_lossy(family).escape_debug());
        let (family, vocab_size) = (runner.family().to_owned(), runner.vocab_size());
        return Err(SavedSessionError::OtherModel { path: path.to_owned(), family, vocab_size, found }.into());
    }
    runner.restore_session(context)
}
