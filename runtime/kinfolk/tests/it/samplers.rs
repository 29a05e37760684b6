//! Every sampling stage against other implementations' numbers: the cases of `shared/textref/samplers`, and some of them that are
//! kept in the repository.
#![expect(clippy::print_stderr, reason = "a case that did not run is to be seen in the output")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kinfolk::{
    decoder::Source,
    sampling::{
        Candidates, SampleError, SampleOpts, SamplerChain, Stage, StageKind, Step, StepRng,
        stages::{
            AdaptiveP, Dry, DynamicTemperature, Epsilon, Eta, LogitBias, MinP, Mirostat, MirostatV2, NoRepeatNgram,
            Penalties, SequenceBreakers, Temperature, TopH, TopK, TopNSigma, TopP, TypicalP, Xtc,
        },
    },
    text::Tokenizer,
};
use serde_json::Value;

/// Files and how many cases each is known to have.
const FILES: [(&str, usize); 24] = [
    ("adaptive_p", 11),
    ("chains", 51),
    ("dist", 24),
    ("dry", 23),
    ("dry_text", 24),
    ("epsilon", 21),
    ("eta", 21),
    ("greedy", 13),
    ("logit_bias", 7),
    ("min_p", 47),
    ("mirostat", 18),
    ("mirostat_v2", 18),
    ("no_repeat_ngram", 15),
    ("penalties", 42),
    ("repetition_penalty", 7),
    ("temp", 41),
    ("temp_ext", 25),
    ("top_h", 15),
    ("top_k", 65),
    ("top_n_sigma", 37),
    ("top_p", 54),
    ("transformers_order", 13),
    ("typical", 38),
    ("xtc", 45),
];

#[test]
fn stages_equal_other_implementations_on_the_cases_in_the_repository() {
    let n = check_file(include_str!("../data/samplers.json"), None);
    assert!(n >= 200, "expected at least 200 cases, found {n}");
}

#[test]
fn stages_equal_other_implementations_on_every_shared_case() {
    let Some(textref) = shared("textref") else { return };
    let gpt_2 = Source::open(textref.join("tokenizers/public/ggml-vocab-gpt-2.gguf")).unwrap();
    let gpt_2 = Tokenizer::from_source(&gpt_2).unwrap();
    let folder = textref.join("samplers/public");
    for (name, least) in FILES {
        let n = check_file(&fs::read_to_string(folder.join(format!("{name}.json"))).unwrap(), Some(&gpt_2));
        assert!(n >= least, "{name}: expected at least {least} cases, found {n}");
    }
    let files = fs::read_dir(folder).unwrap().count();
    assert_eq!(files, FILES.len(), "a file of cases is not in the table above");
}

#[test]
fn an_order_of_stages_equals_other_implementations_in_theirs() {
    let Some(textref) = shared("textref") else { return };
    for (name, least) in [("chains", 49), ("transformers_order", 13)] {
        let path = textref.join(format!("samplers/public/{name}.json"));
        let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let mut n = 0;
        for case in file["cases"].as_array().unwrap() {
            let Some(options) = options(case) else { continue };
            n += 1;
            let mut chain = options.into_chain().unwrap();
            compare_survivors(case, &logits(&file, case), chain.survivors_after(case, &file)).unwrap();
        }
        assert!(n >= least, "{name}: expected at least {least} chains that options can ask for, found {n}");
    }
}

/// The folder `shared/NAME` beside the checkout; `None` where there is none, which is allowed only off CI.
fn shared(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared").join(name));
    let found = beside.into_iter().find(|dir| dir.is_dir());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "`shared/{name}` must be beside the repository on CI");
        eprintln!("NOT RUN: shared sampler vectors: `shared/{name}` is not on this machine");
    }
    found
}

/// Checks every case of a file and returns how many there were.
#[track_caller]
fn check_file(text: &str, gpt_2: Option<&Tokenizer>) -> usize {
    let file: Value = serde_json::from_str(text).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case["id"], check_case(&file, case, gpt_2).err()?)))
        .collect();
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
    cases.len()
}

fn check_case(file: &Value, case: &Value, gpt_2: Option<&Tokenizer>) -> Result<(), String> {
    let first = &case["stages"][0];
    match first["op"].as_str().unwrap() {
        "mirostat" => {
            let considered = count(&first["m"]);
            let make = || Mirostat::new(float(first, "tau"), float(first, "eta"), considered, 1);
            check_mirostat(case, &logits(file, case), make, Mirostat::mu)
        }
        "mirostat_v2" => {
            let make = || MirostatV2::new(float(first, "tau"), float(first, "eta"), 1);
            check_mirostat(case, &logits(file, case), make, MirostatV2::mu)
        }
        "adaptive_p" => check_adaptive_p(case, &logits(file, case)),
        "dist" => check_draws(case, &logits(file, case)),
        "dry" if case.get("text").is_some() => check_dry_text(case, gpt_2.ok_or("no vocabulary of GPT-2")?),
        "greedy" => check_greedy(case, &logits(file, case)),
        _ => {
            check_bias_outside_vocabulary(case, &logits(file, case));
            let mut chain = SamplerChain::from_stages(case_stages(case, logits(file, case).len())?, 1);
            compare_survivors(case, &logits(file, case), chain.survivors_after(case, file))
        }
    }
}

/// Runs a chain for a case.
trait SurvivorsAfter {
    fn survivors_after(&mut self, case: &Value, file: &Value) -> Candidates;
}

impl SurvivorsAfter for SamplerChain {
    fn survivors_after(&mut self, case: &Value, file: &Value) -> Candidates {
        self.accept_prompt(&history(case));
        match self.survivors(&logits(file, case)) {
            Ok(left) => left.clone(),
            Err(SampleError::NothingLeft { .. }) => Candidates::default(),
            Err(error) => panic!("{}: {error}", case["id"]),
        }
    }
}

/// llama.cpp ignores biases of tokens that do not exist; here they are an error.
fn check_bias_outside_vocabulary(case: &Value, logits: &[f32]) {
    for stage in case["stages"].as_array().unwrap().iter().filter(|stage| stage["op"] == "logit_bias") {
        let is_outside = |id: &u32| *id as usize >= logits.len();
        let expected = stage["bias"].as_array().unwrap().iter().map(|pair| count(&pair[0]) as u32).find(is_outside);
        let mut chain = SamplerChain::from_stages(vec![Box::new(logit_bias(stage, usize::MAX))], 1);
        match chain.check_vocab(logits.len()) {
            Err(SampleError::OutsideVocabulary { found, .. }) => assert_eq!(Some(found), expected),
            other => assert_eq!((other, expected), (Ok(()), None)),
        }
    }
}

fn case_stages(case: &Value, vocab_size: usize) -> Result<Vec<Box<dyn Stage>>, String> {
    case["stages"].as_array().unwrap().iter().map(|stage| make_stage(stage, case, vocab_size)).collect()
}

fn make_stage(stage: &Value, case: &Value, vocab_size: usize) -> Result<Box<dyn Stage>, String> {
    let f = |key| float(stage, key);
    let min_keep = stage.get("min_keep").map_or(1, count).max(1);
    Ok(match stage["op"].as_str().unwrap() {
        "penalties" => Box::new(Penalties::new(f("repeat"), f("freq"), f("present"), count(&stage["last_n"]))),
        "repetition_penalty" => Box::new(Penalties::new(f("penalty"), 0.0, 0.0, usize::MAX)),
        "no_repeat_ngram" => Box::new(NoRepeatNgram { n: count(&stage["n"]) }),
        "dry" => {
            let breakers: Vec<Vec<u32>> = stage["breakers"].as_array().unwrap().iter().map(ids).collect();
            let breakers = SequenceBreakers::from_tokens(breakers.iter().map(Vec::as_slice));
            Box::new(dry(stage, breakers))
        }
        "logit_bias" => Box::new(logit_bias(stage, vocab_size)),
        // 0 and below leave the likeliest token.
        "temp" => Box::new(Temperature { temperature: f("t").max(0.0) }),
        "temp_ext" => {
            let (temperature, range) = (f("t"), f("delta"));
            Box::new(DynamicTemperature { temperature, range, exponent: f("exponent") })
        }
        // 0 and below are off.
        "top_k" if count(&stage["k"]) == 0 => Box::new(TopK { k: usize::MAX, min_keep }),
        "top_k" => Box::new(TopK { k: count(&stage["k"]), min_keep }),
        "top_p" => Box::new(TopP { p: f("p"), min_keep }),
        "min_p" => Box::new(MinP { p: f("p"), min_keep }),
        "typical" => Box::new(TypicalP { p: f("p"), min_keep }),
        "top_n_sigma" => Box::new(TopNSigma { n: f("n"), min_keep }),
        "top_h" => Box::new(TopH { h: f("h"), min_keep }),
        "epsilon" => Box::new(Epsilon { epsilon: f("epsilon"), min_keep }),
        "eta" => Box::new(Eta { epsilon: f("epsilon"), min_keep }),
        "xtc" => {
            // Which way the draw went is llama.cpp's generator's business; what follows from it is not.
            let probability = match case.get("fired").and_then(Value::as_bool) {
                Some(fired) => f32::from(fired),
                None => f("probability"),
            };
            Box::new(Xtc { probability, threshold: f("threshold"), min_keep })
        }
        other => return Err(format!("no stage for `{other}`")),
    })
}

/// Biases of the tokens that exist.
fn logit_bias(stage: &Value, vocab_size: usize) -> LogitBias {
    let pairs = stage["bias"].as_array().unwrap().iter();
    let pairs = pairs.map(|pair| (count(&pair[0]) as u32, number(&pair[1]) as f32));
    LogitBias::new(pairs.filter(|(id, _)| (*id as usize) < vocab_size)).unwrap()
}

fn dry(stage: &Value, breakers: SequenceBreakers) -> Dry {
    let (allowed_length, window) = (count(&stage["allowed_length"]), count(&stage["last_n"]));
    Dry::new(float(stage, "multiplier"), float(stage, "base"), allowed_length, window, breakers)
}

/// The options that ask for the chain of a case; `None` if none do: greedy choices run no truncation.
fn options(case: &Value) -> Option<SampleOpts> {
    let off = SampleOpts { dry_sequence_breakers: Vec::new(), ..SampleOpts::nucleus(1.0, 1.0) };
    let mut options = SampleOpts { seed: Some(1), ..off };
    let mut order = Vec::new();
    for (i, stage) in case["stages"].as_array()?.iter().enumerate() {
        let f = |key| float(stage, key);
        let o = &mut options;
        let kind = match stage["op"].as_str()? {
            "logit_bias" if i == 0 => {
                o.logit_bias = logit_bias(stage, usize::MAX);
                continue;
            }
            "penalties" => {
                (o.repetition_penalty, o.frequency_penalty) = (f("repeat"), f("freq"));
                (o.presence_penalty, o.repetition_window) = (f("present"), count(&stage["last_n"]));
                StageKind::Penalties
            }
            "repetition_penalty" => {
                (o.repetition_penalty, o.repetition_window) = (f("penalty"), usize::MAX);
                StageKind::Penalties
            }
            "no_repeat_ngram" => {
                o.no_repeat_ngram_size = count(&stage["n"]);
                StageKind::NoRepeatNgram
            }
            "dry" if stage["breakers"] == Value::Array(Vec::new()) => {
                (o.dry_multiplier, o.dry_base) = (f("multiplier"), f("base"));
                (o.dry_allowed_length, o.dry_window) = (count(&stage["allowed_length"]), count(&stage["last_n"]));
                StageKind::Dry
            }
            "temp" if f("t") > 0.0 => {
                o.temperature = f("t");
                StageKind::Temperature
            }
            "temp_ext" => {
                (o.temperature, o.dynamic_temp_range, o.dynamic_temp_exponent) = (f("t"), f("delta"), f("exponent"));
                StageKind::Temperature
            }
            "top_k" => {
                o.top_k = count(&stage["k"]);
                StageKind::TopK
            }
            "top_p" => {
                o.top_p = f("p");
                StageKind::TopP
            }
            "min_p" => {
                o.min_p = f("p");
                StageKind::MinP
            }
            "typical" => {
                o.typical_p = f("p");
                StageKind::TypicalP
            }
            "top_n_sigma" => {
                o.top_n_sigma = f("n");
                StageKind::TopNSigma
            }
            "epsilon" => {
                o.epsilon_cutoff = f("epsilon");
                StageKind::Epsilon
            }
            "xtc" => {
                (o.xtc_probability, o.xtc_threshold) = (f("probability"), f("threshold"));
                StageKind::Xtc
            }
            _ => return None,
        };
        order.push(kind);
    }
    options.order = Some(order);
    Some(options)
}

/// One token of an expected distribution.
#[derive(Clone, Copy, Debug)]
struct Expected {
    id: u32,
    logit: f64,
    probability: f64,
}

/// What should be left, by id. Stages follow llama.cpp where it has them, and transformers for its own.
fn expected(case: &Value, raw: &[f32]) -> Vec<Expected> {
    // llama.cpp computes NaN from a probability of 0 in typical; transformers skips it.
    let follows_transformers = case.get("llama_cpp").is_none() || has_flag(case, "zero_prob_nan");
    let (column, ids_key) = match case.get("transformers") {
        Some(column) if follows_transformers => (column, "kept"),
        _ => (&case["llama_cpp"], "ids"),
    };
    let zipped = ids(&column[ids_key]).into_iter().zip(numbers(&column["logits"])).zip(numbers(&column["probs"]));
    let all = zipped.map(|((id, logit), probability)| Expected { id, logit, probability });
    let mut left: Vec<Expected> = all.filter(|e| e.logit.is_finite()).collect();
    if case["note"].as_str().is_some_and(|note| note.starts_with("same id twice")) {
        // llama.cpp applies the first bias of a token only, once the list is sorted. The sum is what was asked for.
        let pairs = case["stages"].as_array().unwrap().iter().flat_map(|stage| stage["bias"].as_array());
        let biases: Vec<(u32, f64)> = pairs.flatten().map(|pair| (count(&pair[0]) as u32, number(&pair[1]))).collect();
        for e in &mut left {
            let sum: f64 = biases.iter().filter(|(id, _)| *id == e.id).map(|(_, bias)| bias).sum();
            e.logit = f64::from(raw[e.id as usize]) + sum;
        }
        let total: f64 = left.iter().map(|e| e.logit.exp()).sum();
        left.iter_mut().for_each(|e| e.probability = e.logit.exp() / total);
    }
    left.sort_by_key(|e| e.id);
    left
}

fn compare_survivors(case: &Value, raw: &[f32], left: Candidates) -> Result<(), String> {
    let expected = expected(case, raw);
    let logits: BTreeMap<u32, f32> = left.iter().map(|c| (c.id, c.logit)).collect();
    let mut found: Vec<Expected> = left
        .probabilities()
        .into_iter()
        .map(|(id, probability)| Expected { id, logit: logits[&id].into(), probability })
        .collect();
    found.sort_by_key(|e| e.id);
    let fail = |what: &str| Err(format!("{what}: expected {expected:?}, found {found:?}"));
    if has_flag(case, "zero_prob_nan")
        && case.get("transformers").is_none()
        && let Some(differs) = case.get("rederived_differs").and_then(Value::as_str)
    {
        // llama.cpp's survivors are made of NaN here, and the note has the number that its definition gives.
        let n = differs.rsplit(' ').next().and_then(|n| n.parse().ok());
        return if n == Some(found.len()) { Ok(()) } else { fail("number of survivors by definition") };
    }
    // The cut is met within 2e-6, and f32 and f64 may fall on different sides of it: one token more or less.
    if has_flag(case, "fp_sensitive") && found.len().abs_diff(expected.len()) == 1 {
        let (mut more, fewer) = if found.len() > expected.len() {
            (sorted(&found), sorted(&expected))
        } else {
            (sorted(&expected), sorted(&found))
        };
        let extra = (0..fewer.len()).find(|i| !close(more[*i].logit, fewer[*i].logit)).unwrap_or(fewer.len());
        more.remove(extra);
        let agree = more.iter().zip(&fewer).all(|(m, f)| close(m.logit, f.logit));
        return if agree { Ok(()) } else { fail("more than the token at the cut differs") };
    }
    // Which of the equals at the cut stay is open; how many and how likely is not.
    // Top-H has no flags, and torch's `topk` that it cuts with leaves the order of equals open.
    let splits_equals = || {
        let kept = |id: usize| expected.iter().any(|e| e.id as usize == id);
        (0..raw.len()).any(|id| !kept(id) && expected.iter().any(|e| raw[e.id as usize] == raw[id]))
    };
    let is_top_h = case["stages"][0]["op"] == "top_h";
    let by_id = !(has_flag(case, "tie_at_cut") || is_top_h && splits_equals());
    let (f, e) = if by_id { (found.clone(), expected.clone()) } else { (sorted(&found), sorted(&expected)) };
    let tolerance = if case["set"] == "n5_huge" { 1e-4 } else { 1e-5 };
    let agree = f.len() == e.len()
        && f.iter().zip(&e).all(|(f, e)| {
            (f.id == e.id || !by_id) && (f.probability - e.probability).abs() <= tolerance && close(f.logit, e.logit)
        });
    if agree { Ok(()) } else { fail("survivors") }
}

fn sorted(all: &[Expected]) -> Vec<Expected> {
    let mut all = all.to_vec();
    all.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    all
}

/// Equal but for rounding in f32.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * a.abs().max(1.0)
}

fn check_mirostat<S: Stage>(
    case: &Value,
    logits: &[f32],
    make: impl Fn() -> S,
    mu: impl Fn(&S) -> f32,
) -> Result<(), String> {
    let close = |found: f32, expected: &Value, what: &str| match (f64::from(found) - number(expected)).abs() <= 1e-4 {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected}, found {found}")),
    };
    let apply = |stage: &mut S| {
        let mut left = Candidates::from_logits(logits);
        stage.apply(&mut left, &mut Step::new(&[], &mut StepRng::new(1)));
        left
    };
    let probability = |left: &Candidates, id: u32| {
        left.probabilities().into_iter().find(|(i, _)| *i == id).map_or(0.0, |(_, p)| p as f32)
    };
    let mut stage = make();
    for step in case["llama_cpp_steps"].as_array().unwrap() {
        close(mu(&stage), &step["mu_before"], "µ before")?;
        let left = apply(&mut stage);
        if let Some(rederived) = step.get("rederived") {
            // llama.cpp converts a NaN to a number of tokens here; the definition keeps all. Its next steps start elsewhere.
            assert_eq!(left.len(), count(&rederived["kept"]));
            break;
        }
        let kept: Vec<f32> = ids(&step["kept_ids"]).into_iter().map(|id| logits[id as usize]).collect();
        let mut expected = kept.clone();
        let mut found: Vec<f32> = left.iter().map(|c| c.logit).collect();
        expected.sort_by(f32::total_cmp);
        found.sort_by(f32::total_cmp);
        if found != expected {
            return Err(format!("kept logits: expected {expected:?}, found {found:?}"));
        }
        let chosen = count(&step["chosen_id"]) as u32;
        if left.logit(chosen).is_none() {
            // One of several equals at the cut stayed instead: any of them says the same.
            let equal = left.iter().find(|c| c.logit == logits[chosen as usize]).unwrap();
            close(probability(&left, equal.id), &step["chosen_prob"], "probability of an equal")?;
            stage.accept(equal.id);
        } else {
            close(probability(&left, chosen), &step["chosen_prob"], "probability of the choice")?;
            stage.accept(chosen);
        }
        close(mu(&stage), &step["mu_after"], "µ after")?;
    }
    for which in ["first", "last"] {
        let mut stage = make();
        for step in case["forced_choice_recomputed"][which].as_array().unwrap() {
            close(mu(&stage), &step["mu_before"], "forced: µ before")?;
            let left = apply(&mut stage);
            if left.len() != count(&step["kept"]) {
                return Err(format!("forced {which}: expected {} kept, found {}", step["kept"], left.len()));
            }
            let order = left.top(left.len());
            let chosen = if which == "first" { order.first() } else { order.last() }.unwrap().id;
            close(probability(&left, chosen), &step["chosen_prob"], "forced: probability of the choice")?;
            stage.accept(chosen);
            close(mu(&stage), &step["mu_after"], "forced: µ after")?;
        }
    }
    Ok(())
}

fn check_adaptive_p(case: &Value, logits: &[f32]) -> Result<(), String> {
    let settings = &case["stages"][0];
    let mut stage = AdaptiveP::new(float(settings, "target"), float(settings, "decay"));
    for step in case["llama_cpp_steps"].as_array().unwrap() {
        let mut left = Candidates::from_logits(logits);
        stage.apply(&mut left, &mut Step::new(&[], &mut StepRng::new(1)));
        // Only the first steps list logits.
        for (id, expected) in (0..).zip(step.get("logits").map(numbers).unwrap_or_default()) {
            let found = left.logit(id).map_or(f64::NEG_INFINITY, f64::from);
            if (found - expected).abs() > 1e-4 * expected.abs().max(1.0) {
                return Err(format!("logit of {id}: expected {expected}, found {found}"));
            }
        }
        let chosen = count(&step["chosen_id"]) as u32;
        let found = left.probabilities().into_iter().find(|(id, _)| *id == chosen).map_or(0.0, |(_, p)| p);
        if (found - number(&step["chosen_prob"])).abs() > 1e-5 {
            return Err(format!("probability of {chosen}: expected {}, found {found}", step["chosen_prob"]));
        }
        stage.accept(chosen);
    }
    Ok(())
}

/// Probabilities, and what llama.cpp chose with its generator's numbers.
fn check_draws(case: &Value, logits: &[f32]) -> Result<(), String> {
    let mut left = Candidates::from_logits(logits);
    let found: BTreeMap<u32, f64> = left.probabilities().into_iter().collect();
    for (id, expected) in numbers(&case["probs"]).into_iter().enumerate() {
        let found = found.get(&(id as u32)).copied().unwrap_or(0.0);
        if (found - expected).abs() > 1e-5 {
            return Err(format!("probability of {id}: expected {expected}, found {found}"));
        }
    }
    let choices = ids(&case["llama_cpp_choices"]);
    let drawn: Vec<u32> =
        numbers(&case["uniform_draws"]).into_iter().map(|uniform| left.draw(uniform).unwrap().id).collect();
    if drawn == choices { Ok(()) } else { Err(format!("draws: expected {choices:?}, found {drawn:?}")) }
}

fn check_greedy(case: &Value, logits: &[f32]) -> Result<(), String> {
    let found = SampleOpts::greedy().into_chain().unwrap().sample(logits).unwrap();
    let expected = count(&case["llama_cpp"]["selected_id"]) as u32;
    if found == expected { Ok(()) } else { Err(format!("expected {expected}, found {found}")) }
}

fn check_dry_text(case: &Value, gpt_2: &Tokenizer) -> Result<(), String> {
    assert_eq!(case["vocab"], "gpt-2");
    let stage = &case["stages"][0];
    let texts: Vec<String> =
        stage["breaker_strings"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect();
    let mut dry = dry(stage, SequenceBreakers::from_texts(&texts, gpt_2).unwrap());
    let mut left = Candidates::from_logits(&vec![0.0; gpt_2.vocab_size()]);
    dry.apply(&mut left, &mut Step::new(&history(case), &mut StepRng::new(1)));
    let found: BTreeMap<u32, f32> = left.iter().filter(|c| c.logit != 0.0).map(|c| (c.id, -c.logit)).collect();
    let expected: BTreeMap<u32, f32> = case["penalty_by_id"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, penalty)| (id.parse().unwrap(), number(penalty) as f32))
        .collect();
    let agree = found.len() == expected.len()
        && found.iter().zip(&expected).all(|(f, e)| f.0 == e.0 && (f.1 - e.1).abs() <= 1e-5 * e.1);
    if agree { Ok(()) } else { Err(format!("expected {expected:?}, found {found:?}")) }
}

fn logits(file: &Value, case: &Value) -> Vec<f32> {
    numbers(&file["logit_sets"][case["set"].as_str().unwrap()]).into_iter().map(|logit| logit as f32).collect()
}

fn history(case: &Value) -> Vec<u32> {
    case.get("history").map(ids).unwrap_or_default()
}

fn has_flag(case: &Value, flag: &str) -> bool {
    case.get("flags").and_then(Value::as_array).is_some_and(|flags| flags.iter().any(|f| f == flag))
}

/// A number, or the text that JSON has instead of one.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|id| id as u32).collect()
}

fn float(stage: &Value, key: &str) -> f32 {
    number(&stage[key]) as f32
}

fn count(value: &Value) -> usize {
    // Below 0 is off, as 0 is.
    usize::try_from(value.as_i64().unwrap()).unwrap_or(0)
}
