//! The registry is whole however a host is linked, and says why where it cannot be.
//!
//! The programs are in `registry-tests/linking`. One target folder serves all builds; only what is optimised differently is built
//! again.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use kinfolk_registry_tests::report_not_run;

/// A way to build a host: cargo's arguments, settings of the profile, arguments of rustc for the program alone.
type Way = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)], &'static [&'static str]);

const WAYS: &[Way] = &[
    ("debug", &[], &[], &[]),
    ("release", &["--release"], &[], &[]),
    ("one codegen unit", &["--release"], &[("CODEGEN_UNITS", "1")], &[]),
    ("16 codegen units", &["--release"], &[("CODEGEN_UNITS", "16")], &[]),
    ("thin LTO", &["--release"], &[("LTO", "thin")], &[]),
    ("fat LTO", &["--release"], &[("LTO", "fat")], &[]),
    ("fat LTO, one codegen unit", &["--release"], &[("LTO", "fat"), ("CODEGEN_UNITS", "1")], &[]),
];

/// What linkers on Linux may be told that empties a registry built on sections.
const LINUX_WAYS: &[Way] = &[
    ("--gc-sections", &["--release"], &[], &["-Clink-arg=-Wl,--gc-sections"]),
    ("-z start-stop-gc", &["--release"], &[], &["-Clink-arg=-Wl,-z,start-stop-gc", "-Clink-arg=-Wl,--gc-sections"]),
    ("--allow-multiple-definition", &["--release"], &[], &["-Clink-arg=-Wl,--allow-multiple-definition"]),
];

/// On x86-64 Linux rustc brings lld and links with it; the system's linker is the other one to ask.
const SYSTEM_LINKER_WAYS: &[Way] = &[
    ("system linker", &["--release"], &[], &["-Clinker-features=-lld", "-Clink-arg=-Wl,--gc-sections"]),
    (
        "system linker, -z start-stop-gc",
        &["--release"],
        &[],
        &["-Clinker-features=-lld", "-Clink-arg=-Wl,--gc-sections", "-Clink-arg=-Wl,-z,start-stop-gc"],
    ),
];

#[test]
fn enrolled_families_survive_every_way_to_link() {
    let mut ways = WAYS.to_vec();
    match cfg!(target_os = "linux") {
        true => ways.extend(LINUX_WAYS),
        false => report_not_run("linker options", "the GNU linker's command line"),
    }
    match cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        true => ways.extend(SYSTEM_LINKER_WAYS),
        false => report_not_run("a second linker", "a second linker that rustc can be told to use"),
    }
    for way in &ways {
        let families = run(&build("enrolling", way));
        assert_eq!(families, "alpha\nbeta\nmine\n", "{}", way.0);
    }
}

#[test]
fn an_optional_family_is_enrolled_with_its_feature() {
    for (arguments, expected) in [(&[][..], "0\n"), (&["--features", "extra"], "1\n")] {
        let way = ("with and without a feature", arguments, &[][..], &[][..]);
        assert_eq!(run(&build("choosing", &way)), expected, "{arguments:?}");
    }
}

#[test]
fn a_family_that_no_code_names_is_explained() {
    let said = run(&build("silent", &WAYS[0]));
    let lines: Vec<&str> = said.lines().collect();
    let [count, claim, expect] = lines[..] else { panic!("expected three lines, found {said}") };
    assert_eq!(count, "0");
    for message in [claim, expect] {
        assert!(message.contains("a crate in Cargo.toml that no code names is not linked"), "{message}");
        assert!(message.contains("kinfolk::enroll!();"), "{message}");
    }
}

#[test]
fn two_families_with_one_name_are_an_error_naming_both_crates() {
    let said = run(&build("conflicting", &WAYS[0]));
    let lines: Vec<&str> = said.lines().collect();
    let [claim, expect, by_path, unshared] = lines[..] else { panic!("expected four lines, found {said}") };
    for message in [claim, expect] {
        assert!(message.contains("`kinfolk-alpha 0.1.0`") && message.contains("`kinfolk-rival 0.1.0`"), "{message}");
    }
    assert_eq!((by_path, unshared), ("Some(\"rival\")", "Some(\"rival\")"));
}

#[test]
fn a_c_program_has_the_families_its_static_library_names() {
    if Command::new("cc").arg("--version").output().is_err() {
        assert!(env::var_os("CI").is_none(), "a C compiler must be on CI");
        return report_not_run("static library", "a C compiler");
    }
    build_only(&["build", "--quiet", "-p", "static-library"]);
    let program = target_folder().join("c-main");
    let linked = Command::new("cc")
        .arg(workspace().join("hosts/static-library/main.c"))
        .arg(target_folder().join("debug/libstatic_library.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output();
    stdout_of(linked.expect("cc runs"));
    assert_eq!(run(&program), "Mine 4 mine\nbeta 4 beta\nalpha -1 \n");
}

#[test]
fn a_family_out_of_the_tree_passes_its_own_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/out-of-tree-family");
    let report = stdout_of(cargo(&folder, &["test", "--quiet", "--lib"]).output().expect("cargo runs"));
    assert!(report.contains("test result: ok. 3 passed"), "{report}");
}

#[test]
fn cargo_refuses_two_versions_of_the_waist() {
    let folder = workspace().join("two-waists");
    let refused = cargo(&folder, &["metadata", "--format-version", "1"]).output().expect("cargo runs");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "expected a refusal");
    assert!(message.contains("links to the native library `kinfolk`"), "{message}");
}

/// The program of a host, built in a way.
fn build(host: &str, (_, arguments, settings, rustc_arguments): &Way) -> PathBuf {
    let mut command = cargo(&workspace(), &["rustc", "--quiet", "-p", host]);
    command.args(*arguments);
    for (setting, value) in *settings {
        command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    command.arg("--").args(*rustc_arguments);
    stdout_of(command.output().expect("cargo runs"));
    let profile = if arguments.contains(&"--release") { "release" } else { "debug" };
    target_folder().join(profile).join(host).with_extension(env::consts::EXE_EXTENSION)
}

fn build_only(arguments: &[&str]) {
    stdout_of(cargo(&workspace(), arguments).output().expect("cargo runs"));
}

fn run(program: &Path) -> String {
    stdout_of(Command::new(program).output().expect("the program was built"))
}

#[track_caller]
fn stdout_of(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the programs print text")
}

/// Cargo in another workspace, with this one's locked versions: they are on the machine, so nothing is fetched.
fn cargo(folder: &Path, arguments: &[&str]) -> Command {
    lock(folder).expect("the workspace is locked and its folders can be written");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(folder)
        .args(arguments)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", target_folder());
    for inherited in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(inherited);
    }
    command
}

/// Gives the workspace in `folder` this one's locked versions, unless it has them. Other tests may be reading.
fn lock(folder: &Path) -> io::Result<()> {
    let locked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let copy = folder.join("Cargo.lock");
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    if changed(&copy).is_ok_and(|copied| changed(&locked).is_ok_and(|original| copied >= original)) {
        return Ok(());
    }
    let partial = folder.join(format!("Cargo.lock.{}", std::process::id()));
    fs::write(&partial, fs::read(&locked)?)?;
    fs::rename(partial, copy)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("linking")
}

fn target_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("linking")
}
