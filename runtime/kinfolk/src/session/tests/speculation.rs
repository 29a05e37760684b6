//! Guesses change how many steps a reply takes, and nothing else.

use proptest::prelude::*;

use super::*;
use crate::{
    speculation::{DraftModel, Drafter},
    toy_model::{Log, ToyModel},
};

/// Guesses what a wheel of its own says: often wrong, sometimes too many, sometimes failing.
#[derive(Debug)]
struct Wheel {
    state: u64,
    right: Option<Vec<u32>>,
}

impl Drafter for Wheel {
    fn draft(&mut self, context: &[u32], n: usize) -> Result<Vec<u32>> {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let n_right = (self.state >> 40) as usize % 6;
        let known = self.right.as_ref().and_then(|right| right.get(context.len()..)).unwrap_or_default();
        let mut guesses: Vec<u32> = known.iter().copied().take(n_right).collect();
        match (self.state >> 33) % 5 {
            0 => guesses.push(7),
            1 => guesses.extend([400; 30]),
            2 => guesses.clear(),
            3 if self.state.is_multiple_of(7) => anyhow::bail!("out of ideas"),
            _ => {}
        }
        guesses.truncate(n.max(1) + 3);
        Ok(guesses)
    }
}

fn toy(window: Option<usize>) -> Session {
    Session::new(ToyModel::new(&Arc::<Log>::default()).windowed(window).runner(), text())
}

fn request(seed: u64, temperature: f32, max_tokens: usize) -> Request {
    let sample = SampleOpts { seed: Some(seed), temperature, ..SampleOpts::default() };
    Request { sample: Some(sample), ..at_most(max_tokens) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_reply_is_the_same_with_and_without_guesses(
        state in any::<u64>(),
        seed in any::<u64>(),
        temperature in prop_oneof![Just(0.0f32), Just(0.9)],
        n_prompt in 1usize..40,
        max_tokens in 1usize..60,
        window in proptest::option::of(1usize..60),
        knows in any::<bool>(),
    ) {
        let expected = complete(&mut toy(None), &prompt(n_prompt), request(seed, temperature, max_tokens));
        let right = knows.then(|| expected.tokens.clone());
        let speculation = Some(Speculation::new(Wheel { state, right }));
        let found = complete(
            &mut toy(window),
            &prompt(n_prompt),
            Request { speculation, ..request(seed, temperature, max_tokens) },
        );
        prop_assert_eq!(&found.tokens, &expected.tokens);
        prop_assert_eq!(&found.text, &expected.text);
        prop_assert_eq!(found.outcome.finish_reason, expected.outcome.finish_reason);
        let usage = found.outcome.usage;
        prop_assert!(usage.accepted_draft_tokens <= usage.draft_tokens);
    }
}

#[test]
fn right_guesses_save_steps_and_are_counted() {
    let expected = complete(&mut toy(None), &prompt(5), request(1, 0.0, 30));
    let n = expected.outcome.usage.completion_tokens;
    /// Knows the reply.
    #[derive(Debug)]
    struct Oracle(Vec<u32>);
    impl Drafter for Oracle {
        fn draft(&mut self, context: &[u32], n: usize) -> Result<Vec<u32>> {
            Ok(self.0.get(context.len()..).unwrap_or_default().iter().copied().take(n).collect())
        }
    }
    let log = Arc::<Log>::default();
    let mut session = Session::new(ToyModel::new(&log).runner(), text());
    let speculation = Some(Speculation::new(Oracle(expected.tokens.clone())).with_max_tokens(4));
    let found = complete(&mut session, &prompt(5), Request { speculation, ..request(1, 0.0, 30) });
    assert_eq!(found.text, expected.text);
    let passes = log.passes.load(std::sync::atomic::Ordering::SeqCst);
    assert!(passes <= n.div_ceil(5) + 2, "{passes} passes for {n} tokens");
    assert_eq!(found.outcome.usage.acceptance_rate(), Some(1.0));
}

#[test]
fn a_model_guesses_for_another_of_its_vocabulary_only() {
    let draft = || ToyModel::new(&Arc::<Log>::default()).runner();
    let own = text();
    let drafter = DraftModel::new(draft(), &own.tokenizer, &text().tokenizer).unwrap();
    // The same model: every guess is what greedy chooses.
    let expected = complete(&mut toy(None), &prompt(5), request(1, 0.0, 30));
    let speculation = Some(Speculation::new(drafter));
    let found = complete(&mut toy(None), &prompt(5), Request { speculation, ..request(1, 0.0, 30) });
    assert_eq!((&found.text, found.outcome.usage.acceptance_rate()), (&expected.text, Some(1.0)));
    let json = r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}"#;
    let other = kinfolk_text::Tokenizer::from_json(json, &Default::default()).unwrap();
    assert!(DraftModel::new(draft(), &other, &text().tokenizer).is_err());
}

#[test]
fn sampled_replies_are_distributed_as_without_guesses() {
    // The second token of a reply, 4000 times with seeds of their own, with a drafter that guesses the likeliest.
    let n = 4000;
    let draw = |speculates: bool| {
        let mut counts = std::collections::BTreeMap::<u32, f64>::new();
        let mut session = toy(None);
        let layer = text();
        for i in 0..n {
            // Other seeds on the two sides, so that equal counts would be no proof.
            let seed = if speculates { i } else { i + n };
            let speculation = speculates.then(|| {
                let draft = ToyModel::new(&Arc::<Log>::default()).runner();
                Speculation::new(DraftModel::new(draft, &layer.tokenizer, &layer.tokenizer).unwrap())
            });
            let sample = SampleOpts { temperature: 4.0, top_k: 6, seed: Some(seed), ..SampleOpts::nucleus(4.0, 1.0) };
            let request = Request { speculation, sample: Some(sample), ..at_most(2) };
            let tokens = session.complete(&prompt(5), request).unwrap().tokens;
            *counts.entry(*tokens.last().unwrap()).or_default() += 1.0;
        }
        counts
    };
    let (with, without) = (draw(true), draw(false));
    // Chi-square of two samples of equal size, against its mean plus five standard deviations.
    let keys: BTreeSet<u32> = with.keys().chain(without.keys()).copied().collect();
    let count = |counts: &std::collections::BTreeMap<u32, f64>, key: &u32| counts.get(key).copied().unwrap_or(0.0);
    let chi: f64 = keys
        .iter()
        .map(|key| {
            let (a, b) = (count(&with, key), count(&without, key));
            (a - b).powi(2) / (a + b)
        })
        .sum();
    let freedom = keys.len() as f64 - 1.0;
    assert!(freedom >= 5.0, "{keys:?}");
    assert!(chi < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi} with {freedom} degrees of freedom");
}
