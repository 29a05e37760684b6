//! Stages against other implementations' numbers, and what a request may count on whatever the logits are.

use std::{fs, path::Path};

use proptest::prelude::*;
use serde_json::Value;

use super::{
    Candidates, SampleError, SampleOpts, SamplerChain, Stage, min_p::MinP, repetition::RepetitionPenalty,
    temperature::Temperature, top_k::TopK, top_p::TopP,
};

/// What passes the stages of every test that names them one by one.
fn survivors(logits: &[f32], stages: &mut [Box<dyn Stage>], history: &[u32]) -> Candidates {
    let mut candidates = Candidates::default();
    candidates.refill(logits);
    stages.iter_mut().for_each(|stage| stage.apply(&mut candidates, history));
    candidates
}

fn ids(candidates: &Candidates) -> Vec<u32> {
    let mut ids: Vec<u32> = candidates.as_slice().iter().map(|c| c.id).collect();
    ids.sort_unstable();
    ids
}

/// Every stage off and a fixed seed; tests switch on what they are about.
fn plain() -> SampleOpts {
    SampleOpts { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(1), ..SampleOpts::default() }
}

fn draw(options: &SampleOpts, logits: &[f32], n: usize) -> Vec<u32> {
    let mut chain = SamplerChain::new(options).unwrap();
    (0..n).map(|_| chain.sample(logits).unwrap()).collect()
}

mod vectors {
    //! `tests/data/samplers.json` and the whole set it is taken from: JSON objects with `logit_sets` and `cases`, whose expected
    //! survivors and probabilities llama.cpp and transformers computed.

    use super::*;

    fn number(value: &Value) -> f64 {
        value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
    }

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(number).collect()
    }

    fn count(value: &Value) -> usize {
        // Below 0 is off, as 0 is.
        usize::try_from(value.as_i64().unwrap()).unwrap_or(0)
    }

    /// The stages of a case; `None` if there is one this runtime does not have.
    fn stages(case: &Value) -> Option<Vec<Box<dyn Stage>>> {
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        for stage in case["stages"].as_array().unwrap() {
            let float = |key: &str| number(&stage[key]) as f32;
            let min_keep = stage.get("min_keep").map_or(1, count).max(1);
            match stage["op"].as_str().unwrap() {
                "top_k" if count(&stage["k"]) == 0 => {}
                "top_k" => stages.push(Box::new(TopK { k: count(&stage["k"]), min_keep })),
                "top_p" => stages.push(Box::new(TopP { p: float("p"), min_keep })),
                "min_p" => stages.push(Box::new(MinP { p: float("p"), min_keep })),
                // At 0 and below, which only the last stage of a chain can be, llama.cpp leaves the likeliest.
                "temp" if float("t") <= 0.0 => stages.push(Box::new(TopK { k: 1, min_keep: 1 })),
                "temp" => stages.push(Box::new(Temperature(float("t")))),
                "repetition_penalty" => {
                    stages.push(Box::new(RepetitionPenalty { penalty: float("penalty"), window: usize::MAX }));
                }
                "penalties" if float("freq") == 0.0 && float("present") == 0.0 => stages
                    .push(Box::new(RepetitionPenalty { penalty: float("repeat"), window: count(&stage["last_n"]) })),
                "greedy" => stages.push(Box::new(TopK { k: 1, min_keep: 1 })),
                _ => return None,
            }
        }
        Some(stages)
    }

    /// Ids and probabilities of what should be left, by id.
    fn expected(case: &Value) -> Vec<(u32, f64)> {
        let (column, ids) =
            if case.get("llama_cpp").is_some() { ("llama_cpp", "ids") } else { ("transformers", "kept") };
        let column = &case[column];
        if let Some(id) = column.get("selected_id") {
            return vec![(id.as_u64().unwrap() as u32, 1.0)];
        }
        let ids = numbers(&column[ids]).into_iter().map(|id| id as u32);
        let with_logits = ids.zip(numbers(&column["probs"])).zip(numbers(&column["logits"]));
        let finite = with_logits.filter(|(_, logit)| logit.is_finite()).map(|(left, _)| left);
        let mut left: Vec<(u32, f64)> = finite.collect();
        left.sort_by_key(|(id, _)| *id);
        left
    }

    fn check(case: &Value, logits: &[f32], stages: &mut [Box<dyn Stage>]) -> Result<(), String> {
        let history: Vec<u32> =
            case.get("history").map(numbers).unwrap_or_default().into_iter().map(|id| id as u32).collect();
        let candidates = survivors(logits, stages, &history);
        let items = candidates.as_slice().iter().map(|c| c.id);
        let mut found: Vec<(u32, f64)> = items.zip(candidates.probabilities()).collect();
        found.sort_by_key(|(id, _)| *id);
        let mut expected = expected(case);
        let flags = case.get("flags").map(Value::to_string).unwrap_or_default();
        if flags.contains("tie_at_cut") {
            // Which of the equals stay is open; how many is not.
            for side in [&mut found, &mut expected] {
                side.sort_by(|a, b| b.1.total_cmp(&a.1));
                side.iter_mut().for_each(|(id, _)| *id = 0);
            }
        }
        if flags.contains("fp_sensitive") && found.len().abs_diff(expected.len()) == 1 {
            // The cut is met within 2e-6, and f32 and f64 may fall on different sides of it.
            return Ok(());
        }
        let tolerance = if case["set"] == "n5_huge" { 1e-4 } else { 1e-5 };
        let agree = found.len() == expected.len()
            && found.iter().zip(&expected).all(|(f, e)| f.0 == e.0 && (f.1 - e.1).abs() <= tolerance);
        if agree { Ok(()) } else { Err(format!("{}: expected {expected:?}, found {found:?}", case["id"])) }
    }

    /// Checks every case of which all stages are here and returns how many there were.
    #[track_caller]
    fn check_all(text: &str) -> usize {
        let vectors: Value = serde_json::from_str(text).unwrap();
        let mut failures = Vec::new();
        let mut n = 0;
        for case in vectors["cases"].as_array().unwrap() {
            let Some(mut stages) = stages(case) else { continue };
            let logits: Vec<f32> = numbers(&vectors["logit_sets"][case["set"].as_str().unwrap()])
                .into_iter()
                .map(|logit| logit as f32)
                .collect();
            n += 1;
            failures.extend(check(case, &logits, &mut stages).err());
        }
        assert!(failures.is_empty(), "{} of {n} cases differ:\n{}", failures.len(), failures.join("\n"));
        n
    }

    #[test]
    fn stages_equal_other_implementations_on_the_cases_in_the_repository() {
        assert!(check_all(include_str!("../../tests/data/samplers.json")) >= 70);
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn stages_equal_other_implementations_on_every_shared_case() {
        let beside =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/textref/samplers/public"));
        let Some(folder) = beside.into_iter().find(|dir| dir.is_dir()) else {
            assert!(std::env::var_os("CI").is_none(), "`shared/textref` must be beside the repository on CI");
            eprintln!("NOT RUN: shared sampler vectors: `shared/textref` is not on this machine");
            return;
        };
        let at_least = [
            ("greedy", 13),
            ("temp", 41),
            ("top_k", 65),
            ("top_p", 54),
            ("min_p", 47),
            ("repetition_penalty", 7),
            ("penalties", 10),
            ("chains", 15),
        ];
        for (stage, least) in at_least {
            let n = check_all(&fs::read_to_string(folder.join(format!("{stage}.json"))).unwrap());
            assert!(n >= least, "{stage}: expected at least {least} cases, found {n}");
        }
    }
}

#[test]
fn temperature_zero_is_the_likeliest_token_and_the_lowest_id_of_equals() {
    let greedy = SampleOpts::greedy();
    assert_eq!(draw(&greedy, &[1.0, 2.0, 3.0], 2), [2, 2]);
    assert_eq!(draw(&greedy, &[1.0, 3.0, 3.0, -0.0], 1), [1]);
    assert_eq!(draw(&greedy, &[-0.0, 0.0], 1), [0]);
}

#[test]
fn the_smallest_temperature_is_the_likeliest_token() {
    for temperature in [f32::from_bits(1), 1e-40, f32::MIN_POSITIVE] {
        let options = SampleOpts { temperature, ..plain() };
        for logits in [[1.0, 3.0, 2.0, 0.0], [-3.0, -1.0, -2.0, -1.5], [0.0, f32::MAX, f32::MIN, 1.0]] {
            assert_eq!(draw(&options, &logits, 8), [1; 8], "temperature {temperature}");
        }
    }
}

#[test]
fn top_k_of_zero_is_off() {
    let seen = draw(&SampleOpts { top_k: 0, ..plain() }, &[0.0; 4], 1000);
    assert!((0..4).all(|id| seen.contains(&id)), "expected all of 4 equal tokens in 1000 draws");
}

#[test]
fn top_k_keeps_the_lowest_ids_of_ties_at_the_cut() {
    let left = survivors(&[1.0, 2.0, 1.0, 1.0], &mut [Box::new(TopK { k: 2, min_keep: 1 })], &[]);
    assert_eq!(ids(&left), [0, 1]);
}

#[test]
fn temperature_comes_before_min_p() {
    // A fifth of the likeliest leaves 2 of these tokens as they are, and all 5 at temperature 3.
    let logits = [0.0, -1.0, -2.0, -3.0, -4.0];
    let min_p = || Box::new(MinP { p: 0.2, min_keep: 1 });
    let temperature = || Box::new(Temperature(3.0));
    assert_eq!(ids(&survivors(&logits, &mut [min_p(), temperature()], &[])), [0, 1]);
    assert_eq!(ids(&survivors(&logits, &mut [temperature(), min_p()], &[])), [0, 1, 2, 3, 4]);
    let seen = draw(&SampleOpts { temperature: 3.0, min_p: 0.2, ..plain() }, &logits, 2000);
    assert!((0..5).all(|id| seen.contains(&id)), "expected the chain to heat before it cuts");
    let chain = SamplerChain::new(&SampleOpts { repetition_penalty: 1.1, ..SampleOpts::default() }).unwrap();
    let order = chain.to_string();
    let at = |stage: &str| order.find(stage).unwrap_or_else(|| panic!("`{order}` lacks {stage}"));
    assert!(
        ["RepetitionPenalty", "Temperature", "TopK", "TopP", "MinP"].is_sorted_by_key(|stage| at(stage)),
        "{order}"
    );
}

#[test]
fn logits_that_are_no_numbers_are_never_chosen() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in 0..3 {
            let mut logits = [1.0; 3];
            logits[place] = bad;
            for options in [plain(), SampleOpts::greedy(), SampleOpts::default()] {
                let seen = draw(&options, &logits, 50);
                assert!(seen.iter().all(|id| *id as usize != place), "{bad} at {place}: {seen:?}");
            }
        }
    }
}

#[test]
fn no_finite_logit_is_an_error_that_counts_them() {
    for options in [plain(), SampleOpts::greedy()] {
        let mut chain = SamplerChain::new(&options).unwrap();
        let error = |nan, infinite| Err(SampleError::NoFiniteLogit { nan, infinite, vocab_size: nan + infinite });
        assert_eq!(chain.sample(&[f32::NAN, f32::NAN, f32::INFINITY]), error(2, 1));
        assert_eq!(chain.sample(&[f32::NEG_INFINITY; 4]), error(0, 4));
        assert_eq!(chain.sample(&[]), error(0, 0));
        assert_eq!(chain.sample(&[0.0, f32::NAN]), Ok(0), "the chain goes on after an error");
    }
}

#[test]
fn a_filter_that_would_leave_nothing_leaves_the_likeliest() {
    let logits = [0.5, 0.25, 2.0, 1.0];
    assert_eq!(draw(&SampleOpts { top_p: 0.0, ..plain() }, &logits, 20), [2; 20]);
    assert_eq!(draw(&SampleOpts { min_p: 1.0, ..plain() }, &logits, 20), [2; 20]);
    assert_eq!(ids(&survivors(&logits, &mut [Box::new(MinP { p: 7.0, min_keep: 1 })], &[])), [2]);
    assert_eq!(ids(&survivors(&logits, &mut [Box::new(TopP { p: 0.0, min_keep: 3 })], &[])), [0, 2, 3]);
}

#[test]
fn large_equal_logits_are_equally_likely() {
    for logit in [1000.0, -1000.0, f32::MAX, f32::MIN] {
        let left = survivors(&[logit; 5], &mut [], &[]);
        assert!(left.probabilities().iter().all(|p| (p - 0.2).abs() < 1e-12), "{logit}");
    }
}

#[test]
fn the_repetition_window_counts_exactly_the_latest_tokens() {
    let history = [0, 1, 2, 3];
    let penalised = |window| {
        let options = SampleOpts { repetition_penalty: 2.0, repetition_window: window, ..SampleOpts::greedy() };
        // With every token equal the first that is not penalised is chosen.
        let mut chain = SamplerChain::new(&options).unwrap();
        history.iter().for_each(|token| chain.accept(*token));
        let mut left = Vec::new();
        let mut logits = [1.0f32; 5];
        while let Ok(id) = chain.sample(&logits) {
            left.push(id);
            logits[id as usize] = f32::NEG_INFINITY;
        }
        left
    };
    assert_eq!(penalised(0), [0, 1, 2, 3, 4], "0 is off");
    assert_eq!(penalised(1), [0, 1, 2, 4, 3]);
    assert_eq!(penalised(4), [4, 0, 1, 2, 3]);
    assert_eq!(penalised(5), penalised(4));
}

#[test]
fn the_repetition_penalty_makes_positive_and_negative_logits_less_likely_once_each() {
    let mut stages: [Box<dyn Stage>; 1] = [Box::new(RepetitionPenalty { penalty: 2.0, window: 9 })];
    let left = survivors(&[3.0, -3.0, 0.0, 3.0], &mut stages, &[0, 1, 2, 0, 0]);
    let logits: Vec<f32> = left.as_slice().iter().map(|c| c.logit).collect();
    assert_eq!(logits, [1.5, -6.0, 0.0, 3.0]);
}

#[test]
fn interleaved_requests_draw_as_each_would_alone() {
    let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin()).collect();
    let with_seed = |seed| SampleOpts { seed: Some(seed), ..plain() };
    let alone = [1, 2].map(|seed| draw(&with_seed(seed), &logits, 40));
    let mut chains = [1, 2].map(|seed| SamplerChain::new(&with_seed(seed)).unwrap());
    let mut together = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        for (chain, drawn) in chains.iter_mut().zip(&mut together) {
            drawn.push(chain.sample(&logits).unwrap());
        }
    }
    assert_eq!(together, alone);
    assert_ne!(alone[0], alone[1], "seeds matter");
}

#[test]
fn draws_are_as_frequent_as_the_probabilities_say() {
    let logits = [0.0f32, 1.0, 2.0];
    let n = 20_000;
    let seen = draw(&plain(), &logits, n);
    for (id, p) in survivors(&logits, &mut [], &[]).probabilities().iter().enumerate() {
        let share = seen.iter().filter(|s| **s as usize == id).count() as f64 / n as f64;
        // Five standard deviations.
        assert!((share - p).abs() < 5.0 * (p * (1.0 - p) / n as f64).sqrt(), "token {id}: {share} for {p}");
    }
}

#[test]
fn a_setting_no_sampler_can_honour_is_refused_by_name() {
    let bad = [
        ("temperature", SampleOpts { temperature: -0.1, ..plain() }),
        ("temperature", SampleOpts { temperature: f32::NAN, ..plain() }),
        ("temperature", SampleOpts { temperature: f32::INFINITY, ..plain() }),
        ("top_p", SampleOpts { top_p: 1.5, ..plain() }),
        ("top_p", SampleOpts { top_p: f32::NAN, ..plain() }),
        ("min_p", SampleOpts { min_p: 1.5, ..plain() }),
        ("repetition_penalty", SampleOpts { repetition_penalty: 0.0, ..plain() }),
        ("repetition_penalty", SampleOpts { repetition_penalty: f32::INFINITY, ..plain() }),
    ];
    for (expected, options) in bad {
        match SamplerChain::new(&options) {
            Err(SampleError::OutOfRange { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// Any bit pattern, and often the numbers that matter.
fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => any::<u32>().prop_map(f32::from_bits),
        4 => -20.0f32..20.0,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0]),
    ]
}

fn options() -> impl Strategy<Value = SampleOpts> {
    let temperature = prop_oneof![Just(0.0f32), 0.01f32..5.0, (0u32..0x7f80_0000).prop_map(f32::from_bits)];
    let penalty = prop_oneof![Just(1.0f32), 0.5f32..2.0, (1u32..0x7f80_0000).prop_map(f32::from_bits)];
    let fraction = || prop_oneof![Just(0.0f32), Just(1.0f32), 0.0f32..=1.0];
    let count = || prop_oneof![0usize..10, Just(usize::MAX)];
    (temperature, count(), fraction(), fraction(), penalty, count(), count(), any::<u64>()).prop_map(
        |(temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, min_keep, seed)| SampleOpts {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            repetition_window,
            min_keep,
            seed: Some(seed),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_chosen_is_a_finite_logit_of_the_vocabulary(
        logits in prop::collection::vec(logit(), 0..40),
        options in options(),
        history in prop::collection::vec(any::<u32>().prop_map(|id| id % 64), 0..20),
    ) {
        let mut chain = SamplerChain::new(&options).unwrap();
        history.iter().for_each(|token| chain.accept(*token));
        match chain.sample(&logits) {
            Ok(id) => prop_assert!(logits.get(id as usize).is_some_and(|l| l.is_finite())),
            Err(error) => {
                let none_finite = logits.iter().all(|l| !l.is_finite());
                prop_assert!(none_finite, "{error}");
            }
        }
    }

    #[test]
    fn stages_leave_probabilities_that_sum_to_one(
        logits in prop::collection::vec(logit(), 1..40),
        temperature in (1u32..0x7f80_0000).prop_map(f32::from_bits),
        penalty in (1u32..0x7f80_0000).prop_map(f32::from_bits),
    ) {
        prop_assume!(logits.iter().any(|l| l.is_finite()));
        let mut stages: [Box<dyn Stage>; 2] =
            [Box::new(RepetitionPenalty { penalty, window: 9 }), Box::new(Temperature(temperature))];
        let sum: f64 = survivors(&logits, &mut stages, &[0, 3, 5]).probabilities().iter().sum();
        prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
