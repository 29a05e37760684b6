//! What the tests that link every family share: the families themselves, and where reference files are.

use std::path::{Path, PathBuf};

kinfolk::enroll!();

/// Largest difference of a logit from the reference's: the fixtures' own noise is below 2e-5.
pub const TOLERANCE: f32 = 1e-3;

/// The same where quantised weights are multiplied as they are: activations are then rounded to 16 bits (1.2e-3 was measured).
pub const PACKED_TOLERANCE: f32 = 3e-3;

/// The same of passes of 32 tokens and more, in which a matrix unit rounds weights and activations in spans of 256 columns (4.3e-3 was
/// measured). Eight bits, as llama.cpp has them, are 0.1 to 0.4 from the references of the same files.
pub const PACKED_TOLERANCE_OF_MANY: f32 = 1e-2;

/// The same with narrow activations, most of which have 8 bits (0.30 was measured).
pub const NARROW_TOLERANCE: f32 = 0.35;

/// A folder of reference files that are part of this repository: `fixtures` or `models`.
pub fn in_repository(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// The checkpoint in a folder of reference files. Such folders hold files that are none, so a GGUF file is named itself.
pub fn checkpoint_in(folder: &Path) -> Option<PathBuf> {
    let gguf = folder.join("model.gguf");
    match folder.join("model.safetensors").exists() {
        true => Some(folder.to_owned()),
        false => gguf.exists().then_some(gguf),
    }
}

/// A folder of the material shared beside the repository, if it is there.
///
/// # Panics
/// On CI (`CI` is set) if it is not: a check that silently did not run is worse than one that failed.
pub fn shared(folder: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared").join(folder));
    let found = beside.into_iter().find(|dir| dir.is_dir());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "`shared/{folder}` must be beside the repository on CI"
    );
    found
}

/// Says on the test's output that a check did not run for want of `what`.
#[allow(clippy::print_stderr)]
pub fn report_not_run(check: &str, what: &str) {
    eprintln!("NOT RUN: {check}: {what} is not on this machine");
}
