use super::*;
use crate::family::Conventions;

/// A family that answers to `arches` and loads nothing.
const fn family(name: &'static str, crate_name: &'static str, arches: &'static [&'static str]) -> Family {
    Family {
        name,
        description: "for tests",
        model_types: &[],
        gguf: &[],
        classes: &[],
        arches,
        probe: None,
        load: |_| anyhow::bail!("a family for tests loads nothing"),
        describe: None,
        conventions: Conventions { tool_calls: None, turn_ends: &[] },
        api_version: API_VERSION,
        crate_name,
        crate_version: "1.0.0",
    }
}

const LLAMA: Family = Family {
    model_types: &["llama"],
    gguf: &["llama"],
    classes: &["LlamaForCausalLM"],
    ..family("llama", "kinfolk-llama", &[])
};
const MOE: Family =
    Family { model_types: &["qwen3_moe"], gguf: &["qwen3moe"], ..family("qwen3", "kinfolk-qwen3", &[]) };
/// Claims what llama claims, as files of one do that carry the other's name.
const MISTRAL: Family =
    Family { gguf: &["llama"], model_types: &["mistral"], ..family("mistral", "kinfolk-mistral", &[]) };

/// A GGUF file without tensors.
fn gguf(architecture: Option<&str>) -> Source {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    let pairs = [("general.architecture", architecture), ("general.name", Some("a test"))];
    let pairs: Vec<(&str, &str)> = pairs.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    bytes.extend((pairs.len() as u64).to_le_bytes());
    for (key, value) in pairs {
        bytes.extend((key.len() as u64).to_le_bytes());
        bytes.extend(key.as_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend((value.len() as u64).to_le_bytes());
        bytes.extend(value.as_bytes());
    }
    Source::from_gguf_bytes("model.gguf", bytes.leak()).expect("the bytes are GGUF")
}

fn named(architecture: &str, path: &str, families: &[Family]) -> Result<Decision, ClaimError> {
    Registry::of(families.iter().copied()).claim_name(architecture, Some(Path::new(path)))
}

#[track_caller]
fn check(architecture: &str, path: &str, families: &[Family], expected: &str) {
    let decision = named(architecture, path, families).expect("some family claims it");
    assert_eq!(decision.family.name, expected, "{}", decision.trail);
}

#[test]
fn every_spelling_of_a_name_reaches_its_family() {
    for spelling in ["llama", "LLaMA", "Llama ", "LlamaForCausalLM", "llama_for_causal_lm"] {
        check(spelling, "model.gguf", &[LLAMA, MOE], "llama");
    }
    for spelling in ["qwen3_moe", "qwen3moe", "Qwen3-MoE", "Qwen3MoeForCausalLM"] {
        check(spelling, "model.gguf", &[LLAMA, MOE], "qwen3");
    }
}

#[test]
fn another_task_of_the_same_body_is_not_claimed() {
    assert!(matches!(named("Qwen3MoeForSequenceClassification", "m", &[MOE]), Err(ClaimError::Unclaimed { .. })));
}

#[test]
fn metadata_beats_the_path() {
    check("llama", "mistral-large-3-notes/model.gguf", &[LLAMA, Family { gguf: &[], ..MISTRAL }], "llama");
    check("llama", "/models/qwen3/qwen3.gguf", &[LLAMA, MOE], "llama");
}

#[test]
fn the_path_breaks_a_tie_by_the_file_and_then_the_folder() {
    check("llama", "llama/mistral-7b-instruct.gguf", &[LLAMA, MISTRAL], "mistral");
    check("llama", "mistral-7b/model.gguf", &[LLAMA, MISTRAL], "mistral");
    check("llama", "mistral/Llama-3.2-1B.gguf", &[LLAMA, MISTRAL], "llama");
}

#[test]
fn a_tie_that_nothing_breaks_is_an_error_naming_both_crates() {
    for path in ["model.gguf", "/mistral/deep/below/model.gguf", "llama-and-mistral.gguf"] {
        let error = named("llama", path, &[LLAMA, MISTRAL]).expect_err("nothing tells them apart");
        assert!(matches!(&error, ClaimError::Conflict { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "expected one family for `llama`, found `llama` of `kinfolk-llama 1.0.0`, `mistral` of `kinfolk-mistral 1.0.0`; \
             pin one by the load option `family`"
        );
    }
}

#[test]
fn the_most_specific_name_decides() {
    let evidence = |names: &[&str]| Evidence {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        read_from: None,
        path: None,
        source: None,
    };
    let registry = Registry::of([LLAMA, Family { gguf: &[], ..MISTRAL }]);
    let winner = |names: &[&str]| registry.decide(&evidence(names)).map(|decision| decision.family.name).ok();
    assert_eq!(winner(&["mistral", "LlamaForCausalLM"]), Some("mistral"));
    assert_eq!(winner(&["llava", "llama"]), Some("llama"));
    assert_eq!(winner(&["llava"]), None);
}

#[test]
fn the_order_of_families_decides_nothing() {
    let families = [LLAMA, MOE, MISTRAL, family("a", "kinfolk-a", &["a"]), family("z", "kinfolk-z", &["z", "a"])];
    let answers = |families: &[Family]| {
        ["llama", "qwen3moe", "mistral", "a", "z", "none"].map(|architecture| {
            named(architecture, "model.gguf", families)
                .map(|decision| decision.trail.to_string())
                .map_err(|error| error.to_string())
        })
    };
    let expected = answers(&families);
    for start in 0..families.len() {
        let mut turned = families;
        turned.rotate_left(start);
        assert_eq!(answers(&turned), expected);
        turned.reverse();
        assert_eq!(answers(&turned), expected);
    }
}

#[test]
fn one_family_twice_is_one_and_two_versions_are_a_conflict() {
    let twice = Registry::of([LLAMA, MOE, LLAMA]);
    assert_eq!(twice.families().len(), 2);
    assert!(twice.conflicts().is_empty());

    let versions = Registry::of([LLAMA, Family { crate_version: "2.0.0", ..LLAMA }]);
    let error = versions.expect(["llama"]).expect_err("two versions");
    let message = error.to_string();
    assert!(message.contains("`kinfolk-llama 1.0.0`") && message.contains("`kinfolk-llama 2.0.0`"), "{message}");
    assert!(versions.get("llama").is_none());
}

#[test]
fn a_family_of_another_contract_is_refused_by_the_name_of_its_crate() {
    let stale = Family { api_version: API_VERSION + 1, ..MOE };
    let registry = Registry::of([LLAMA, stale]);
    let error = registry.claim_name("qwen3_moe", None).expect_err("it is not enrolled");
    assert!(matches!(&error, ClaimError::Incompatible(_)), "{error}");
    assert!(error.to_string().contains("`kinfolk-qwen3 1.0.0`"), "{error}");
    assert!(matches!(registry.expect([]), Err(ExpectError::Incompatible(_))));
    assert_eq!(registry.claim_name("llama", None).expect("llama is fine").family.name, "llama");
}

#[test]
fn an_empty_registry_explains_itself() {
    let error = Registry::of([]).claim_name("qwen3", None).expect_err("there is no family");
    let message = error.to_string();
    assert!(message.contains("kinfolk::enroll!();"), "{message}");
    assert!(message.contains("use kinfolk_qwen3 as _;"), "{message}");
    assert!(message.ends_with("\ncargo add kinfolk-qwen3"), "{message}");
}

#[test]
fn an_architecture_nobody_claims_is_named_with_its_file_the_families_and_the_crate_to_add() {
    let error = Registry::of([LLAMA]).claim(&gguf(Some("qwen3moe"))).expect_err("llama does not run it");
    let message = error.to_string();
    assert_eq!(
        message,
        "expected an architecture of a linked family (`llama`), found `qwen3moe` in `model.gguf`; \
         with `kinfolk::enroll!();` in the host, run\n\
         cargo add kinfolk-qwen3"
    );
    let unknown = Registry::of([LLAMA]).claim_name("transformer-9000", None).expect_err("nobody runs it").to_string();
    assert_eq!(
        unknown,
        "expected an architecture of a linked family (`llama`), found `transformer-9000`; \
         no crate known to this version runs it, and one that does is linked by\n\
         cargo add <its crate>"
    );
}

#[test]
fn a_checkpoint_without_a_name_is_not_guessed_from_its_path() {
    let error = named("", "llama/llama.gguf", &[LLAMA]).expect_err("there is no name");
    assert!(matches!(error, ClaimError::NoArchitecture { .. }), "{error}");
    let error = Registry::of([LLAMA]).claim(&gguf(None)).expect_err("there is no name");
    assert_eq!(error.to_string(), "expected the name of an architecture, found no name in `model.gguf`");
}

#[test]
fn a_probe_withdraws_a_name_and_wins_a_tie() {
    let refusing = Family { probe: Some(|_| false), ..MISTRAL };
    let agreeing = Family { probe: Some(|_| true), ..MISTRAL };
    let source = gguf(Some("llama"));
    let winner =
        |families: [Family; 2]| Registry::of(families).claim(&source).map(|decision| decision.family.name).ok();
    assert_eq!(winner([LLAMA, refusing]), Some("llama"));
    assert_eq!(winner([LLAMA, agreeing]), Some("mistral"));
    assert_eq!(winner([refusing, MOE]), None);
    // A probe tells the two apart, so linking both is not yet a conflict.
    assert!(Registry::of([LLAMA, agreeing]).expect(["llama", "mistral"]).is_ok());
    assert!(Registry::of([LLAMA, MISTRAL]).expect(["llama", "mistral"]).is_err());
}

#[test]
fn a_probe_answers_where_no_name_does() {
    let by_look =
        Family { probe: Some(|source| source.tensor_bytes() == 0), ..family("bare", "kinfolk-bare", &["bare"]) };
    for architecture in [None, Some("something-new")] {
        let decision = Registry::of([LLAMA, by_look]).claim(&gguf(architecture)).expect("the probe claims it");
        assert_eq!(decision.family.name, "bare");
        assert!(decision.trail.to_string().contains("bare (kinfolk-bare 1.0.0) claims it by its probe"));
    }
    // A name that matches comes before any look.
    assert_eq!(Registry::of([LLAMA, by_look]).claim(&gguf(Some("llama"))).expect("by name").family.name, "llama");
}

#[test]
fn a_pin_overrules_the_checkpoint_and_may_name_the_crate() {
    let source = gguf(Some("llama"));
    let registry = Registry::of([LLAMA, MISTRAL, MOE]);
    for (pin, expected) in [("mistral", "mistral"), ("Llama", "llama"), ("kinfolk-qwen3", "qwen3")] {
        assert_eq!(registry.pin(pin, &source).expect("it is linked").family.name, expected);
    }
    let error = registry.pin("gemma", &source).expect_err("it is not linked").to_string();
    assert!(error.starts_with("expected a linked family (`llama`, `mistral`, `qwen3`), found `gemma`"), "{error}");
    assert!(error.ends_with("\ncargo add kinfolk-gemma"), "{error}");
}

#[test]
fn the_start_up_check_names_what_is_missing() {
    let registry = Registry::of([LLAMA]);
    assert!(registry.expect(["llama"]).is_ok());
    let error = registry.expect(["llama", "qwen3"]).expect_err("qwen3 is missing").to_string();
    assert!(error.starts_with("expected linked families `qwen3`, found `llama`;"), "{error}");
    let error = Registry::of([]).expect(["llama"]).expect_err("all is missing").to_string();
    assert!(error.starts_with("expected linked families `llama`, found none;"), "{error}");
}

#[test]
fn the_trail_says_who_was_asked_what_each_said_and_why() {
    let trail = Registry::of([LLAMA, MOE]).claim(&gguf(Some("llama"))).expect("llama claims it").trail;
    assert_eq!(
        trail.to_string(),
        "architecture `llama` in `model.gguf`\n\
         \x20 llama (kinfolk-llama 1.0.0) claims `llama` by `llama` in `model_types`\n\
         \x20 qwen3 (kinfolk-qwen3 1.0.0) does not know the name\n\
         `llama` is chosen: no other claim is as strong"
    );
    let json = serde_json::to_value(&trail).expect("a trail is plain data");
    assert_eq!(json["architectures"][0], "llama");
    assert_eq!(json["answers"][0]["says"]["answer"], "claims");
    assert_eq!(json["answers"][1]["says"]["answer"], "unknown");
}

#[test]
fn the_chosen_family_is_given_the_open_source_and_the_choices() {
    let folder = std::env::temp_dir().join(format!("kinfolk-registry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    let path = folder.join("config.json");
    std::fs::write(&path, "{}").expect("the folder for temporary files can be written");
    let error = Registry::of([LLAMA]).runner(&folder, LoadOptions::default()).err().expect("there are no weights");
    assert!(error.downcast_ref::<kinfolk_weights::WeightsError>().is_some(), "{error:#}");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}
