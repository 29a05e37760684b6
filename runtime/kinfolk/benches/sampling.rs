//! What choosing a token costs. `cargo bench -p kinfolk --bench sampling`.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, Throughput};
use kinfolk::sampling::{
    Candidates, LogitBias, SampleOpts, SamplerChain, Stage, log_probabilities,
    stages::{
        AdaptiveP, Dry, DynamicTemperature, Epsilon, Eta, MinP, Mirostat, MirostatV2, NoRepeatNgram, Penalties,
        SequenceBreakers, Temperature, TopH, TopK, TopNSigma, TopP, TypicalP, Xtc,
    },
};

/// A large vocabulary, as those of Qwen and Llama 3.
const VOCAB: usize = 150_000;

fn uniform(i: usize) -> f32 {
    let mixed = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as f32 / (1u64 << 24) as f32
}

/// Logits as a model has them: a bell, and a few tokens that stand out.
fn peaked() -> Vec<f32> {
    let bell = |i: usize| (0..6).map(|j| uniform(i * 6 + j)).sum::<f32>() * 3.0 - 9.0;
    let outstanding = |i: usize| if i % 1499 == 7 { 4.0 + 8.0 * uniform(i) } else { 0.0 };
    (0..VOCAB).map(|i| bell(i) + outstanding(i)).collect()
}

/// Logits that say next to nothing, the worst that a truncation can meet.
fn flat() -> Vec<f32> {
    (0..VOCAB).map(|i| uniform(i) * 0.1).collect()
}

fn history() -> Vec<u32> {
    (0..4096).map(|i| ((i * i) % 811) as u32).collect()
}

type MakeStage = Box<dyn Fn() -> Box<dyn Stage>>;

fn stages() -> Vec<(&'static str, MakeStage)> {
    fn make<S: Stage + Clone + 'static>(stage: S) -> MakeStage {
        Box::new(move || Box::new(stage.clone()))
    }
    let min_keep = 1;
    vec![
        ("logit bias", make(LogitBias::new((0..300).map(|id| (id * 7, -1.0))).expect("finite"))),
        ("penalties, window 64", make(Penalties::new(1.1, 0.1, 0.1, 64))),
        ("penalties, 4096", make(Penalties::new(1.1, 0.1, 0.1, usize::MAX))),
        ("no repeated n-gram, 4096", make(NoRepeatNgram { n: 4 })),
        ("dry, 4096", make(Dry::new(0.8, 1.75, 2, usize::MAX, SequenceBreakers::from_tokens([&[13][..]])))),
        ("temperature", make(Temperature { temperature: 0.8 })),
        ("dynamic temperature", make(DynamicTemperature { temperature: 0.8, range: 0.3, exponent: 1.0 })),
        ("top-h", make(TopH { h: 0.5, min_keep })),
        ("top-k 40", make(TopK { k: 40, min_keep })),
        ("top-k 20000", make(TopK { k: 20_000, min_keep })),
        ("typical-p", make(TypicalP { p: 0.9, min_keep })),
        ("top-p", make(TopP { p: 0.95, min_keep })),
        ("min-p", make(MinP { p: 0.05, min_keep })),
        ("top-n-sigma", make(TopNSigma { n: 2.0, min_keep })),
        ("epsilon", make(Epsilon { epsilon: 3e-4, min_keep })),
        ("eta", make(Eta { epsilon: 3e-4, min_keep })),
        ("xtc", make(Xtc { probability: 1.0, threshold: 0.02, min_keep })),
        ("mirostat", make(Mirostat::new(5.0, 0.1, 100, min_keep))),
        ("mirostat 2", make(MirostatV2::new(5.0, 0.1, min_keep))),
        ("adaptive-p", make(AdaptiveP::new(0.5, 0.9))),
    ]
}

/// Each stage behind filling the candidates, which the first line shows by itself.
fn bench_stages(c: &mut Criterion) {
    for (shape, logits) in [("peaked", peaked()), ("flat", flat())] {
        let mut group = c.benchmark_group(format!("stage/{shape}"));
        group.throughput(Throughput::Elements(VOCAB as u64));
        group.bench_function("candidates alone", |b| b.iter(|| Candidates::from_logits(black_box(&logits)).len()));
        let mut none = SamplerChain::from_stages(Vec::new(), 1);
        group.bench_function("no stage", |b| b.iter(|| none.survivors(black_box(&logits)).map(|left| left.len())));
        for (name, make) in stages() {
            let mut chain = SamplerChain::from_stages(vec![make()], 1);
            chain.accept_prompt(&history());
            group.bench_function(name, |b| b.iter(|| chain.survivors(black_box(&logits)).map(|left| left.len())));
        }
    }
}

fn bench_chains(c: &mut Criterion) {
    let chains = [
        ("greedy", SampleOpts::greedy()),
        ("default", SampleOpts::default()),
        ("top-k 40", SampleOpts { top_k: 40, ..SampleOpts::nucleus(0.8, 1.0) }),
        ("nucleus", SampleOpts::nucleus(0.8, 0.95)),
        ("draw from all", SampleOpts::nucleus(1.0, 1.0)),
        ("penalties and min-p", SampleOpts { repetition_penalty: 1.1, min_p: 0.05, ..SampleOpts::nucleus(0.8, 1.0) }),
    ];
    for (shape, logits) in [("peaked", peaked()), ("flat", flat())] {
        let mut group = c.benchmark_group(format!("chain/{shape}"));
        for (name, options) in &chains {
            let options = SampleOpts { seed: Some(1), ..options.clone() };
            let mut chain = options.into_chain().expect("the options are sound");
            group.bench_function(*name, |b| b.iter(|| chain.sample(black_box(&logits))));
        }
        group.bench_function("log-probabilities, 20 alternatives", |b| {
            b.iter(|| log_probabilities(black_box(&logits), 7, 20).logprob);
        });
    }
}

#[cfg(feature = "grammar")]
mod constrained {
    use criterion::BatchSize;
    use kinfolk::{
        sampling::{Grammar, GrammarCompiler, TokenMask},
        text::{Ends, GgufVocabulary, Tokenizer},
    };
    use serde_json::json;

    use super::*;

    /// A vocabulary with every byte, and made-up words up to the size of a large one.
    fn tokenizer() -> Tokenizer {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
        let mut types = vec![2, 3, 3];
        tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        types.extend([6; 256]);
        let json = ["{\"", "\":", "\",\"", "\"}", "},{", "\":[", "\"],\"", "true", "false", "null", "\":{\""];
        tokens.extend(json.map(str::to_owned));
        let syllables =
            ["ka", "lo", "mi", "nu", "re", "sto", "ing", "er", "pre", "qua", "é", "ω", "日", "本", "x", "y"];
        for i in 0.. {
            if tokens.len() == VOCAB {
                break;
            }
            let mut word = if i % 3 == 0 { "▁".to_owned() } else { String::new() };
            let mut rest = i + 1;
            while rest > 0 {
                word.push_str(syllables[rest % 16]);
                rest /= 16;
            }
            word.push_str(&(i % 10).to_string());
            tokens.push(word);
        }
        types.resize(tokens.len(), 1);
        let scores = (0..tokens.len()).map(|i| -(i as f32)).collect();
        let (scores, types) = (Some(scores), Some(types));
        let vocabulary = GgufVocabulary {
            kind: "llama".to_owned(),
            tokens,
            scores,
            types,
            eos: Some(2),
            ..GgufVocabulary::default()
        };
        vocabulary.build().expect("the vocabulary is sound")
    }

    pub fn bench(c: &mut Criterion) {
        let tokenizer = tokenizer();
        let mut ends = Ends::default();
        ends.insert(2);
        let mut group = c.benchmark_group("constraint");
        group.sample_size(10).measurement_time(Duration::from_secs(3));
        group.bench_function("compiler of a vocabulary", |b| {
            b.iter(|| GrammarCompiler::new(&tokenizer, &ends, VOCAB).expect("the vocabulary is sound"));
        });
        let compiler = GrammarCompiler::new(&tokenizer, &ends, VOCAB).expect("the vocabulary is sound");
        let schema = Grammar::json_schema(&json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "[0-9]{5}"}}, "required": ["street", "zip"]},
            },
            "required": ["name", "age", "tags", "address"],
        }));
        group.bench_function("JSON schema", |b| b.iter(|| compiler.compile(&schema).expect("a schema")));
        let logits = peaked();
        let mut reply = Vec::new();
        let mut chain =
            SamplerChain::new(&SampleOpts { seed: Some(3), ..SampleOpts::default() }).expect("sound options");
        chain.set_constraint(compiler.compile(&schema).expect("a schema"));
        while reply.len() < 64 && !chain.is_complete() {
            reply.push(chain.sample(&logits).expect("a token is allowed"));
            chain.accept(reply[reply.len() - 1]).expect("it was allowed");
        }
        group.throughput(Throughput::Elements(reply.len() as u64));
        group.bench_function("mask and accept of a reply", |b| {
            b.iter_batched(
                || compiler.compile(&schema).expect("a schema"),
                |mut constraint| {
                    for token in &reply {
                        constraint.allow(&mut TokenMask::new(VOCAB)).expect("a token is allowed");
                        constraint.accept(*token).expect("it was allowed");
                    }
                },
                BatchSize::SmallInput,
            );
        });
        // A reply of 64 tokens, cold: what a request pays in all. The difference of the two is the constraint's.
        group.throughput(Throughput::Elements(64));
        for (name, is_constrained) in [("64 tokens of JSON", true), ("64 tokens without", false)] {
            let make = || {
                let options = SampleOpts { seed: Some(3), ..SampleOpts::default() };
                let mut chain = options.into_chain().expect("the options are sound");
                if is_constrained {
                    chain.set_constraint(compiler.compile(&schema).expect("a schema"));
                }
                chain
            };
            group.bench_function(name, |b| {
                b.iter_batched(
                    make,
                    |mut chain| {
                        for _ in 0..64 {
                            let token = chain.sample(&logits).expect("a token is allowed");
                            if token == 2 {
                                break;
                            }
                            chain.accept(token).expect("it was allowed");
                        }
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    bench_stages(&mut criterion);
    bench_chains(&mut criterion);
    #[cfg(feature = "grammar")]
    constrained::bench(&mut criterion);
    criterion.final_summary();
}
