//! Sessions over a runner whose every token is chosen by the test, and which counts what it is asked.

mod corners;
mod hostile;
mod limits;
mod saved;
mod speculation;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use anyhow::{Result, anyhow, ensure};
use kinfolk_decoder::Cancel;
use kinfolk_text::{ParsedReply, ReplyEvent};

use super::{Completion, DriveError, Event, FinishReason, Request, Session, Usage};
use crate::{
    Capabilities, LmRunner, RunnerError, Unsupported,
    sampling::SampleOpts,
    speculation::{PromptLookup, Speculation},
    toy_model::{VOCAB, text},
};

/// What a [`Stub`] was asked, shared with the test.
#[derive(Debug, Default)]
struct Log {
    /// Calls that compute.
    n_calls: usize,
    /// Tokens computed by each of them.
    computed: Vec<usize>,
}

type Next = Box<dyn Fn(&[u32]) -> u32 + Send>;

/// The token after a context is whatever `next` says.
struct Stub {
    next: Next,
    context_length: usize,
    reuses: bool,
    context: Vec<u32>,
    log: Arc<Mutex<Log>>,
    /// This call fails, once, and leaves rubbish in the context.
    fails_at: Option<usize>,
    /// This call sets the flag.
    cancels_at: Option<(usize, Cancel)>,
}

impl Stub {
    fn new(next: impl Fn(&[u32]) -> u32 + Send + 'static) -> Stub {
        Stub {
            next: Box::new(next),
            context_length: 64,
            reuses: true,
            context: Vec::new(),
            log: Arc::default(),
            fails_at: None,
            cancels_at: None,
        }
    }

    /// Answers a prompt of `n_prompt` tokens with `reply`, then an end.
    fn replying(n_prompt: usize, reply: &[u32]) -> Stub {
        let reply = reply.to_vec();
        Stub::new(move |context| reply.get(context.len() - n_prompt).copied().unwrap_or(END))
    }

    /// Answers by a mix of every token before, printable and never an end.
    fn mixing() -> Stub {
        Stub::new(|context| {
            let mix = |state: u64, token: &u32| {
                (state ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
            };
            300 + (context.iter().fold(1, mix) % 500) as u32
        })
    }

    fn compute(&mut self, context: Vec<u32>, n_cached: usize) -> Result<Vec<f32>> {
        let mut log = self.log.lock().unwrap();
        let call = log.n_calls;
        log.n_calls += 1;
        log.computed.push(context.len() - n_cached);
        drop(log);
        if let Some((_, cancel)) = self.cancels_at.as_ref().filter(|(at, _)| *at == call) {
            cancel.cancel();
        }
        if self.fails_at == Some(call) {
            self.context = vec![7; call + 1];
            return Err(anyhow!("injected failure"));
        }
        self.context = context;
        let mut logits = vec![0.0; VOCAB];
        logits[(self.next)(&self.context) as usize] = 9.0;
        Ok(logits)
    }

    fn n_shared(&self, tokens: &[u32]) -> usize {
        let shared = self.context.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        shared.min(tokens.len() - 1)
    }

    fn session(self) -> (Session, Arc<Mutex<Log>>) {
        let log = Arc::clone(&self.log);
        let mut session = Session::new(Box::new(self), text());
        session.set_sample(SampleOpts::greedy()).unwrap();
        (session, log)
    }
}

impl LmRunner for Stub {
    fn family(&self) -> &str {
        "stub"
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.compute(tokens.to_vec(), 0)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { prefill_decode_pair: true, prefix_reuse: self.reuses, ..Capabilities::default() }
    }

    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.compute(tokens.to_vec(), 0)
    }

    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        let longer: Vec<u32> = self.context.iter().copied().chain([token]).collect();
        let n_cached = self.context.len();
        self.compute(longer, n_cached)
    }

    fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        ensure!(self.reuses, Unsupported::new("stub", "prefill_logits_reusing"));
        let n_cached = self.n_shared(tokens);
        self.compute(tokens.to_vec(), n_cached)
    }

    fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
        ensure!(self.reuses, Unsupported::new("stub", "begin_prompt"));
        self.context.truncate(self.n_shared(tokens));
        Ok(self.context.len())
    }
}

const END: u32 = 2;
const OTHER_END: u32 = 0;

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| 100 + i).collect()
}

fn at_most(max_tokens: usize) -> Request {
    Request { max_tokens: Some(max_tokens), ..Request::default() }
}

/// Text, reason and usage; the checks every stream of events must pass.
#[track_caller]
fn events(session: &mut Session, prompt: &[u32], request: Request) -> (Vec<Event>, Completion) {
    let mut reply = session.start(prompt, request).unwrap();
    let events: Vec<Event> = reply.by_ref().collect::<Result<_, _>>().unwrap();
    let tokens = reply.tokens().to_vec();
    let mut done = 0;
    let (mut text, mut parts) = (String::new(), ParsedReply::default());
    for (i, event) in events.iter().enumerate() {
        match event {
            Event::Progress { done_tokens, total_tokens } => {
                assert!(*done_tokens >= done && *total_tokens == prompt.len(), "{events:?}");
                done = *done_tokens;
            }
            Event::Reply(part) => {
                if let ReplyEvent::Text(piece) = part {
                    assert!(!piece.is_empty(), "an empty piece is no news");
                    text += piece;
                }
                parts.add(part.clone());
            }
            Event::Done(outcome) => {
                assert_eq!(i + 1, events.len(), "nothing comes after the end");
                let completion = Completion { text, parts, tokens, outcome: outcome.clone() };
                return (events, completion);
            }
            Event::Shifted { .. } | Event::Token(_) => {}
        }
    }
    panic!("no end: {events:?}");
}

#[track_caller]
fn complete(session: &mut Session, prompt: &[u32], request: Request) -> Completion {
    events(session, prompt, request).1
}

#[test]
fn the_pieces_are_the_text_of_the_tokens_whatever_they_cut_through() {
    // Bytes of "é" and "🦙" as tokens of their own among words, and a broken character at the end.
    let text = text();
    let plain = text.raw_tokens("Tim was sad. é🦙 ! it's").unwrap();
    let bytes: Vec<u32> = (3..259).collect();
    for reply in [&plain[1..], &bytes[..], &bytes[100..], &[150, 400, 151]] {
        let mut stub = Stub::replying(3, reply);
        stub.context_length = 512;
        let (mut session, _) = stub.session();
        let found = complete(&mut session, &prompt(3), at_most(reply.len() + 1));
        assert_eq!(found.text, text.tokenizer.decode(reply, true));
        assert_eq!(found.outcome.finish_reason, FinishReason::Stop);
        assert_eq!(found.outcome.usage.completion_tokens, reply.len());
    }
}

#[test]
fn every_end_stops_and_is_no_part_of_the_text() {
    for end in [END, OTHER_END] {
        let (mut session, log) = Stub::replying(3, &[300, 301, end, 302]).session();
        let found = complete(&mut session, &prompt(3), Request::default());
        assert_eq!(found.text, session.text().tokenizer.decode(&[300, 301], true));
        assert_eq!((found.outcome.finish_reason, found.outcome.usage.completion_tokens), (FinishReason::Stop, 2));
        assert_eq!(log.lock().unwrap().computed, [3, 1, 1], "nothing is computed after the end");
    }
}

#[test]
fn max_tokens_is_the_longest_reply_and_costs_no_step_more() {
    for n in [1, 2, 5] {
        let (mut session, log) = Stub::mixing().session();
        let found = complete(&mut session, &prompt(3), at_most(n));
        assert_eq!((found.outcome.finish_reason, found.outcome.usage.completion_tokens), (FinishReason::Length, n));
        assert_eq!(log.lock().unwrap().n_calls, n);
    }
    let (mut session, _) = Stub::mixing().session();
    let found = complete(&mut session, &prompt(3), at_most(0));
    assert_eq!((found.text.as_str(), found.outcome.finish_reason), ("", FinishReason::Length));
}

#[test]
fn the_end_of_the_context_is_a_length() {
    // G19, and the two edges: a prompt that fills the context still gets the token after it.
    for (n_prompt, n_generated) in [(14, 3), (15, 2), (16, 1)] {
        let mut stub = Stub::mixing();
        stub.context_length = 16;
        let (mut session, _) = stub.session();
        let found = complete(&mut session, &prompt(n_prompt), at_most(10));
        assert_eq!(
            (found.outcome.finish_reason, found.outcome.usage.completion_tokens),
            (FinishReason::Length, n_generated)
        );
        let again = complete(&mut session, &prompt(n_prompt), at_most(10));
        assert_eq!(again.text, found.text, "the session is usable after a full context");
    }
}

#[test]
fn a_cancellation_is_seen_between_chunks_and_keeps_what_there_is() {
    let cancel = Cancel::new();
    let mut stub = Stub::mixing();
    stub.cancels_at = Some((2, cancel.clone()));
    let (mut session, log) = stub.session();
    let request = Request { cancel, chunk_tokens: 4, ..Request::default() };
    let (seen, found) = events(&mut session, &prompt(40), request);
    assert_eq!((found.outcome.finish_reason, found.text.as_str()), (FinishReason::Cancelled, ""));
    assert_eq!(log.lock().unwrap().computed, [4, 4, 4], "no chunk after the cancellation");
    assert_eq!(seen[seen.len() - 2], Event::Progress { done_tokens: 12, total_tokens: 40 });
    // What was computed is there for the next request.
    let next = complete(&mut session, &prompt(40), at_most(1));
    assert_eq!(next.outcome.usage.cached_tokens, 12);
}

#[test]
fn a_cancellation_is_seen_between_steps_and_keeps_the_text() {
    let cancel = Cancel::new();
    let mut stub = Stub::replying(3, &[300, 301, 302, 303, 304]);
    stub.cancels_at = Some((2, cancel.clone()));
    let (mut session, log) = stub.session();
    let found = complete(&mut session, &prompt(3), Request { cancel, ..Request::default() });
    assert_eq!(found.outcome.finish_reason, FinishReason::Cancelled);
    assert_eq!(found.text, session.text().tokenizer.decode(&[300, 301], true));
    assert_eq!(log.lock().unwrap().n_calls, 3);
}

#[test]
fn a_request_cancelled_before_it_starts_computes_nothing() {
    let (mut session, log) = Stub::mixing().session();
    let cancel = Cancel::new();
    cancel.cancel();
    let found = complete(&mut session, &prompt(3), Request { cancel, ..Request::default() });
    assert_eq!(found.outcome.finish_reason, FinishReason::Cancelled);
    assert_eq!(found.outcome.usage, Usage { prompt_tokens: 3, ..Usage::default() });
    assert_eq!(log.lock().unwrap().n_calls, 0);
}

#[test]
fn prompts_no_model_could_take_are_typed_errors() {
    let (mut session, log) = Stub::mixing().session();
    let mut refused = |prompt: &[u32]| {
        let error = session.complete(prompt, Request::default()).unwrap_err();
        error.downcast::<RunnerError>().unwrap()
    };
    assert_eq!(refused(&[]), RunnerError::EmptyPrompt);
    assert_eq!(refused(&prompt(65)), RunnerError::ContextFull { context_length: 64, asked: 65 });
    assert_eq!(refused(&[5, 1024]), RunnerError::TokenOutOfRange { token: 1024, vocab_size: 1024 });
    assert_eq!(log.lock().unwrap().n_calls, 0);
    assert_eq!(complete(&mut session, &prompt(64), at_most(1)).outcome.usage.completion_tokens, 1);
}

#[test]
fn an_error_at_any_call_ends_the_reply_and_the_next_request_answers_like_a_fresh_session() {
    let request = || Request { chunk_tokens: 4, ..at_most(6) };
    let expected = complete(&mut Stub::mixing().session().0, &prompt(10), request());
    for call in 0..8 {
        let mut stub = Stub::mixing();
        stub.fails_at = Some(call);
        let (mut session, _) = stub.session();
        let mut reply = session.start(&prompt(10), request()).unwrap();
        let error = reply.by_ref().find_map(Result::err).expect("the call fails");
        let DriveError::Recoverable(error) = error else { panic!("{error:?}") };
        assert_eq!(error.to_string(), "injected failure");
        assert!(reply.next().is_none(), "nothing comes after an error");
        let retried = complete(&mut session, &prompt(10), request());
        assert_eq!(
            (&retried.text, retried.outcome.finish_reason),
            (&expected.text, expected.outcome.finish_reason),
            "call {call}"
        );
        let other = complete(&mut session, &prompt(11)[1..], request());
        assert_eq!(other.text, complete(&mut Stub::mixing().session().0, &prompt(11)[1..], request()).text);
    }
}

#[test]
fn a_second_prompt_computes_one_token_if_it_is_the_same_or_a_prefix() {
    for n in [50, 13, 1] {
        let (mut session, log) = Stub::mixing().session();
        complete(&mut session, &prompt(50), at_most(3));
        let before = log.lock().unwrap().computed.len();
        let found = complete(&mut session, &prompt(50)[..n], at_most(1));
        assert_eq!(found.outcome.usage.cached_tokens, n - 1);
        assert_eq!(log.lock().unwrap().computed[before..], [1]);
        let fresh = complete(&mut Stub::mixing().session().0, &prompt(50)[..n], at_most(1));
        assert_eq!(found.text, fresh.text);
    }
}

#[test]
fn a_prompt_that_goes_on_from_the_reply_reuses_the_reply_too() {
    let reply = [300, 301, 302];
    let (mut session, _) = Stub::replying(5, &reply).session();
    complete(&mut session, &prompt(5), Request::default());
    let longer = [&prompt(5)[..], &reply, &[400, 401]].concat();
    assert_eq!(complete(&mut session, &longer, at_most(1)).outcome.usage.cached_tokens, 8);
}

#[test]
fn different_prompts_answer_like_fresh_sessions() {
    let (mut session, _) = Stub::mixing().session();
    for prompt in [prompt(9), prompt(9).into_iter().rev().collect(), prompt(4), vec![5], prompt(30)] {
        let fresh = complete(&mut Stub::mixing().session().0, &prompt, at_most(8));
        assert_eq!(complete(&mut session, &prompt, at_most(8)).text, fresh.text);
    }
}

#[test]
fn a_runner_without_prefix_reuse_is_prefilled_once_whatever_the_chunk() {
    let mut stub = Stub::mixing();
    stub.reuses = false;
    let (mut session, log) = stub.session();
    let request = || Request { chunk_tokens: 4, ..at_most(2) };
    let found = complete(&mut session, &prompt(30), request());
    assert_eq!(log.lock().unwrap().computed, [30, 1]);
    assert_eq!(found.outcome.usage.cached_tokens, 0);
    assert_eq!(found.text, complete(&mut Stub::mixing().session().0, &prompt(30), request()).text);
    complete(&mut session, &prompt(30), request());
    assert_eq!(log.lock().unwrap().computed[2..], [30, 1]);
}

#[test]
fn a_reply_that_is_dropped_leaves_the_session_as_good_as_new() {
    let fresh = complete(&mut Stub::mixing().session().0, &prompt(9), at_most(5));
    for n_pulled in 0..8 {
        let (mut session, _) = Stub::mixing().session();
        let request = Request { chunk_tokens: 4, ..at_most(9) };
        session.start(&prompt(9), request).unwrap().take(n_pulled).for_each(drop);
        assert_eq!(complete(&mut session, &prompt(9), at_most(5)).text, fresh.text, "{n_pulled} events");
    }
}

#[test]
fn a_stream_receives_what_the_completion_holds_also_when_it_is_used_again() {
    let (mut session, _) = Stub::mixing().session();
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    session.set_stream(Some(Box::new(move |piece| ear.lock().unwrap().push_str(piece))));
    let first = session.complete(&prompt(4), at_most(4)).unwrap().text;
    session.complete(&[], at_most(4)).unwrap_err();
    let second = session.complete(&prompt(5), at_most(4)).unwrap().text;
    assert_eq!(*heard.lock().unwrap(), first + &second);
}

#[test]
fn a_chunk_of_no_tokens_still_gets_there() {
    let (mut session, log) = Stub::mixing().session();
    complete(&mut session, &prompt(3), Request { chunk_tokens: 0, ..at_most(1) });
    assert_eq!(log.lock().unwrap().computed, [1, 1, 1]);
}

#[test]
fn logits_without_a_number_end_the_reply_with_an_error() {
    struct Broken(Stub);
    impl LmRunner for Broken {
        fn family(&self) -> &str {
            "broken"
        }
        fn vocab_size(&self) -> usize {
            VOCAB
        }
        fn context_length(&self) -> usize {
            self.0.context_length
        }
        fn predict_logits(&mut self, _: &[u32]) -> Result<Vec<f32>> {
            Ok(vec![f32::NAN; VOCAB])
        }
    }
    let mut session = Session::new(Box::new(Broken(Stub::mixing())), text());
    let error = session.complete(&prompt(3), Request::default()).unwrap_err();
    let Some(DriveError::Recoverable(error)) = error.downcast_ref() else { panic!("{error:#}") };
    assert!(matches!(error.downcast_ref(), Some(crate::sampling::SampleError::NoFiniteLogit { nan: VOCAB, .. })));
}

#[test]
fn a_request_may_sample_otherwise_than_the_session() {
    // So hot that nearly every token is as likely as any other.
    let (mut session, _) = Stub::new(|_| 300).session();
    let hot = |seed| SampleOpts {
        temperature: 50.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(seed),
        ..SampleOpts::default()
    };
    let mut run = |sample| complete(&mut session, &prompt(3), Request { sample, ..at_most(8) }).text;
    let greedy = run(None);
    let seeded: BTreeSet<String> = (0..4).map(|seed| run(Some(hot(seed)))).collect();
    assert!(seeded.len() > 1, "seeds matter");
    assert_eq!(run(Some(hot(3))), run(Some(hot(3))), "a seed repeats the reply");
    assert_eq!(run(None), greedy, "the session keeps its own");
}
