//! One open file: its path for messages and its bytes, mapped rather than read.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use crate::{Result, WeightsError};

/// Text that belongs to a model is no larger than this. The largest published `tokenizer.json` files are a little over 32 MiB.
pub(crate) const MAX_TEXT_BYTES: u64 = 256 << 20;

/// Where the bytes of a file live.
enum Storage {
    Mapped {
        map: Mmap,
        /// For reads that shall not bring in the pages around them.
        file: File,
    },
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

/// The bytes of one file.
pub(crate) struct FileBytes {
    path: PathBuf,
    storage: Storage,
}

impl FileBytes {
    /// Maps a regular file.
    pub fn map(path: &Path) -> Result<FileBytes> {
        let file = open_regular(path)?;
        let n_bytes = file.metadata().map_err(io_error(path))?.len();
        // An empty map is an error on some systems, and a file of no bytes has its own message later.
        let storage = if n_bytes == 0 {
            Storage::Static(&[])
        } else {
            // SAFETY: the map is private and read-only. Whoever opens a model file promises not to change it while it is
            // open; nothing in this crate writes to a weight file. All text taken from a header is copied out first.
            let map = unsafe { Mmap::map(&file) }.map_err(io_error(path))?;
            Storage::Mapped { map, file }
        };
        Ok(FileBytes { path: path.to_path_buf(), storage })
    }

    /// Bytes that are part of the program.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> FileBytes {
        FileBytes { path: PathBuf::from(name), storage: Storage::Static(bytes) }
    }

    /// Bytes in memory.
    pub fn from_vec(name: &str, bytes: Vec<u8>) -> FileBytes {
        FileBytes { path: PathBuf::from(name), storage: Storage::Owned(bytes) }
    }

    /// The path as given, or the name of bytes in memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every byte.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Mapped { map, .. } => map,
            Storage::Static(bytes) => bytes,
            Storage::Owned(bytes) => bytes,
        }
    }

    /// Copies the bytes from `start` on into `out`, and reads no more of the file than those.
    ///
    /// # Errors
    /// `Io` if they cannot be read (any more).
    pub fn read_at(&self, start: usize, out: &mut [u8]) -> Result<()> {
        #[cfg(unix)]
        if let Storage::Mapped { file, .. } = &self.storage {
            return std::os::unix::fs::FileExt::read_exact_at(file, out, start as u64).map_err(io_error(&self.path));
        }
        let bytes = start.checked_add(out.len()).and_then(|end| self.bytes().get(start..end));
        let bytes = bytes.ok_or_else(|| io_error(&self.path)(io::ErrorKind::UnexpectedEof.into()))?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    /// Tells the system that these bytes are not needed soon, so that their memory can go to something else.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Storage::Mapped { map, .. } = &self.storage {
            // SAFETY: the map is read-only and of a file, so a page that is dropped has lost nothing: touching it reads the file again.
            let advised =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
            if let Err(error) = advised {
                tracing::debug!(path = %self.path.display(), %error, "pages could not be released");
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// An error about this file.
    pub fn malformed(&self, reason: impl Into<String>) -> WeightsError {
        WeightsError::Malformed { path: self.path.clone(), reason: reason.into() }
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBytes").field("path", &self.path).field("n_bytes", &self.bytes().len()).finish()
    }
}

/// Reads a text file that belongs to a model, of at most `max_bytes`.
pub(crate) fn read_text(path: &Path, max_bytes: u64) -> Result<String> {
    let file = open_regular(path)?;
    let malformed = |reason: String| WeightsError::Malformed { path: path.to_path_buf(), reason };
    let n_bytes = file.metadata().map_err(io_error(path))?.len();
    if n_bytes > max_bytes {
        return Err(malformed(format!("expected a text file of at most {max_bytes} bytes, found {n_bytes}")));
    }
    // A file that grows meanwhile is read no further than this.
    let mut bytes = Vec::new();
    file.take(n_bytes).read_to_end(&mut bytes).map_err(io_error(path))?;
    String::from_utf8(bytes).map_err(|e| {
        malformed(format!("expected UTF-8 text, found other bytes at offset {}", e.utf8_error().valid_up_to()))
    })
}

/// Opens a file that has a size: devices and pipes would block or never end.
fn open_regular(path: &Path) -> Result<File> {
    let kind = std::fs::metadata(path).map_err(io_error(path))?;
    if !kind.is_file() {
        let found = if kind.is_dir() { "a directory" } else { "a device or pipe" };
        let message = format!("expected a regular file, found {found}");
        return Err(io_error(path)(io::Error::new(io::ErrorKind::InvalidInput, message)));
    }
    File::open(path).map_err(io_error(path))
}

/// Names the file an operating system error is about.
pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> WeightsError {
    move |source| WeightsError::Io { path: path.to_path_buf(), source }
}
