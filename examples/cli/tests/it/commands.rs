//! What each command shows.

use std::{
    io::{Read, Write},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::kinfolk::{Scratch, command, fixture, kinfolk, tinytales};

#[test]
fn without_a_command_it_tells_a_story_and_says_how_it_went() {
    let shown = kinfolk::<&str>(&[]).ok();
    let (story, summary) = shown.trim_end().rsplit_once('\n').unwrap();
    assert!(story.split_whitespace().count() > 20, "{story}");
    for part in ["tinytales", "family llama", "executor cpu", "thread", "prompt", "decode", "tokens/s"] {
        assert!(summary.contains(part), "{summary}");
    }
}

#[test]
fn the_same_seed_tells_the_same_story_whatever_the_threads() {
    let run = |threads: &str, seed: &str| {
        let args =
            ["run", &tinytales(), "Tell me a story.", "--seed", seed, "--max-tokens", "40", "--threads", threads];
        kinfolk(&args).ok()
    };
    assert_eq!(run("1", "7"), run("2", "7"));
    assert_ne!(run("1", "7"), run("1", "8"));
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let model = tinytales();
    let args = ["run", &model, "-", "--raw", "--temperature", "0", "--max-tokens", "8"];
    let mut child =
        command().args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Once upon a time").unwrap();
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(child.wait().unwrap().success());
    let typed = ["run", &model, "Once upon a time", "--raw", "--temperature", "0", "--max-tokens", "8"];
    assert_eq!(shown, kinfolk(&typed).ok());
}

#[test]
fn a_system_message_is_part_of_the_prompt() {
    let with = kinfolk(&["run", &tinytales(), "Hi", "--system", "Be brief.", "--max-tokens", "1"]);
    let without = kinfolk(&["run", &tinytales(), "Hi", "--max-tokens", "1"]);
    let prompt_tokens = |run: &crate::kinfolk::Run| {
        run.ok();
        let stderr = run.stderr();
        let rest = stderr.split("prompt ").nth(1).unwrap().to_owned();
        rest.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    assert!(prompt_tokens(&with) > prompt_tokens(&without));
}

/// Greedy, and ever more fond of what it has said: a reply that goes on until the context is full.
fn endless(model: &str) -> [&str; 8] {
    ["run", model, "Once", "--raw", "--temperature", "0", "--repetition-penalty", "0.5"]
}

#[test]
fn a_closed_reader_ends_a_run_without_complaint() {
    let mut child =
        command().args(endless(&tinytales())).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[cfg(unix)]
fn ctrl_c_stops_cleanly_with_what_was_generated() {
    let mut child =
        command().args(endless(&tinytales())).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(rest.ends_with('\n'), "the line is ended: {rest:?}");
    assert!(stderr.contains("decode"), "the summary is there: {stderr}");
    assert_eq!(output.status.code(), Some(130), "{stderr}");
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_a_wait_for_standard_input_at_once() {
    let args = ["run", &tinytales(), "-"];
    let mut child = command().args(args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Held open, so that only the signal can end the wait.
    let _stdin = child.stdin.take().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < patience, "Ctrl-C was not heard");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn inspect_says_what_a_model_is_and_needs() {
    let found = kinfolk(&["inspect", &tinytales(), "--json"]).json();
    for (key, expected) in [
        ("/format", json!("gguf")),
        ("/family", json!("llama")),
        ("/sizes/n_layers", json!(4)),
        ("/sizes/hidden_size", json!(192)),
        ("/sizes/n_heads", json!(6)),
        ("/sizes/n_kv_heads", json!(2)),
        ("/sizes/context_length", json!(1024)),
        ("/text/vocab_size", json!(1024)),
        ("/text/add_bos", json!(true)),
        ("/problems", json!([])),
        // 4 layers, keys and values of 2 heads of 32, f32.
        ("/memory/cache_bytes", json!(4 * 2 * 2 * 32 * 4 * 1024)),
    ] {
        assert_eq!(found.pointer(key), Some(&expected), "{key} in {found:#}");
    }
    assert!(found["quantization"]["attention"]["Q8_0"].as_u64().unwrap() > 0, "{found:#}");
    assert!(kinfolk(&["inspect", &fixture("gemma3")]).ok().contains("family        gemma"));
    // It has a BOS and does not use it.
    assert_eq!(kinfolk(&["tokenize", &fixture("qwen3/model.gguf"), "", "--json"]).json()["n_tokens"], 0);
    assert!(kinfolk(&["inspect", &fixture("qwen3/model.gguf")]).ok().contains("puts nothing before a text"));
}

#[test]
fn inspect_holds_a_model_against_the_memory_there_is() {
    let with = |args: &[&str]| kinfolk(&[&["inspect", &tinytales(), "--json"], args].concat()).json();
    let plain = with(&[]);
    assert_eq!((&plain["executor"], &plain["memory"]["fits"]), (&json!("cpu"), &json!(true)), "{plain:#}");
    assert!(plain["memory"]["available_bytes"].as_u64().unwrap() > 1 << 20);
    let parts = ["weight_bytes", "cache_bytes", "scratch_bytes", "host_bytes"];
    let sum: u64 = parts.iter().map(|part| plain["memory"][part].as_u64().unwrap()).sum();
    assert_eq!(plain["memory"]["total_bytes"], sum);
    let shorter = with(&["--context", "128"]);
    assert_eq!(shorter["memory"]["cache_bytes"], json!(4 * 2 * 2 * 32 * 4 * 128));
    assert_eq!(
        with(&["--ctx", "128", "--sequences", "3"])["memory"]["cache_bytes"],
        json!(3 * 4 * 2 * 2 * 32 * 4 * 128)
    );

    let small = with(&["--memory", "0.001"]);
    assert_eq!((&small["memory"]["fits"], &small["family"]), (&json!(false), &json!("llama")));
    let problem = small["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("memory: expected at most 2 MiB, found") && problem.contains("GiB free"), "{problem}");
    assert!(small["memory"]["remedies"]["needed_bytes"].as_u64().unwrap() == sum, "{small:#}");
    let problem = with(&["--context", "4096"])["problems"][0].as_str().unwrap().to_owned();
    assert_eq!(problem, "context length: expected 1 to 1024 tokens, found 4096");
    let shown = kinfolk(&["inspect", &tinytales(), "--memory", "0.001"]).ok();
    assert!(shown.lines().any(|line| line.starts_with("available") && line.ends_with("it does not fit")), "{shown}");
}

#[test]
fn inspect_needs_no_more_than_a_config_before_a_download() {
    let scratch = Scratch::new();
    let there = kinfolk(&["inspect", &format!("{}/model.safetensors", fixture("qwen3")), "--json"]).json();
    let config = std::fs::read(format!("{}/config.json", fixture("qwen3"))).unwrap();
    scratch.file("m/config.json", config);
    let model = format!("{}/m", scratch.path());
    let alone = kinfolk(&["inspect", &model, "--json"]).json();
    for key in ["/family", "/executor", "/sizes", "/n_parameters", "/memory/cache_bytes", "/memory/weight_bytes"] {
        assert_eq!(alone.pointer(key), there.pointer(key), "{key}");
    }
    assert_eq!((&alone["stored"]["basis"], &there["stored"]["basis"]), (&json!("config"), &json!("tensors")));
    assert_eq!((&alone["text"], &alone["n_tensors"]), (&Value::Null, &Value::Null));

    // With an index it is known which files are not there yet.
    let names = ["embed_tokens", "norm"].map(|name| format!("model.{name}.weight"));
    let layers = (0..2).flat_map(|i| {
        let parts = ["input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"].into_iter();
        let projections = ["q", "k", "v", "o"].map(|p| format!("self_attn.{p}_proj"));
        let mlp = ["gate", "up", "down"].map(|p| format!("mlp.{p}_proj"));
        let parts = parts.map(str::to_owned).chain(projections).chain(mlp);
        parts.map(move |part| format!("model.layers.{i}.{part}.weight")).collect::<Vec<_>>()
    });
    let map: serde_json::Map<String, Value> =
        names.into_iter().chain(layers).map(|name| (name, "model-00001-of-00001.safetensors".into())).collect();
    scratch.file("m/model.safetensors.index.json", json!({ "weight_map": map }).to_string());
    let indexed = kinfolk(&["inspect", &model, "--json"]).json();
    assert_eq!(indexed["absent"], json!(["model-00001-of-00001.safetensors"]));
    assert_eq!((&indexed["problems"], &indexed["n_parameters"]), (&json!([]), &there["n_parameters"]), "{indexed:#}");
    assert!(kinfolk(&["inspect", &model]).ok().contains("absent        1 of 1 file"));
    // Opening it takes the files.
    assert!(kinfolk(&["run", &model, "Hi"]).refusal().contains("model-00001-of-00001.safetensors"));
}

#[test]
fn inspect_says_what_a_checkpoint_lacks_to_be_a_model() {
    let scratch = Scratch::new();
    let weights = std::fs::read(format!("{}/model.safetensors", fixture("qwen3"))).unwrap();
    let alone = scratch.file("m/model.safetensors", weights);
    let line = kinfolk(&["inspect", &alone]).refusal();
    assert!(
        line.contains("expected the model's config beside its safetensors") && line.contains("config.json"),
        "{line}"
    );
    let line = kinfolk(&["inspect", &format!("{}/m", scratch.path())]).refusal();
    assert!(line.contains("config.json"), "{line}");
    let packed = scratch.copy("llama");
    let config = std::fs::read_to_string(packed.join("config.json")).unwrap();
    let config = config.replacen('{', r#"{"quantization_config": {"quant_method": "gptq"},"#, 1);
    std::fs::write(packed.join("config.json"), config).unwrap();
    let found = kinfolk(&["inspect", &format!("{}/model.safetensors", packed.display()), "--json"]).json();
    assert!(found["problems"][0].as_str().unwrap().contains("found `gptq`"), "{found:#}");
    assert_eq!((&found["family"], &found["memory"]), (&json!("llama"), &Value::Null));
}

#[test]
fn inspect_says_what_is_in_the_way_of_running_a_model() {
    let scratch = Scratch::new();
    let copy = scratch.copy("llama");
    std::fs::write(copy.join("config.json"), r#"{"model_type": "nobody_knows"}"#).unwrap();
    std::fs::remove_file(copy.join("model.gguf")).unwrap();
    let found = kinfolk(&["inspect", copy.to_str().unwrap(), "--json"]).json();
    assert_eq!(found["family"], Value::Null);
    assert!(found["problems"][0].as_str().unwrap().contains("nobody_knows"), "{found:#}");
}

#[test]
fn families_lists_every_linked_family_and_explains_its_choice() {
    let listed = kinfolk(&["families"]).ok();
    for family in ["llama", "mistral", "qwen2", "qwen3", "gemma"] {
        assert!(
            listed.lines().any(|line| line.starts_with(family) && line.contains(&format!("kinfolk-{family}"))),
            "{listed}"
        );
    }
    let explained = kinfolk(&["families", "--explain", &fixture("qwen3")]).ok();
    assert!(explained.contains("qwen3") && explained.contains("gemma"), "every family is asked: {explained}");
    let explained = kinfolk(&["families", "--explain", &fixture("qwen3"), "--json"]).json();
    assert_eq!(explained["family"], "qwen3");
    let n_families = kinfolk(&["families", "--json"]).json().as_array().unwrap().len();
    assert_eq!(explained["trail"]["answers"].as_array().unwrap().len(), n_families);
}

#[test]
fn text_from_files_cannot_move_the_cursor_or_break_lines() {
    let scratch = Scratch::new();
    let copy = scratch.copy("llama");
    let escape = r#"{"model_type": "nobody\n\u001b[2Jknows"}"#;
    std::fs::write(copy.join("config.json"), escape).unwrap();
    std::fs::remove_file(copy.join("model.gguf")).unwrap();
    let path = copy.to_str().unwrap();
    for args in [vec!["inspect", path], vec!["families", "--explain", path], vec!["run", path, "Hi"]] {
        let run = kinfolk(&args);
        let shown = run.stdout() + &run.stderr();
        assert!(shown.contains("nobody") && !shown.contains('\u{1b}'), "{args:?}: {shown:?}");
        assert!(shown.lines().all(|line| !line.starts_with("[2J")), "{args:?}: {shown:?}");
    }
}

#[test]
fn tokenize_shows_ids_pieces_offsets_and_special_tokens() {
    let found = kinfolk(&["tokenize", &tinytales(), "Once upon a time", "--json"]).json();
    let ids: Vec<u64> = found["tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 644, 709, 261, 504]);
    assert_eq!(found["tokens"][0]["special"], true);
    assert_eq!((&found["tokens"][1]["start"], &found["tokens"][4]["end"]), (&json!(0), &json!(16)));
    let plain = kinfolk(&["tokenize", &tinytales(), "<|im_end|>", "--no-special", "--json"]).json();
    assert!(plain["n_tokens"].as_u64().unwrap() > 1, "a control token that was typed is text: {plain}");
    let parsed = kinfolk(&["tokenize", &tinytales(), "<|im_end|>", "--no-special", "--parse-special", "--json"]).json();
    assert_eq!(parsed["n_tokens"], 1);
}

#[test]
fn template_shows_exactly_what_the_model_will_see() {
    let scratch = Scratch::new();
    let messages =
        scratch.file("messages.json", r#"[{"role": "user", "content": "Tell me a story about a fox and a lantern."}]"#);
    let prompt =
        "<|endoftext|><|im_start|>user\nTell me a story about a fox and a lantern.<|im_end|>\n<|im_start|>assistant\n";
    let shown = kinfolk(&["template", &tinytales(), "--messages", &messages]).ok();
    // The model's BOS is part of what it sees, whichever of template and tokenizer writes it.
    assert!(prompt.ends_with(&shown), "{shown:?}");
    let found = kinfolk(&["template", &tinytales(), "--messages", &messages, "--json"]).json();
    assert_eq!(found["tokens"][0], 0);
    assert_eq!(found["tokens"][1], 1);
    let closed = kinfolk(&["template", &tinytales(), "--messages", &messages, "--no-generation-prompt"]).ok();
    assert!(closed.ends_with("<|im_end|>\n"), "{closed:?}");
}

#[test]
fn verify_passes_the_reference_and_tells_where_another_model_goes_wrong() {
    let reference = format!("{}/reference.safetensors", fixture("llama"));
    let shown = kinfolk(&["verify", &fixture("llama"), "--reference", &reference]).ok();
    for way in ["prefill", "decode", "re-prefill", "batch"] {
        assert!(shown.lines().any(|line| line.starts_with(way) && line.ends_with("none")), "{shown}");
    }
    let wrong = kinfolk(&["verify", &fixture("llama-linear"), "--reference", &reference, "--json"]);
    assert_eq!(wrong.code(), Some(1));
    let report: Value = serde_json::from_str(&wrong.stdout()).unwrap();
    assert_eq!((&report["passed"], report["ways"].as_array().unwrap().len()), (&json!(false), 4));
    let wrong = kinfolk(&["verify", &fixture("llama-linear"), "--reference", &reference]);
    assert!(wrong.stdout().contains("first in `prefill` at position 0"), "{}", wrong.stdout());
    assert_eq!(kinfolk(&["verify", &fixture("llama"), "--reference", &reference, "--tolerance", "0"]).code(), Some(1));
}
