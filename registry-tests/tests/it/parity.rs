//! Every fixture of the linked families, in every form it is there, gives the reference's logits in all four ways.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use kinfolk::{
    LoadOptions, LoadRequest, Registry,
    decoder::{Config, Source},
    verify::{Reference, Report, verify},
};
use kinfolk_registry_tests::{
    NARROW_TOLERANCE, PACKED_TOLERANCE, PACKED_TOLERANCE_OF_MANY, TOLERANCE, in_repository, shared,
};

/// One checkpoint with its reference.
struct Case {
    weights: PathBuf,
    /// Stands in for the checkpoint's own config.
    config: Option<PathBuf>,
    reference: PathBuf,
}

/// How quantised weights are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    Decoded,
    Packed,
    /// With narrow activations in long passes.
    PackedNarrow,
}

impl Case {
    /// Quantised weights are checked decoded, which is exact, and as they are.
    fn check(&self) -> Result<(), String> {
        let name = format!("{} {}", self.weights.display(), self.config.as_ref().map_or("", |_| "(published config)"));
        let source = self.open().map_err(|error| format!("{name}: {error:#}"))?;
        let is_quantised = source.tensors().any(|tensor| tensor.dtype.block_len() > 1);
        let reference = Reference::open(&self.reference).map_err(|error| format!("{name}: {error:#}"))?;
        let few = few_tokens_of(&reference);
        let checks = if is_quantised {
            vec![
                (Weights::Decoded, &reference, TOLERANCE),
                (Weights::Packed, &few, PACKED_TOLERANCE),
                (Weights::Packed, &reference, PACKED_TOLERANCE_OF_MANY),
                (Weights::PackedNarrow, &reference, NARROW_TOLERANCE),
            ]
        } else {
            vec![(Weights::Packed, &reference, TOLERANCE)]
        };
        checks.into_iter().try_for_each(|(weights, reference, tolerance)| {
            match self.verify(&source, weights, reference, tolerance) {
                Ok(report) if report.passed => Ok(()),
                Ok(report) => Err(format!("{name}, {weights:?}: {:#?}", report.ways)),
                Err(error) => Err(format!("{name}: {error:#}")),
            }
        })
    }

    fn open(&self) -> anyhow::Result<Arc<Source>> {
        let mut source = Source::open(&self.weights)?;
        if let Some(path) = &self.config {
            source.set_config(Config::from_json(path, &fs::read_to_string(path)?)?);
        }
        Ok(Arc::new(source))
    }

    fn verify(
        &self,
        source: &Arc<Source>,
        weights: Weights,
        reference: &Reference,
        tolerance: f32,
    ) -> anyhow::Result<Report> {
        let family = Registry::linked().claim(source)?.family;
        let mut options = LoadOptions::default();
        options.packed_weights = (weights == Weights::Decoded).then_some(false);
        options.narrow_activations = weights == Weights::PackedNarrow;
        let mut runner = (family.load)(LoadRequest::new(Arc::clone(source), options))?;
        verify(&mut runner, reference, tolerance)
    }
}

/// The first tokens of a prompt, few enough that no pass over them, a batch of several included, has 32.
fn few_tokens_of(reference: &Reference) -> Reference {
    let n = reference.prompt.len().min(8);
    Reference {
        prompt: reference.prompt[..n].to_vec(),
        prompt_rows: reference.prompt_rows[..n].to_vec(),
        decode: Vec::new(),
        decode_rows: Vec::new(),
        kind: reference.kind,
    }
}

/// Every case in a folder of fixtures. Which of them some linked family runs is up to their configs.
fn cases(fixtures: &Path) -> Vec<Case> {
    let mut folders: Vec<PathBuf> = fs::read_dir(fixtures).unwrap().map(|e| e.unwrap().path()).collect();
    folders.retain(|folder| is_ours(folder));
    folders.sort();
    folders.iter().flat_map(|folder| cases_of(folder)).collect()
}

/// Whether a linked family runs the checkpoint in a folder.
pub(crate) fn is_ours(folder: &Path) -> bool {
    let path = folder.join("config.json");
    let Ok(text) = fs::read_to_string(&path) else { return false };
    // Packed safetensors layouts (GPTQ, AWQ, MLX, …) are no weight format of this runtime yet.
    if text.contains("\"quantization") {
        return false;
    }
    let config = Config::from_json(&path, &text).unwrap();
    config.architectures().iter().any(|name| Registry::linked().claim_name(name, None).is_ok())
}

fn cases_of(folder: &Path) -> Vec<Case> {
    let reference = folder.join("reference.safetensors");
    let mut cases = Vec::new();
    let mut add = |weights: PathBuf, config: Option<PathBuf>, reference: &Path| {
        if weights.exists() && config.as_ref().is_none_or(|c| c.exists()) {
            cases.push(Case { weights, config, reference: reference.to_owned() });
        }
    };
    add(folder.join("model.safetensors"), None, &reference);
    add(folder.join("model.safetensors"), Some(folder.join("config.hub.json")), &reference);
    add(folder.join("model.gguf"), None, &reference);
    let mut files: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    for file in files {
        if let Some(scheme) = file.strip_prefix("model-").and_then(|f| f.strip_suffix(".gguf")) {
            add(folder.join(&file), None, &folder.join(format!("reference-{scheme}.safetensors")));
        }
    }
    cases
}

#[test]
fn narrow_activations_change_long_passes_just_where_there_is_a_kernel_for_them() {
    let source = Arc::new(Source::open(in_repository("fixtures/quant-llama/model-Q4_K_M.gguf")).unwrap());
    let logits = |narrow: bool, n: u32| {
        let family = Registry::linked().claim(&source).unwrap().family;
        let mut options = LoadOptions::default();
        options.narrow_activations = narrow;
        let mut runner = (family.load)(LoadRequest::new(Arc::clone(&source), options)).unwrap();
        runner.predict_logits(&(0..n).map(|i| i * 7 % 320).collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(logits(true, 31), logits(false, 31));
    let has_kernel = kinfolk_cpu::levels().last() == Some(&"avx512-vnni");
    assert_eq!(logits(true, 40) != logits(false, 40), has_kernel);
}

/// Which instruction set to check, where it is not to be the best.
const LEVEL_VARIABLE: &str = "KINFOLK_CPU_LEVEL";

#[track_caller]
fn check_all(fixtures: &Path, at_least: usize) {
    if let Ok(level) = env::var(LEVEL_VARIABLE) {
        kinfolk_cpu::use_level(&level).unwrap();
    }
    let cases = cases(fixtures);
    let failures: Vec<String> = cases.iter().filter_map(|case| case.check().err()).collect();
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(
        cases.len() >= at_least,
        "expected at least {at_least} cases in `{}`, found {}",
        fixtures.display(),
        cases.len()
    );
}

#[test]
fn copies_in_the_repository_verify_in_all_four_ways() {
    check_all(&in_repository("fixtures"), 40);
}

#[test]
fn every_shared_fixture_of_the_linked_families_verifies_in_all_four_ways() {
    match shared("fixtures/public") {
        Some(fixtures) => check_all(&fixtures, 80),
        None => kinfolk_registry_tests::report_not_run("shared fixtures", "shared/fixtures/public"),
    }
}

/// The instruction set is a process's own, so each gets a process.
#[test]
fn they_verify_with_every_instruction_set_of_this_processor() {
    let levels = kinfolk_cpu::levels();
    assert!(levels.contains(&"scalar"), "{levels:?}");
    for level in levels {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "parity::every_shared_fixture_of_the_linked_families_verifies_in_all_four_ways"]);
        let output = test.env(LEVEL_VARIABLE, level).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && shown.contains("1 passed"), "{level}: {shown}");
    }
}
