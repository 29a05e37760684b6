//! Whatever a runner does at whatever call, a reply ends once, and the next one is right.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use super::*;
use crate::{session::DriveError, toy_runner::Abilities, toy_runner::ToyRunner};

/// What a [`Hostile`] runner does at one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Fails,
    Panics,
    Stalls,
    ShortLogits,
    LongLogits,
    NotANumber,
    ClaimsToHoldMore,
    FewerRows,
    PanicsAndThenOnDrop,
}

const DEEDS: [Deed; 9] = [
    Deed::Fails,
    Deed::Panics,
    Deed::Stalls,
    Deed::ShortLogits,
    Deed::LongLogits,
    Deed::NotANumber,
    Deed::ClaimsToHoldMore,
    Deed::FewerRows,
    Deed::PanicsAndThenOnDrop,
];

/// A correct runner but for one call.
struct Hostile {
    inside: ToyRunner,
    deed: Deed,
    at: usize,
    n_calls: Arc<AtomicUsize>,
    is_broken: bool,
}

impl Hostile {
    fn does(&mut self) -> Option<Deed> {
        let now = self.n_calls.fetch_add(1, Ordering::SeqCst) == self.at;
        match self.deed {
            Deed::Panics if now => panic!("hostile"),
            Deed::PanicsAndThenOnDrop if now => {
                self.is_broken = true;
                panic!("hostile")
            }
            Deed::Stalls if now => std::thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
        now.then_some(self.deed)
    }

    fn bend(deed: Option<Deed>, mut logits: Vec<f32>) -> Result<Vec<f32>> {
        match deed {
            Some(Deed::Fails) => anyhow::bail!("hostile"),
            Some(Deed::ShortLogits) => logits.truncate(3),
            Some(Deed::LongLogits) => logits.extend([99.0; 64]),
            Some(Deed::NotANumber) => logits.fill(f32::NAN),
            _ => {}
        }
        Ok(logits)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        assert!(!self.is_broken, "hostile to the end");
    }
}

impl LmRunner for Hostile {
    fn family(&self) -> &str {
        "hostile"
    }
    fn vocab_size(&self) -> usize {
        self.inside.vocab_size()
    }
    fn context_length(&self) -> usize {
        self.inside.context_length()
    }
    fn capabilities(&self) -> Capabilities {
        self.inside.capabilities()
    }
    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let deed = self.does();
        Hostile::bend(deed, self.inside.predict_logits(tokens)?)
    }
    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let deed = self.does();
        Hostile::bend(deed, self.inside.prefill_logits(tokens)?)
    }
    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        let deed = self.does();
        Hostile::bend(deed, self.inside.decode_logits(token)?)
    }
    fn decode_logits_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let deed = self.does();
        let mut rows = self.inside.decode_logits_each(tokens)?;
        if deed == Some(Deed::FewerRows) {
            rows.pop();
        }
        rows.into_iter().map(|logits| Hostile::bend(deed, logits)).collect()
    }
    fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let deed = self.does();
        Hostile::bend(deed, self.inside.prefill_logits_reusing(tokens)?)
    }
    fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
        let deed = self.does();
        anyhow::ensure!(deed != Some(Deed::Fails), "hostile");
        let cached = self.inside.begin_prompt(tokens)?;
        Ok(if deed == Some(Deed::ClaimsToHoldMore) { usize::MAX } else { cached })
    }
}

fn toy(abilities: Abilities) -> ToyRunner {
    ToyRunner { vocab_size: VOCAB, context_length: 64, ..ToyRunner::new(abilities) }
}

fn request() -> Request {
    let speculation = Speculation::new(PromptLookup { max_ngram: 1, min_ngram: 1 });
    Request { chunk_tokens: 4, speculation: Some(speculation), sample: Some(SampleOpts::greedy()), ..at_most(8) }
}

#[test]
fn whatever_a_runner_does_at_any_call_the_reply_ends_once_and_the_next_is_right() {
    for abilities in [Abilities::ALL, Abilities::NONE, Abilities { reuse: false, ..Abilities::ALL }] {
        let expected = Session::new(Box::new(toy(abilities)), text()).complete(&prompt(9), request()).unwrap();
        for deed in DEEDS {
            for at in 0..14 {
                meets(abilities, deed, at, &expected);
            }
        }
    }
}

fn meets(abilities: Abilities, deed: Deed, at: usize, expected: &Completion) {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&n_calls);
    let make = move || {
        let n_calls = Arc::clone(&n_calls);
        Box::new(Hostile { inside: toy(abilities), deed, at, n_calls, is_broken: false }) as Box<dyn LmRunner>
    };
    let mut session = Session::new(make(), text());
    session.set_reload(Some(Box::new(move || Ok(make()))));
    let what = format!("{deed:?} at call {at} of {abilities:?}");
    let first: Vec<_> = session.start(&prompt(9), request()).unwrap().collect();
    let n_last = first.iter().filter(|event| matches!(event, Err(_) | Ok(Event::Done(_)))).count();
    assert_eq!(n_last, 1, "{what}: {first:?}");
    match first.last() {
        Some(Err(DriveError::RunnerCorrupted { message })) => assert_eq!(message, "hostile", "{what}"),
        Some(Err(DriveError::Recoverable(_)) | Ok(Event::Done(_))) => {}
        other => panic!("{what}: {other:?}"),
    }
    if calls.load(Ordering::SeqCst) <= at {
        // The reply was over before: it is the next one that meets the deed.
        return;
    }
    let next = session.complete(&prompt(9), request()).unwrap();
    // A runner that holds less than it says cannot be found out: only what it says it holds is used, and that is what it gets wrong.
    if deed != Deed::ClaimsToHoldMore {
        assert_eq!(next.text, expected.text, "{what}");
    }
}

#[test]
fn a_session_that_cannot_load_again_says_so_and_does_not_call_the_runner() {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&n_calls);
    let runner = Hostile { inside: toy(Abilities::ALL), deed: Deed::Panics, at: 0, n_calls: shared, is_broken: false };
    let mut session = Session::new(Box::new(runner), text());
    assert!(matches!(
        session.complete(&prompt(3), at_most(3)).unwrap_err().downcast_ref(),
        Some(DriveError::RunnerCorrupted { .. })
    ));
    let error = session.start(&prompt(3), at_most(3)).err().unwrap();
    assert!(matches!(error.downcast_ref(), Some(DriveError::RunnerCorrupted { .. })), "{error:#}");
    assert_eq!(n_calls.load(Ordering::SeqCst), 1);
}

#[test]
fn other_sessions_on_the_model_are_unaffected_by_a_panic() {
    use crate::toy_model::{Fault, Log, ToyModel};
    let panics = |pass: usize, _: &[&[u32]]| (pass == 2).then_some(Fault::Panic);
    let runner = ToyModel::new(&Arc::<Log>::default()).failing(panics).runner();
    let model = runner.model().unwrap();
    let fingerprint = kinfolk_weights::Fingerprint::from_bytes([1; 32]);
    let other = crate::DecoderRunner::new("toy", model, fingerprint, Cancel::new());
    let (mut one, mut two) = (Session::new(runner, text()), Session::new(Box::new(other), text()));
    for session in [&mut one, &mut two] {
        session.set_sample(SampleOpts::greedy()).unwrap();
    }
    let expected = complete(&mut one, &prompt(9), at_most(1)).text;
    let mut reply = two.start(&prompt(9), at_most(5)).unwrap();
    reply.find(|event| matches!(event, Ok(Event::Reply(_)))).unwrap().unwrap();
    one.complete(&[300, 301], at_most(2)).unwrap_err();
    assert!(reply.all(|event| event.is_ok()));
    drop(reply);
    assert_eq!(complete(&mut two, &prompt(9), at_most(1)).text, expected);
}

#[test]
fn a_stalled_call_ends_with_the_deadline_and_keeps_the_text() {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let runner = Hostile { inside: toy(Abilities::ALL), deed: Deed::Stalls, at: 3, n_calls, is_broken: false };
    let mut session = Session::new(Box::new(runner), text());
    let deadline = Some(Instant::now() + Duration::from_millis(10));
    let sample = Some(SampleOpts::greedy());
    let found = complete(&mut session, &prompt(3), Request { deadline, sample, ..at_most(30) });
    assert_eq!(found.outcome.finish_reason, FinishReason::LocalDecodeTimeout);
    assert!(found.outcome.usage.completion_tokens >= 1);
}
