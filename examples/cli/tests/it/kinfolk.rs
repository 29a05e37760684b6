//! The command under test, and the files it is given.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A run of the command that is over.
pub struct Run {
    output: Output,
    args: Vec<String>,
}

pub fn kinfolk<S: AsRef<str>>(args: &[S]) -> Run {
    kinfolk_where(&[], args)
}

/// With some variables of the environment.
pub fn kinfolk_where<S: AsRef<str>>(variables: &[(&str, &str)], args: &[S]) -> Run {
    let args: Vec<String> = args.iter().map(|a| a.as_ref().to_owned()).collect();
    let output = command().args(&args).envs(variables.iter().copied()).output().unwrap();
    Run { output, args }
}

pub fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kinfolk"))
}

impl Run {
    pub fn stdout(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).unwrap()
    }

    pub fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Standard output of a run that went well.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.code(), Some(0), "{:?}: {}", self.args, self.stderr());
        self.stdout()
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// The one line with which a run is refused.
    #[track_caller]
    pub fn refusal(&self) -> String {
        let stderr = self.stderr();
        assert_eq!(self.code(), Some(1), "{:?}: {stderr}", self.args);
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert_eq!(lines.len(), 1, "{:?}: one line, found: {stderr}", self.args);
        lines[0].strip_prefix("error: ").unwrap_or_else(|| panic!("{:?}: {stderr}", self.args)).to_owned()
    }
}

/// The model inside the command, as a file.
pub fn tinytales() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/model/tinytales-q8_0.gguf").to_owned()
}

/// A checkpoint among the reference files of the repository.
pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../registry-tests/fixtures").join(name);
    assert!(path.exists(), "{}", path.display());
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// A directory that lasts as long as the value.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A copy of a checkpoint's folder, to damage.
    pub fn copy(&self, fixture_name: &str) -> PathBuf {
        let copy = self.0.path().join(fixture_name);
        fs::create_dir_all(&copy).unwrap();
        for entry in fs::read_dir(fixture(fixture_name)).unwrap().map(|e| e.unwrap().path()) {
            fs::write(copy.join(entry.file_name().unwrap()), fs::read(&entry).unwrap()).unwrap();
        }
        copy
    }

    pub fn path(&self) -> String {
        self.0.path().to_str().unwrap().to_owned()
    }
}
