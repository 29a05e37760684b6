//! What a request may count on, whatever the logits are. `tests/it/samplers.rs` holds stages against other implementations.

use proptest::prelude::*;
use serde_json::json;

use super::{
    Candidates, Constraint, ConstraintError, LogitBias, SampleError, SampleOpts, SamplerChain, Stage, StageKind, Step,
    StepRng, TokenMask, log_probabilities,
    stages::{Dry, MinP, NoRepeatNgram, Penalties, SequenceBreakers, Temperature, TopK, TopP, TypicalP, Xtc},
};

/// What passes the stages of every test that names them one by one.
fn survivors(logits: &[f32], stages: &mut [Box<dyn Stage>], history: &[u32]) -> Candidates {
    let mut candidates = Candidates::from_logits(logits);
    let mut rng = StepRng::new(1);
    let mut step = Step::new(history, &mut rng);
    stages.iter_mut().for_each(|stage| stage.apply(&mut candidates, &mut step));
    candidates
}

fn ids(candidates: &Candidates) -> Vec<u32> {
    let mut ids: Vec<u32> = candidates.iter().map(|c| c.id).collect();
    ids.sort_unstable();
    ids
}

/// Every stage off and a fixed seed; tests switch on what they are about.
fn plain() -> SampleOpts {
    SampleOpts { seed: Some(1), ..SampleOpts::nucleus(1.0, 1.0) }
}

fn draw(options: &SampleOpts, logits: &[f32], n: usize) -> Vec<u32> {
    let mut chain = SamplerChain::new(options).unwrap();
    (0..n).map(|_| chain.sample(logits).unwrap()).collect()
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
    let temperature = || Box::new(Temperature { temperature: 3.0 });
    assert_eq!(ids(&survivors(&logits, &mut [min_p(), temperature()], &[])), [0, 1]);
    assert_eq!(ids(&survivors(&logits, &mut [temperature(), min_p()], &[])), [0, 1, 2, 3, 4]);
    let seen = draw(&SampleOpts { temperature: 3.0, min_p: 0.2, ..plain() }, &logits, 2000);
    assert!((0..5).all(|id| seen.contains(&id)), "expected the chain to heat before it cuts");
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
        assert!(left.probabilities().iter().all(|(_, p)| (p - 0.2).abs() < 1e-12), "{logit}");
    }
}

#[test]
fn the_repetition_window_counts_exactly_the_latest_tokens() {
    let history = [0, 1, 2, 3];
    let penalised = |window| {
        let options = SampleOpts { repetition_penalty: 2.0, repetition_window: window, ..SampleOpts::greedy() };
        // With every token equal the first that is not penalised is chosen.
        let mut chain = SamplerChain::new(&options).unwrap();
        chain.accept_prompt(&history);
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
    let mut stages: [Box<dyn Stage>; 1] = [Box::new(Penalties::new(2.0, 0.0, 0.0, 9))];
    let left = survivors(&[3.0, -3.0, 0.0, 3.0], &mut stages, &[0, 1, 2, 0, 0]);
    let logits: Vec<f32> = left.iter().map(|c| c.logit).collect();
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
    for (id, p) in survivors(&logits, &mut [], &[]).probabilities() {
        let share = seen.iter().filter(|s| **s == id).count() as f64 / n as f64;
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

#[test]
fn out_of_range_settings_of_every_field_are_refused_by_name() {
    let bad = [
        ("dynamic_temp_range", SampleOpts { dynamic_temp_range: -1.0, ..plain() }),
        ("dynamic_temp_exponent", SampleOpts { dynamic_temp_exponent: 0.0, ..plain() }),
        ("typical_p", SampleOpts { typical_p: -0.1, ..plain() }),
        ("top_n_sigma", SampleOpts { top_n_sigma: f32::NAN, ..plain() }),
        ("top_h", SampleOpts { top_h: 1.1, ..plain() }),
        ("epsilon_cutoff", SampleOpts { epsilon_cutoff: 2.0, ..plain() }),
        ("eta_cutoff", SampleOpts { eta_cutoff: -1.0, ..plain() }),
        ("xtc_probability", SampleOpts { xtc_probability: f32::NAN, ..plain() }),
        ("xtc_threshold", SampleOpts { xtc_threshold: 1.5, ..plain() }),
        ("mirostat", SampleOpts { mirostat: 3, ..plain() }),
        ("mirostat_tau", SampleOpts { mirostat_tau: 0.0, ..plain() }),
        ("mirostat_eta", SampleOpts { mirostat_eta: f32::INFINITY, ..plain() }),
        ("adaptive_target", SampleOpts { adaptive_target: f32::NAN, ..plain() }),
        ("adaptive_decay", SampleOpts { adaptive_decay: 1.0, ..plain() }),
        ("frequency_penalty", SampleOpts { frequency_penalty: f32::NAN, ..plain() }),
        ("presence_penalty", SampleOpts { presence_penalty: f32::NEG_INFINITY, ..plain() }),
        ("dry_multiplier", SampleOpts { dry_multiplier: -1.0, ..plain() }),
        ("dry_base", SampleOpts { dry_base: f32::NAN, ..plain() }),
    ];
    for (expected, options) in bad {
        match options.into_chain() {
            Err(SampleError::OutOfRange { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let both = SampleOpts { mirostat: 2, adaptive_target: 0.5, ..plain() };
    assert!(matches!(both.validate(), Err(SampleError::Conflict { .. })));
}

#[test]
fn the_chain_prints_what_runs_in_the_default_order() {
    let all = SampleOpts {
        logit_bias: LogitBias::new([(1, 2.0)]).unwrap(),
        repetition_penalty: 1.1,
        no_repeat_ngram_size: 3,
        dry_multiplier: 0.8,
        dry_sequence_breakers: Vec::new(),
        top_h: 0.5,
        typical_p: 0.9,
        top_n_sigma: 2.0,
        epsilon_cutoff: 0.001,
        eta_cutoff: 0.002,
        xtc_probability: 0.5,
        mirostat: 2,
        ..SampleOpts::default()
    };
    assert_eq!(
        all.into_chain().unwrap().to_string(),
        "logit bias of 1 tokens → penalties(repetition 1.1, window 64) → no repeated 3-gram → \
         dry 0.8 (base 1.75, allowed length 2, whole context) → temperature 0.8 → top-h 0.5 → top-k 40 → typical-p 0.9 → \
         top-p 0.95 → min-p 0.05 → top-n-sigma 2 → epsilon 0.001 → eta 0.002 → xtc 0.5 (threshold 0.1) → \
         mirostat 2 (target 5, rate 0.1) → draw"
    );
    assert_eq!(SampleOpts::greedy().into_chain().unwrap().to_string(), "likeliest");
    let penalised = SampleOpts { presence_penalty: 0.5, ..SampleOpts::greedy() };
    assert_eq!(penalised.into_chain().unwrap().to_string(), "penalties(presence 0.5, window 64) → likeliest");
}

#[test]
fn a_host_chooses_the_order() {
    let order: Result<Vec<StageKind>, _> = ["min-p", "temperature"].into_iter().map(str::parse).collect();
    let options = SampleOpts { temperature: 3.0, min_p: 0.2, top_k: 1, order: order.ok(), ..plain() };
    let mut chain = options.into_chain().unwrap();
    assert_eq!(chain.to_string(), "min-p 0.2 → temperature 3 → draw", "top-k is left out");
    assert_eq!(ids(chain.survivors(&[0.0, -1.0, -2.0, -3.0, -4.0]).unwrap()), [0, 1]);

    let twice = SampleOpts { order: Some(vec![StageKind::TopK, StageKind::TopP, StageKind::TopK]), ..plain() };
    assert_eq!(twice.validate(), Err(SampleError::RepeatedStage { stage: StageKind::TopK }));
    let unknown = "top_q".parse::<StageKind>().unwrap_err();
    assert_eq!(unknown, SampleError::UnknownStage { found: "top_q".to_owned() });
    assert!(unknown.to_string().contains("typical_p"), "{unknown}");
    for kind in StageKind::DEFAULT_ORDER {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
}

#[test]
fn classic_is_what_every_runtime_has_had_from_the_start() {
    let classic = SampleOpts { repetition_penalty: 1.1, top_k: 40, ..SampleOpts::nucleus(0.7, 0.9) };
    assert!(classic.is_classic());
    assert!(SampleOpts::greedy().is_classic(), "what a greedy choice ignores is not on");
    let not = [
        SampleOpts { min_p: 0.05, ..classic.clone() },
        SampleOpts { presence_penalty: 0.1, ..classic.clone() },
        SampleOpts { dynamic_temp_range: 0.1, ..classic.clone() },
        SampleOpts { mirostat: 1, ..classic.clone() },
        SampleOpts { logit_bias: LogitBias::new([(0, 1.0)]).unwrap(), ..classic.clone() },
        SampleOpts { order: Some(vec![StageKind::TopK, StageKind::Temperature]), ..classic },
    ];
    assert!(not.iter().all(|options| !options.is_classic()));
}

/// A stage as a third party would write it: forbids odd tokens.
#[derive(Debug)]
struct Even;

impl Stage for Even {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        candidates.retain(1, |c| c.id % 2 == 0);
    }
}

impl std::fmt::Display for Even {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("even")
    }
}

#[test]
fn a_third_party_adds_a_stage() {
    let mut chain = SampleOpts { top_k: 2, ..plain() }.into_chain().unwrap();
    chain.insert_stage(0, Box::new(Even));
    assert_eq!(chain.to_string(), "even → top-k 2 → draw");
    assert_eq!(ids(chain.survivors(&[1.0, 9.0, 2.0, 8.0, 3.0]).unwrap()), [2, 4]);
    let mut behind = SampleOpts::greedy().into_chain().unwrap();
    behind.push_stage(Box::new(Even));
    assert_eq!(behind.to_string(), "even → likeliest");
    assert_eq!(behind.sample(&[1.0, 9.0, 2.0]), Ok(2), "greedy choices run it too");
}

#[test]
fn a_chain_can_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<SamplerChain>();
}

#[test]
fn presence_and_frequency_are_not_the_repetition_penalty() {
    let mut stages: [Box<dyn Stage>; 1] = [Box::new(Penalties::new(1.0, 0.5, 1.0, 64))];
    let left = survivors(&[4.0, 4.0], &mut stages, &[1, 1, 1]);
    assert_eq!(left.logit(1), Some(4.0 - 3.0 * 0.5 - 1.0));
    assert_eq!(left.logit(0), Some(4.0));
}

#[test]
fn penalties_count_from_step_to_step_what_they_would_count_at_once() {
    let history: Vec<u32> = (0..200).map(|i| (i * i % 7) as u32).collect();
    for window in [0, 1, 3, 50, usize::MAX] {
        let mut kept = Penalties::new(1.5, 0.25, 0.5, window);
        // Steps of uneven length: several tokens at once are what a prompt is.
        for end in [0, 1, 2, 5, 60, 61, 62, 200] {
            let apply = |stage: &mut Penalties| {
                let mut left = Candidates::from_logits(&[1.0; 8]);
                stage.apply(&mut left, &mut Step::new(&history[..end], &mut StepRng::new(1)));
                left.iter().collect::<Vec<_>>()
            };
            let fresh = apply(&mut Penalties::new(1.5, 0.25, 0.5, window));
            assert_eq!(apply(&mut kept), fresh, "window {window} at {end}");
        }
    }
}

#[test]
fn dry_spares_what_a_breaker_ends() {
    let history = [0, 1, 2, 3, 0, 1, 2];
    let penalty = |breakers: &[&[u32]]| {
        let breakers = SequenceBreakers::from_tokens(breakers.iter().copied());
        let mut stages: [Box<dyn Stage>; 1] = [Box::new(Dry::new(0.8, 1.75, 2, 64, breakers))];
        -survivors(&[0.0; 5], &mut stages, &history).logit(3).unwrap()
    };
    assert_eq!(penalty(&[]), 0.8 * 1.75);
    assert_eq!(penalty(&[&[2]]), 0.0);
    assert_eq!(penalty(&[&[3]]), 0.0);
    assert_eq!(penalty(&[&[3, 0]]), 0.8);
}

#[test]
fn breakers_are_texts_that_only_a_tokenizer_can_read() {
    let dry = SampleOpts { dry_multiplier: 0.8, ..plain() };
    assert_eq!(dry.clone().into_chain().unwrap_err(), SampleError::NeedsTokenizer);
    assert!(SampleOpts { dry_sequence_breakers: Vec::new(), ..dry }.into_chain().is_ok());
    assert!(SampleOpts { dry_multiplier: 0.0, ..plain() }.into_chain().is_ok(), "off needs none");
}

#[test]
fn breakers_that_many_tokens_begin_are_found_in_time() {
    let letters = ('a'..='z').map(String::from);
    let words = (0..20_000).map(|i| format!("{i}e"));
    let tokens: Vec<String> = ["<unk>".to_owned()].into_iter().chain(letters).chain(words).collect();
    let vocabulary = kinfolk_text::GgufVocabulary {
        kind: "llama".to_owned(),
        types: Some([vec![2], vec![1; tokens.len() - 1]].concat()),
        scores: Some((0..tokens.len()).map(|i| -(i as f32)).collect()),
        unknown: Some(0),
        add_space_prefix: Some(false),
        tokens,
        ..Default::default()
    };
    let tokenizer = vocabulary.build().unwrap();
    let texts: Vec<String> =
        (0..64u8).map(|i| format!("e{}", char::from(b'a' + i % 26).to_string().repeat(30))).collect();
    let start = std::time::Instant::now();
    let breakers = SequenceBreakers::from_texts(&texts, &tokenizer).unwrap();
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    let run: Vec<u32> =
        [tokenizer.id_of("7e").unwrap()].into_iter().chain([tokenizer.id_of("b").unwrap(); 20]).collect();
    let spared = |breakers: &SequenceBreakers| {
        let dry = Dry::new(1.0, 2.0, 1, usize::MAX, breakers.clone());
        let history = [&run[..], &run[..]].concat();
        let candidates = survivors(&vec![0.0; tokenizer.vocab_size()], &mut [Box::new(dry)], &history);
        candidates.iter().all(|c| c.logit == 0.0)
    };
    assert!(spared(&breakers) && !spared(&SequenceBreakers::default()));
}

#[test]
fn no_repeat_ngram_may_forbid_everything_which_is_an_error() {
    let mut chain = SamplerChain::from_stages(vec![Box::new(NoRepeatNgram { n: 1 })], 1);
    chain.accept_prompt(&[0, 1]);
    assert_eq!(chain.sample(&[0.0, 1.0, 2.0]), Ok(2));
    chain.accept(2).unwrap();
    let by = "no repeated 1-gram".to_owned();
    assert_eq!(chain.sample(&[0.0, 1.0, 2.0]), Err(SampleError::NothingLeft { by }));
}

#[test]
fn xtc_takes_either_of_two_ways_as_often_as_asked() {
    let logits = [2.0, 1.9, 1.8, -3.0];
    let mut chain = SamplerChain::from_stages(vec![Box::new(Xtc { probability: 0.3, threshold: 0.1, min_keep: 1 })], 7);
    let mut fired = 0;
    for _ in 0..5000 {
        match ids(chain.survivors(&logits).unwrap())[..] {
            [2, 3] => fired += 1,
            [0, 1, 2, 3] => {}
            ref other => panic!("{other:?}"),
        }
    }
    let share = f64::from(fired) / 5000.0;
    // Five standard deviations.
    assert!((share - 0.3).abs() < 5.0 * (0.3f64 * 0.7 / 5000.0).sqrt(), "{share}");
}

#[test]
fn mirostat_keeps_all_of_a_flat_distribution_however_large_the_vocabulary() {
    let options = SampleOpts { mirostat: 1, ..plain() };
    for n in [4, 1024, 1026, 150_000] {
        let mut chain = options.clone().into_chain().unwrap();
        assert_eq!(chain.survivors(&vec![1.0; n]).unwrap().len(), n);
    }
}

#[test]
fn mirostat_brings_the_surprise_to_its_target() {
    let logits: Vec<f32> =
        (0..500).map(|i| -(i as f32).ln() * 1.1).map(|l| if l.is_finite() { l } else { 0.5 }).collect();
    for mirostat in [1, 2] {
        let options = SampleOpts { mirostat, mirostat_tau: 3.0, ..plain() };
        let mut chain = options.into_chain().unwrap();
        let mut surprise = Vec::new();
        for _ in 0..2000 {
            let token = chain.sample(&logits).unwrap();
            let left = chain.survivors(&logits).unwrap().probabilities();
            surprise.push(-left.iter().find(|(id, _)| *id == token).unwrap().1.log2());
            chain.accept(token).unwrap();
        }
        let late = &surprise[500..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((mean - 3.0).abs() < 0.3, "mirostat {mirostat}: {mean}");
    }
}

#[test]
fn a_logit_bias_is_read_in_both_forms() {
    let object = LogitBias::from_json(&json!({"3": -100, "1": 2.5})).unwrap();
    assert_eq!(object.iter().collect::<Vec<_>>(), [(1, 2.5), (3, -100.0)]);
    let pairs = LogitBias::from_json(&json!([[1, 2], [3, -100], [1, 0.5]])).unwrap();
    assert_eq!(pairs, object, "biases of one token are summed");
    assert!(LogitBias::from_json(&json!(null)).unwrap().is_empty());
    let bad = [
        json!({"x": 1}),
        json!({"-1": 1}),
        json!({"1.5": 1}),
        json!({"4294967296": 1}),
        json!({"1": "a lot"}),
        json!({"1": null}),
        json!({"1": 1e300}),
        json!([1, 2]),
        json!([[1]]),
        json!([["x", 1]]),
        json!("none"),
        json!(7),
    ];
    for value in bad {
        let error = LogitBias::from_json(&value).expect_err(&value.to_string());
        assert!(matches!(error, SampleError::Bias { .. }), "{value}: {error}");
    }
    assert!(LogitBias::new([(0, f32::NAN)]).is_err());
    assert!(LogitBias::new([(0, f32::INFINITY)]).is_err());
    assert!(LogitBias::new([(0, f32::NEG_INFINITY)]).is_ok());
}

#[test]
fn a_logit_bias_moves_bans_and_knows_the_vocabulary() {
    let with = |biases: &[(u32, f32)]| SampleOpts {
        logit_bias: LogitBias::new(biases.iter().copied()).unwrap(),
        ..SampleOpts::greedy()
    };
    let logits = [1.0, 3.0, 2.0];
    assert_eq!(draw(&with(&[(0, 2.5)]), &logits, 1), [0]);
    assert_eq!(draw(&with(&[(1, f32::NEG_INFINITY)]), &logits, 1), [2]);
    let all = with(&[0, 1, 2].map(|id| (id, f32::NEG_INFINITY))).into_chain().unwrap().sample(&logits);
    assert_eq!(all, Err(SampleError::NothingLeft { by: "logit bias of 3 tokens".to_owned() }));
    let mut outside = with(&[(3, 1.0)]).into_chain().unwrap();
    let error = Err(SampleError::OutsideVocabulary { what: "logit bias", found: 3, vocab_size: 3 });
    assert_eq!(outside.check_vocab(3), error);
    assert_eq!(outside.sample(&logits).map(|_| ()), error);
    assert_eq!(outside.check_vocab(4), Ok(()));
}

#[test]
fn log_probabilities_are_those_of_the_raw_distribution() {
    let logits = [0.0f32, 2.0, f32::NAN, 1.0, f32::NEG_INFINITY, f32::INFINITY];
    let total: f64 = [0.0f64, 2.0, 1.0].iter().map(|l| l.exp()).sum();
    let expected = |logit: f64| (logit - total.ln()) as f32;
    let found = log_probabilities(&logits, 3, 2);
    assert!((found.logprob - expected(1.0)).abs() < 1e-6);
    assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(found.top[1].1, found.logprob);
    assert_eq!(log_probabilities(&logits, 3, 0).top, [], "no alternatives, and the token's own is there");
    assert_eq!(log_probabilities(&logits, 0, usize::MAX).top.len(), 3);
    for token in [2, 4, 5, 6, u32::MAX] {
        assert_eq!(log_probabilities(&logits, token, 1).logprob, f32::NEG_INFINITY);
    }
    let other = log_probabilities(&[5.0, 0.0, 0.0, 0.0], 0, 1);
    assert_ne!(other.top, log_probabilities(&logits, 0, 1).top, "the list follows the position");
    for none in [&[][..], &[f32::NAN; 3], &[f32::NEG_INFINITY; 3]] {
        let found = log_probabilities(none, 0, 5);
        assert_eq!((found.logprob, found.top), (f32::NEG_INFINITY, Vec::new()));
    }
    for large in [1000.0, -1000.0, f32::MAX, f32::MIN] {
        assert!((log_probabilities(&[large; 5], 0, 0).logprob - 0.2f32.ln()).abs() < 1e-6, "{large}");
    }
}

/// Allows the tokens of a list, one per step, then is complete.
#[derive(Debug)]
struct Script(Vec<u32>);

impl Constraint for Script {
    fn allow(&mut self, allowed: &mut TokenMask) -> Result<(), ConstraintError> {
        let first = self.0.first().ok_or_else(|| ConstraintError { reason: "nothing follows".to_owned() })?;
        allowed.insert(*first);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        if self.0.first() != Some(&token) {
            return Err(ConstraintError { reason: format!("{token} is not next") });
        }
        self.0.remove(0);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.0.is_empty()
    }
}

#[test]
fn a_constraint_decides_before_any_stage() {
    for options in [SampleOpts::greedy(), SampleOpts { top_k: 1, ..plain() }] {
        let mut chain = options.into_chain().unwrap();
        assert!(!chain.is_complete(), "without a constraint a reply is never complete");
        chain.set_constraint(Box::new(Script(vec![2, 40, 0])));
        let logits: Vec<f32> = (0..41).map(|i| (i % 5) as f32).collect();
        for expected in [2, 40, 0] {
            assert!(!chain.is_complete());
            assert_eq!(chain.sample(&logits), Ok(expected));
            chain.accept(expected).unwrap();
        }
        assert!(chain.is_complete());
        assert!(matches!(chain.sample(&logits), Err(SampleError::Constraint { .. })));
        assert!(chain.to_string().starts_with("constraint → "));
    }
    let mut chain = plain().into_chain().unwrap();
    chain.set_constraint(Box::new(Script(vec![7])));
    let by = "the constraint".to_owned();
    assert_eq!(chain.sample(&[0.0; 5]), Err(SampleError::NothingLeft { by }), "the token is not in the vocabulary");
    assert!(matches!(chain.accept(3), Err(SampleError::Constraint { .. })));
}

/// Allows the same tokens at every step.
#[derive(Debug)]
struct Among(&'static [u32]);

impl Constraint for Among {
    fn allow(&mut self, allowed: &mut TokenMask) -> Result<(), ConstraintError> {
        self.0.iter().for_each(|token| allowed.insert(*token));
        Ok(())
    }

    fn accept(&mut self, _token: u32) -> Result<(), ConstraintError> {
        Ok(())
    }

    fn is_complete(&self) -> bool {
        false
    }
}

#[test]
fn the_lowest_id_of_equals_is_the_greedy_choice_under_a_constraint_too() {
    let bias = LogitBias::new([(7, -1.0)]).unwrap();
    let mut chain = SampleOpts { logit_bias: bias, ..SampleOpts::greedy() }.into_chain().unwrap();
    let logits = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0];
    assert_eq!(chain.sample(&logits), Ok(3));
    chain.set_constraint(Box::new(Among(&[3, 7])));
    assert_eq!(chain.sample(&logits), Ok(3));
}

#[test]
fn a_mask_holds_what_was_put_in() {
    let mut mask = TokenMask::new(70);
    [0, 31, 32, 69, 70, u32::MAX].into_iter().for_each(|token| mask.insert(token));
    assert_eq!((0..200).filter(|token| mask.contains(*token)).collect::<Vec<_>>(), [0, 31, 32, 69]);
    let mut wide = TokenMask::new(33);
    wide.insert_words(&[u32::MAX; 4]);
    assert_eq!((0..200).filter(|token| wide.contains(*token)).count(), 33);
}

fn options() -> impl Strategy<Value = SampleOpts> {
    let positive = || prop_oneof![0.01f32..5.0, (1u32..0x7f80_0000).prop_map(f32::from_bits)];
    let temperature = prop_oneof![1 => Just(0.0f32), 3 => positive()];
    let penalty = || prop_oneof![Just(1.0f32), positive()];
    let number =
        || prop_oneof![2 => Just(0.0f32), 1 => -5.0f32..5.0, 1 => positive(), 1 => positive().prop_map(|x| -x)];
    let fraction = || prop_oneof![Just(0.0f32), Just(1.0f32), 0.0f32..=1.0];
    let off_or = || prop_oneof![2 => Just(0.0f32), 1 => 0.0f32..=1.0];
    let count = || prop_oneof![0usize..10, Just(usize::MAX)];
    let cuts = (count(), fraction(), fraction(), fraction(), number(), off_or(), off_or(), off_or());
    let random = (off_or(), fraction(), 0u8..3, positive(), positive());
    let adaptive = (prop_oneof![2 => Just(-1.0f32), 1 => 0.0f32..=1.0], 0.0f32..0.99);
    let back = (penalty(), number(), number(), count(), 0usize..4);
    let dry = (off_or(), 0.5f32..3.0, count(), count());
    let dynamic = (off_or(), positive());
    let bias = prop::collection::vec((0u32..4, prop_oneof![number(), Just(f32::NEG_INFINITY)]), 0..3);
    let order = prop::option::of(Just(StageKind::DEFAULT_ORDER.to_vec()).prop_shuffle());
    let rest = (bias, count(), order, any::<u64>());
    (temperature, dynamic, cuts, random, adaptive, back, dry, rest).prop_map(
        |(temperature, dynamic, cuts, random, adaptive, back, dry, rest)| {
            let (top_k, top_p, min_p, typical_p, top_n_sigma, top_h, epsilon_cutoff, eta_cutoff) = cuts;
            let (xtc_probability, xtc_threshold, mirostat, mirostat_tau, mirostat_eta) = random;
            let (repetition_penalty, frequency_penalty, presence_penalty, repetition_window, no_repeat_ngram_size) =
                back;
            let (dry_multiplier, dry_base, dry_allowed_length, dry_window) = dry;
            let (bias, min_keep, order, seed) = rest;
            SampleOpts {
                temperature,
                dynamic_temp_range: dynamic.0,
                dynamic_temp_exponent: dynamic.1,
                top_k,
                top_p,
                min_p,
                typical_p,
                top_n_sigma,
                top_h,
                epsilon_cutoff,
                eta_cutoff,
                xtc_probability,
                xtc_threshold,
                mirostat: if adaptive.0 < 0.0 { mirostat } else { 0 },
                mirostat_tau,
                mirostat_eta,
                adaptive_target: adaptive.0,
                adaptive_decay: adaptive.1,
                repetition_penalty,
                frequency_penalty,
                presence_penalty,
                repetition_window,
                no_repeat_ngram_size,
                dry_multiplier,
                dry_base,
                dry_allowed_length,
                dry_window,
                dry_sequence_breakers: Vec::new(),
                logit_bias: LogitBias::new(bias).unwrap(),
                min_keep,
                order,
                seed: Some(seed),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_chosen_is_a_finite_logit_of_the_vocabulary(
        logits in prop::collection::vec(logit(), 0..40),
        options in options(),
        history in prop::collection::vec(0u32..64, 0..20),
    ) {
        let mut chain = options.into_chain().unwrap();
        chain.accept_prompt(&history);
        for _ in 0..3 {
            match chain.sample(&logits) {
                Ok(id) => {
                    prop_assert!(logits.get(id as usize).is_some_and(|l| l.is_finite()));
                    chain.accept(id).unwrap();
                }
                Err(SampleError::NoFiniteLogit { .. }) => prop_assert!(logits.iter().all(|l| !l.is_finite())),
                Err(SampleError::OutsideVocabulary { found, .. }) => prop_assert!(found as usize >= logits.len()),
                // Only what forbids tokens outright leaves none.
                Err(SampleError::NothingLeft { by }) => {
                    prop_assert!(by.starts_with("logit bias") || by.starts_with("no repeated"), "{by}");
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }

    #[test]
    fn stages_leave_probabilities_that_sum_to_one(
        logits in prop::collection::vec(logit(), 4..40),
        options in options(),
    ) {
        let mut chain = options.into_chain().unwrap();
        if let Ok(left) = chain.survivors(&logits) {
            let probabilities = left.probabilities();
            prop_assert_eq!(probabilities.len(), left.len());
            let sum: f64 = probabilities.iter().map(|(_, p)| p).sum();
            // Weights are f32.
            prop_assert!((sum - 1.0).abs() < 1e-6, "{sum}");
            prop_assert!(left.iter().all(|c| c.logit.is_finite()));
        }
    }

    #[test]
    fn truncation_leaves_at_least_min_keep(
        logits in prop::collection::vec(-20.0f32..20.0, 10..40),
        options in options(),
        min_keep in 0usize..10,
    ) {
        let truncating = SampleOpts {
            min_keep,
            // A temperature of 0, reached by a dynamic one, leaves one on purpose.
            dynamic_temp_range: 0.0,
            temperature: options.temperature.max(0.1),
            no_repeat_ngram_size: 0,
            logit_bias: LogitBias::default(),
            ..options
        };
        let mut chain = truncating.into_chain().unwrap();
        let order = chain.to_string();
        prop_assert!(chain.survivors(&logits).unwrap().len() >= min_keep.max(1), "{order}");
    }

    #[test]
    fn one_seed_gives_one_reply(
        logits in prop::collection::vec(-5.0f32..5.0, 10..40),
        options in options(),
    ) {
        let reply = || {
            let mut chain = options.clone().into_chain().unwrap();
            let mut tokens = Vec::new();
            while let (0..8, Ok(token)) = (tokens.len(), chain.sample(&logits)) {
                chain.accept(token).unwrap();
                tokens.push(token);
            }
            tokens
        };
        prop_assert_eq!(reply(), reply());
    }

    #[test]
    fn top_k_and_min_p_may_change_places_with_each_other_and_top_k_with_temperature(
        logits in prop::collection::vec(-5.0f32..5.0, 1..40),
        k in 1usize..20,
        p in 0.0f32..1.0,
        temperature in 0.1f32..3.0,
    ) {
        let top_k = || -> Box<dyn Stage> { Box::new(TopK { k, min_keep: 1 }) };
        let min_p = || -> Box<dyn Stage> { Box::new(MinP { p, min_keep: 1 }) };
        let heat = || -> Box<dyn Stage> { Box::new(Temperature { temperature }) };
        let left = |mut stages: [Box<dyn Stage>; 2]| ids(&survivors(&logits, &mut stages, &[]));
        prop_assert_eq!(left([top_k(), min_p()]), left([min_p(), top_k()]));
        prop_assert_eq!(left([top_k(), heat()]), left([heat(), top_k()]));
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_large_vocabulary_is_cut_as_its_definition_says(
        seed in any::<u32>(),
        sharpness in 0.1f32..6.0,
        p in 0.0f32..1.0,
    ) {
        // Enough that few are not all of them, and with equals.
        let logits: Vec<f32> = (0..6000u32)
            .map(|i| ((i.wrapping_mul(2654435761).wrapping_add(seed) >> 16) % 997) as f32 / 997.0 * sharpness)
            .collect();
        let mut order: Vec<u32> = (0..6000).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let mut mass = 0.0;
        let n = 1 + order.iter().take_while(|id| {
            mass += f64::from(logits[**id as usize]).exp() / total;
            mass < f64::from(p)
        }).count();
        let left = survivors(&logits, &mut [Box::new(TopP { p, min_keep: 1 })], &[]);
        // The share is a sum of numbers rounded to f32.
        prop_assert!(left.len().abs_diff(n) <= 1, "expected {}, found {}", n, left.len());
        let mut expected = order[..left.len()].to_vec();
        expected.sort_unstable();
        prop_assert_eq!(ids(&left), expected);
        let typical = survivors(&logits, &mut [Box::new(TypicalP { p, min_keep: 1 })], &[]);
        prop_assert!(typical.len() <= 6000 && !typical.is_empty());
    }
}
