//! The three absences the design rests on: the runtime names no family; a family names no host, executor or storage type; no
//! library reads the environment, prints, or exits.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kinfolk::Registry;
use kinfolk_registry_tests as _;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Rust sources below `folder`, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(dir) = pending.pop() {
        for path in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !matches!(name, "tests" | "target" | "fuzz" | "benches" | "examples") {
                pending.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" && name != "build.rs" {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "`{}` holds sources", folder.display());
    found
}

/// The code of a file, without comments and without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Whether `word` occurs in `code` as a word of its own.
fn names(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(is_part);
        let after = code[at + word.len()..].chars().next().is_some_and(is_part);
        !(before || after && word.ends_with(is_part))
    })
}

/// Fails with every place where a word that must be absent is present.
#[track_caller]
fn check_absent(files: &[PathBuf], words: &[String], allowed: &[&str]) {
    let mut found = Vec::new();
    for path in files.iter().filter(|p| !allowed.iter().any(|a| p.ends_with(a))) {
        let code = code(path);
        found.extend(words.iter().filter(|w| names(&code, w)).map(|w| format!("`{w}` in {}", path.display())));
    }
    assert!(found.is_empty(), "must be absent:\n{}", found.join("\n"));
}

#[test]
fn the_runtime_and_the_macros_name_no_family() {
    let families: Vec<_> = Registry::linked().families().collect();
    assert!(families.len() >= 5, "the families are linked");
    let crates = families.iter().flat_map(|f| [f.crate_name.to_owned(), f.crate_name.replace('-', "_")]);
    let classes = families.iter().flat_map(|f| f.classes.iter().map(|class| (*class).to_owned()));
    let words: Vec<String> = crates.chain(classes).collect();
    let files = [sources(&workspace().join("runtime")), sources(&workspace().join("macros"))].concat();
    // Generated from the families, and checked by `hints`.
    check_absent(&files, &words, &["runtime/kinfolk/src/hints.rs"]);
    for manifest in ["runtime/kinfolk", "runtime/decoder", "runtime/cpu", "runtime/text", "runtime/weights", "macros"] {
        let manifest = fs::read_to_string(workspace().join(manifest).join("Cargo.toml")).unwrap();
        assert!(words.iter().all(|word| !manifest.contains(word.as_str())), "{manifest}");
    }
}

#[test]
fn a_family_depends_on_the_waist_alone_and_names_no_executor_and_no_storage_type() {
    for folder in fs::read_dir(workspace().join("families")).unwrap().map(|e| e.unwrap().path()) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]\n").nth(1).unwrap();
        let own: Vec<&str> =
            dependencies.lines().take_while(|line| !line.starts_with('[')).filter(|l| !l.is_empty()).collect();
        assert_eq!(own, ["kinfolk.workspace = true"], "{}", folder.display());
        let schemes = kinfolk::Dtype::ALL.iter().map(|dtype| format!("Dtype::{}", dtype.name()));
        let words = [
            "Dtype", "quant", "cpu", "candle", "mlx", "cuda", "metal", "Executor", "Model", "Cache", "Session",
            "server",
        ];
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).chain(schemes).collect();
        check_absent(&sources(&folder), &words, &[]);
    }
}

#[test]
fn no_library_reads_the_environment_prints_or_exits() {
    let words = [
        "env::var",
        "env::var_os",
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
        "dbg!",
        "process::exit",
        "process::abort",
        "stdout()",
        "stderr()",
    ];
    let words: Vec<String> = words.map(str::to_owned).into();
    let files = [sources(&workspace().join("runtime")), sources(&workspace().join("families"))].concat();
    check_absent(&files, &words, &[]);
    // A proc-macro learns where the host's manifest is from cargo's variable, at compile time, and has no other way.
    check_absent(&sources(&workspace().join("macros")), &words[2..], &[]);
}
