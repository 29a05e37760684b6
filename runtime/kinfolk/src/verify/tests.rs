use serde_json::{Map, json};

use super::*;
use crate::{
    Capabilities,
    fixture::{LLAMA, VOCAB, load, path, request, source},
};

fn tally(found: &[f32], expected: &[f32]) -> WayReport {
    let mut tally = Tally::new(Way::Prefill, RowKind::Logits, 1e-3);
    tally.add(7, found, expected);
    tally.report
}

#[test]
fn a_value_that_is_not_a_number_is_wrong() {
    let report = tally(&[f32::NAN, 1.0], &[0.0, 1.0]);
    assert_eq!((report.max_abs, report.first_wrong), (f32::INFINITY, Some(7)));
}

#[test]
fn another_likeliest_token_is_wrong_only_beyond_the_tolerance() {
    assert_eq!(tally(&[1.0, 1.0005], &[1.0005, 1.0]).first_wrong, None);
    let report = tally(&[1.0, 1.002], &[1.002, 1.0]);
    assert_eq!((report.top1_agree, report.top1_rows, report.first_wrong), (0, 1, Some(7)));
}

#[test]
fn rows_of_another_length_are_wrong() {
    assert_eq!(tally(&[1.0], &[1.0, 1.0]).first_wrong, Some(7));
}

/// A safetensors file of these tensors, each with its type, shape and bytes, and what it is read as.
fn open(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Result<Reference> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let range = [data.len(), data.len() + bytes.len()];
        header.insert((*name).to_owned(), json!({ "dtype": dtype, "shape": shape, "data_offsets": range }));
        data.extend(bytes);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let file = tempfile::Builder::new().suffix(".safetensors").tempfile().unwrap();
    std::fs::write(file.path(), [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
    Reference::open(file.path())
}

fn ids_of(ids: &[i64]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

#[test]
fn a_reference_is_read_with_or_without_steps_and_as_hidden_states() {
    let prompt = ("prompt_ids", "I64", &[2][..], ids_of(&[5, 6]));
    let rows = ("prompt_logits", "F32", &[2, 3][..], floats(6));
    let bare = open(&[prompt.clone(), rows.clone()]).unwrap();
    assert_eq!((&bare.prompt[..], bare.kind, bare.decode.len()), (&[5, 6][..], RowKind::Logits, 0));
    assert_eq!(bare.prompt_rows, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
    let steps = [("decode_ids", "I64", &[1][..], ids_of(&[7])), ("decode_logits", "F32", &[1, 3][..], floats(3))];
    let with_steps = open(&[prompt.clone(), rows, steps[0].clone(), steps[1].clone()]).unwrap();
    assert_eq!((&with_steps.decode[..], &with_steps.decode_rows[0][..]), (&[7][..], &[0.0, 1.0, 2.0][..]));
    let hidden = open(&[prompt, ("hidden", "F32", &[2, 3], floats(6))]).unwrap();
    assert_eq!(hidden.kind, RowKind::Hidden);
}

#[test]
fn a_file_that_is_no_reference_says_what_it_lacks() {
    let prompt = ("prompt_ids", "I64", &[2][..], ids_of(&[5, 6]));
    let rows = ("prompt_logits", "F32", &[2, 3][..], floats(6));
    let step = ("decode_ids", "I64", &[1][..], ids_of(&[7]));
    let cases = [
        (vec![rows.clone()], "expected tensor `prompt_ids` with at least one token"),
        (
            vec![("prompt_ids", "I64", &[0][..], vec![]), rows.clone()],
            "expected tensor `prompt_ids` with at least one token",
        ),
        (vec![("prompt_ids", "F32", &[2][..], floats(2)), rows.clone()], "expected type I64, found F32"),
        (vec![("prompt_ids", "I64", &[2][..], ids_of(&[5, -1])), rows.clone()], "found a number out of range"),
        (vec![("prompt_ids", "I64", &[1][..], ids_of(&[1 << 32])), rows.clone()], "found a number out of range"),
        (vec![prompt.clone()], "expected tensor `prompt_logits` or `hidden`"),
        (vec![prompt.clone(), ("prompt_logits", "F32", &[3, 2], floats(6))], "expected shape [2, width], found [3, 2]"),
        (vec![prompt.clone(), ("prompt_logits", "F32", &[6], floats(6))], "expected shape [2, width], found [6]"),
        (vec![prompt.clone(), ("prompt_logits", "F32", &[2, 0], vec![])], "expected shape [2, width], found [2, 0]"),
        (vec![prompt, rows, step], "expected tensor `decode_logits` beside `decode_ids`"),
    ];
    for (tensors, expected) in cases {
        let found = open(&tensors).unwrap_err().to_string();
        assert!(found.contains(expected), "expected `{expected}`, found `{found}`");
    }
    assert!(Reference::open("/nowhere").is_err());
}

fn runner() -> Box<dyn LmRunner> {
    load(request(source(LLAMA), |_| {})).unwrap()
}

fn reference() -> Reference {
    Reference::open(path(LLAMA).join("reference.safetensors")).unwrap()
}

#[test]
fn a_right_model_passes_in_all_four_ways() {
    let report = verify(&mut runner(), &reference(), 1e-3).unwrap();
    let ways: Vec<Way> = report.ways.iter().map(|way| way.way).collect();
    assert_eq!(ways, [Way::Prefill, Way::Decode, Way::RePrefill, Way::Batch]);
    assert!(report.passed, "{report:#?}");
    assert!(report.ways.iter().all(|way| way.n_rows > 0 && way.top1_agree == way.top1_rows && way.max_kl < 1e-6));
}

#[test]
fn one_wrong_number_is_found_where_it_is() {
    let wrong = |report: &Report| report.ways.iter().map(|way| way.first_wrong).collect::<Vec<_>>();
    let mut in_prompt = reference();
    in_prompt.prompt_rows[3][100] += 0.01;
    let report = verify(&mut runner(), &in_prompt, 1e-3).unwrap();
    assert!(!report.passed);
    assert_eq!(wrong(&report), [Some(3), None, None, Some(3)]);
    let mut in_steps = reference();
    let place = in_steps.prompt.len() + 1;
    in_steps.decode_rows[1][0] = f32::NAN;
    let report = verify(&mut runner(), &in_steps, 1e-3).unwrap();
    assert_eq!(wrong(&report), [None, Some(place), Some(place), Some(place)]);
    assert_eq!(report.ways[1].max_abs, f32::INFINITY);
}

#[test]
fn a_reference_that_does_not_fit_is_an_error_and_not_a_verdict() {
    let mut other_vocabulary = reference();
    other_vocabulary.prompt_rows.iter_mut().for_each(|row| row.truncate(7));
    let mut rows_missing = reference();
    rows_missing.prompt_rows.pop();
    let mut steps_missing = reference();
    steps_missing.decode_rows.pop();
    let nothing = Reference { prompt: vec![], prompt_rows: vec![], decode: vec![], decode_rows: vec![], ..reference() };
    for reference in [other_vocabulary, rows_missing, steps_missing, nothing] {
        let error = verify(&mut runner(), &reference, 1e-3).unwrap_err().to_string();
        assert!(error.starts_with("reference: expected"), "{error}");
    }
    let mut foreign_token = reference();
    foreign_token.prompt[0] = VOCAB as u32;
    assert!(verify(&mut runner(), &foreign_token, 1e-3).is_err());
}

/// A runner that shows nothing but the waist.
struct Waist(Box<dyn LmRunner>);

impl LmRunner for Waist {
    fn family(&self) -> &str {
        "waist"
    }
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }
    fn context_length(&self) -> usize {
        self.0.context_length()
    }
    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.0.predict_logits(tokens)
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { prefill_decode_pair: true, ..Capabilities::default() }
    }
    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.0.prefill_logits(tokens)
    }
    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        self.0.decode_logits(token)
    }
}

#[test]
fn a_runner_without_a_model_is_compared_in_the_ways_it_has() {
    let report = verify(&mut Waist(runner()), &reference(), 1e-3).unwrap();
    let ways: Vec<Way> = report.ways.iter().map(|way| way.way).collect();
    assert_eq!((ways, report.passed), (vec![Way::Decode, Way::RePrefill], true));
    let mut wrong = reference();
    wrong.decode_rows[0][5] += 1.0;
    let report = verify(&mut Waist(runner()), &wrong, 1e-3).unwrap();
    assert_eq!(report.ways[0].first_wrong, Some(wrong.prompt.len()));
    let hidden = Reference { kind: RowKind::Hidden, ..reference() };
    assert!(verify(&mut Waist(runner()), &hidden, 1e-3).is_err());
}
