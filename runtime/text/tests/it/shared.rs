//! Where the reference material lies.
#![expect(clippy::print_stderr, reason = "a case that did not run is to be seen in the output")]

use std::path::{Path, PathBuf};

/// The folder `shared/NAME` beside the checkout.
///
/// `None` where there is none, which is allowed only off CI: a clone alone has the copies under `tests/data`.
pub fn folder(name: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|ancestor| ancestor.join("shared").join(name))
        .find(|folder| folder.is_dir());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "`shared/{name}` is missing, and `CI` is set");
        eprintln!("did not run: no `shared/{name}` beside the checkout");
    }
    found
}

/// A file under `tests/data`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A model of the cache that the repository's scripts fill. Absent models are reported, or a failure if
/// `KINFOLK_REQUIRE_MODELS` is set.
pub fn model(file_name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = home.join(".cache/kinfolk-test-models").join(file_name);
    if path.is_file() {
        return Some(path);
    }
    assert!(std::env::var_os("KINFOLK_REQUIRE_MODELS").is_none(), "`{}` is missing", path.display());
    eprintln!("did not run: no `{}`", path.display());
    None
}

/// Reads a JSON file.
#[track_caller]
pub fn json(path: impl AsRef<Path>) -> serde_json::Value {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
