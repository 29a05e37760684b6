//! Greedy text of whole models equals that of transformers in float32.

use std::{fs, ops::ControlFlow, path::Path, sync::Arc};

use kinfolk::{
    GenerateOptions, LmRunner, LoadOptions, LoadRequest, Registry, decoder::Source, sampling::SampleOpts, text::Text,
};
use kinfolk_registry_tests::{
    PACKED_TOLERANCE, PACKED_TOLERANCE_OF_MANY, TOLERANCE, in_repository, report_not_run, shared,
};
use serde_json::Value;

/// Where the reference's best two logits are closer than this, rounding decides, and the texts may part.
const NARROW: f64 = 0.01;

fn load(path: &Path) -> (Box<dyn LmRunner>, Text) {
    let source = Arc::new(Source::open(path).unwrap());
    let family = Registry::linked().claim(&source).unwrap().family;
    let text = Text::from_source(&source, family.conventions.turn_ends).unwrap();
    ((family.load)(LoadRequest::new(source, LoadOptions::default())).unwrap(), text)
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn greedy(runner: &mut dyn LmRunner, prompt: &[u32], max_new_tokens: usize, stop_tokens: Vec<u32>) -> Vec<u32> {
    let mut options = GenerateOptions::default();
    options.max_new_tokens = max_new_tokens;
    options.stop_tokens = stop_tokens;
    options.sample = SampleOpts::greedy();
    runner.generate(prompt, &options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// `gap_at` is the distance of the reference's best two logits at a step.
#[track_caller]
fn check_same(case: &str, found: &[u32], expected: &[u32], gap_at: impl Fn(usize) -> f64) {
    let parted =
        found.iter().zip(expected).position(|(a, b)| a != b).or((found.len() != expected.len()).then_some(found.len()));
    if let Some(step) = parted {
        let gap = gap_at(step);
        assert!(gap < NARROW, "{case}: step {step}, gap {gap}: expected {expected:?}, found {found:?}");
    }
}

/// The model inside the command, in one of its two forms. `reference` is `shared/default-model/reference.json`.
fn check_tinytales(weights: &Path, reference: &Value, column: &str) {
    let (mut runner, text) = load(weights);
    let mut stops = ids(&reference["stop_ids"]);
    stops.sort();
    assert_eq!(text.ends.iter().collect::<Vec<_>>(), stops);
    for case in reference[column].as_array().unwrap() {
        let name = format!("{column}: {}", case["prompt"]);
        let expected_prompt = ids(&case["prompt_ids"]);
        let prompt = match case["messages"].as_array() {
            Some(messages) => {
                let mut options = kinfolk::text::RenderOptions::default();
                options.add_generation_prompt = true;
                text.chat_tokens(messages, &options).unwrap()
            }
            None => text.raw_tokens(case["prompt"].as_str().unwrap()).unwrap(),
        };
        assert_eq!(prompt, expected_prompt, "{name}");

        let logits = runner.predict_logits(&prompt).unwrap();
        for top in case["top5"].as_array().unwrap() {
            let (id, expected) = (top["id"].as_u64().unwrap() as usize, top["logit"].as_f64().unwrap());
            let packed = if prompt.len() < 32 { PACKED_TOLERANCE } else { PACKED_TOLERANCE_OF_MANY };
            let tolerance = if weights.is_dir() { TOLERANCE } else { packed };
            assert!(
                (f64::from(logits[id]) - expected).abs() < f64::from(tolerance),
                "{name}: {top}, found {}",
                logits[id]
            );
        }

        let expected = ids(&case["continuation_ids"]);
        let found = greedy(&mut runner, &prompt, expected.len(), stops.clone());
        let smallest = case["smallest_margin"].as_f64().unwrap();
        let ended = case["stopped"].as_bool().unwrap();
        // The reference lists the token that ended the reply, and spells it.
        let (reply, end) = match expected.split_last() {
            Some((last, rest)) if ended && stops.contains(last) => (rest, Some(*last)),
            _ => (expected.as_slice(), None),
        };
        check_same(&name, &found, reply, |_| smallest);
        if found == reply {
            let spoken = text.tokenizer.decode(&[found, end.into_iter().collect()].concat(), false);
            assert_eq!(spoken, case["continuation"].as_str().unwrap(), "{name}");
        }
    }
}

fn tinytales_gguf() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cli/model/tinytales-q8_0.gguf")
}

#[test]
fn greedy_text_of_the_embedded_model_is_the_reference() {
    let reference = json(&in_repository("models").join("tinytales/reference.json"));
    check_tinytales(&tinytales_gguf(), &reference, "tinytales-q8_0");
    check_tinytales(&in_repository("models").join("tinytales"), &reference, "hf_bf16");
}

#[test]
fn the_copies_in_the_repository_are_the_shared_files() {
    let Some(shared) = shared("default-model") else { return report_not_run("default model", "shared/default-model") };
    let same = |a: &Path, b: &Path| assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{} is stale", a.display());
    same(&tinytales_gguf(), &shared.join("tinytales-q8_0.gguf"));
    same(&in_repository("models").join("tinytales/reference.json"), &shared.join("reference.json"));
    same(&in_repository("models").join("tinytales/model.safetensors"), &shared.join("hf/model.safetensors"));
}

#[track_caller]
fn check_real_model(weights: &str, reference: &str) {
    let models = std::env::home_dir().unwrap().join(".cache/kinfolk-test-models");
    let weights = models.join(weights);
    if !weights.exists() {
        assert!(std::env::var_os("KINFOLK_REQUIRE_MODELS").is_none(), "`{}` must be there", weights.display());
        return report_not_run(reference, &weights.display().to_string());
    }
    let Some(shared) = shared("textref/generation") else {
        return report_not_run(reference, "shared/textref/generation");
    };
    let reference = json(&shared.join(reference));
    let (mut runner, text) = load(&weights);
    for case in reference["cases"].as_array().unwrap() {
        let name = case["id"].as_str().unwrap();
        let oracle = &case["transformers_f32"];
        let (prompt, expected) = (ids(&case["prompt_ids"]), ids(&oracle["ids"]));
        let found = greedy(&mut runner, &prompt, expected.len(), Vec::new());
        let gap_at = |step: usize| {
            let logit = |rank: usize| oracle["top5"][step][rank][1].as_f64().unwrap();
            logit(0) - logit(1)
        };
        check_same(name, &found, &expected, gap_at);
        if found == expected {
            assert_eq!(text.tokenizer.decode(&found, false), oracle["text"].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn greedy_text_of_smollm2_is_that_of_transformers() {
    check_real_model("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct.json");
}

#[test]
fn greedy_text_of_gemma3_is_that_of_transformers() {
    check_real_model("gemma-3-270m-q4_k_m.gguf", "gemma-3-270m.json");
}
