//! How fast a model runs.

use crate::kinfolk::{kinfolk, tinytales};

const QUICK: [&str; 8] = ["-p", "8", "-n", "4", "-r", "2", "-t", "2"];

#[test]
fn every_way_to_run_is_measured_and_compared_with_the_machine() {
    let more = ["-b", "1,3", "--depth", "0,5", "--json"];
    let found = kinfolk(&[&["bench", &tinytales()], &QUICK[..], &more].concat()).json();
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|n| n > 0.0);
    for key in ["prefill_tokens_per_s", "decode_tokens_per_s", "load_seconds", "weight_bytes"] {
        assert!(positive(&found[key]), "{key}: {found}");
    }
    assert_eq!((&found["threads"], &found["repetitions"]), (&2.into(), &2.into()));
    let prefill = &found["prefill"];
    assert_eq!(prefill["tokens_per_s"], found["prefill_tokens_per_s"]);
    assert_eq!((&prefill["n_tokens"], prefill["by_repetition"].as_array().unwrap().len()), (&8.into(), 2));
    for key in ["gmac_per_s", "share_of_int8_peak", "share_of_f32_peak", "least", "most"] {
        assert!(positive(&prefill[key]), "{key}: {prefill}");
    }
    let decode = found["decode"].as_array().unwrap();
    let ways: Vec<_> = decode.iter().map(|d| (d["depth"].as_u64(), d["n_sequences"].as_u64())).collect();
    assert_eq!(ways, [(0, 1), (0, 3), (5, 1), (5, 3)].map(|(depth, n)| (Some(depth), Some(n))));
    assert_eq!(decode[0]["tokens_per_s"], found["decode_tokens_per_s"]);
    for way in decode {
        assert!(positive(&way["weights_gb_per_s"]) && positive(&way["share_of_read_peak"]), "{way}");
        assert!(way["gb_per_s"].as_f64() > way["weights_gb_per_s"].as_f64(), "keys and values come on top: {way}");
        assert!(way.get("profile").is_none(), "nobody asked: {way}");
    }
    for peak in ["int8", "f32"] {
        assert!(positive(&found["peaks"][peak]["gmac_per_s"]), "{found}");
    }
    assert!(positive(&found["peaks"]["read_gb_per_s"]));
    if cfg!(target_os = "linux") {
        assert!(found["resident_peak_bytes"].as_u64() > found["weight_bytes"].as_u64(), "{found}");
    }
}

#[test]
fn a_profile_says_where_the_time_goes() {
    let found = kinfolk(&[&["bench", &tinytales(), "--profile", "--json"], &QUICK[..]].concat()).json();
    for phase in [&found["prefill"], &found["decode"][0]] {
        let profile = phase["profile"].as_array().unwrap();
        let ops: Vec<_> = profile.iter().map(|op| op["op"].as_str().unwrap()).collect();
        assert!(["qkv", "attention", "down", "head"].iter().all(|op| ops.contains(op)), "{ops:?}");
        let shares: f64 = profile.iter().map(|op| op["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{phase}");
        let calls = |op: &str| profile.iter().find(|o| o["op"] == op).unwrap()["calls"].as_u64().unwrap();
        // A pass takes the head once; a prompt is one pass per repetition, decoding as many as tokens.
        assert_eq!(calls("head"), if phase["depth"].is_null() { 2 } else { 2 * 4 }, "{phase}");
    }
    let shown = kinfolk(&[&["bench", &tinytales(), "--profile"], &QUICK[..]].concat()).ok();
    for part in
        ["prefill 8 ", "decode 4 at 0 ", "tokens/s", "GMAC/s", "% of the read peak", "Time of prefill", "attention"]
    {
        assert!(shown.contains(part), "`{part}` in: {shown}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_was_expected() {
    let model = tinytales();
    for (args, part) in [
        (vec!["-p", "0", "-n", "0"], "expected tokens of a prompt or to decode, found 0 of both"),
        (vec!["-p", "2000"], "context length: expected 1 to 1024 tokens, found 2000"),
        (vec!["-p", "1", "-n", "4", "--depth", "1021"], "context length: expected 1 to 1024 tokens, found 1025"),
        (vec!["-p", "8", "--ctx", "4"], "expected at most 4 tokens, found 8"),
        (vec!["--executor", "abacus"], "abacus"),
    ] {
        let line = kinfolk(&[&["bench", &model], args.as_slice()].concat()).refusal();
        assert!(line.contains(part), "`{part}` in: {line}");
    }
    for (args, part) in [
        (vec!["-b", "0"], "expected a whole number from 1 to 1024"),
        (vec!["-b", "1,many"], "expected a whole number from 1 to 1024"),
        (vec!["-r", "0"], "expected a whole number from 1 to 1000"),
        (vec!["--depth", "-1"], "-1"),
        (vec!["-n", "99999999999"], "expected a whole number from 0 to 16777216"),
    ] {
        let run = kinfolk(&[&["bench", &model], args.as_slice()].concat());
        assert_eq!(run.code(), Some(2), "{args:?}");
        assert!(run.stderr().contains(part), "`{part}` in: {}", run.stderr());
    }
}

#[test]
fn prefill_and_decoding_can_be_left_out() {
    let without = |key: &str| kinfolk(&["bench", &tinytales(), key, "0", "-r", "1", "--json"]).json();
    let decoding = without("-p");
    assert!(decoding["prefill_tokens_per_s"].is_null() && decoding["decode_tokens_per_s"].is_number(), "{decoding}");
    let prompt = without("-n");
    assert!(prompt["prefill_tokens_per_s"].is_number() && prompt["decode_tokens_per_s"].is_null(), "{prompt}");
}
