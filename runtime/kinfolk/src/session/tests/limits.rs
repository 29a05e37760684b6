//! Stop strings, tools, deadlines, log-probabilities, full contexts.

use std::time::{Duration, Instant};

use kinfolk_text::ToolSchemas;
use serde_json::json;

use super::*;
use crate::session::Overflow;

/// A session whose replies are the tokens of `reply`.
fn saying(reply: &str) -> Session {
    let ids = text().tokenizer.encode(reply, kinfolk_text::EncodeOptions::default()).unwrap();
    let mut stub = Stub::replying(3, &ids);
    stub.context_length = 512;
    stub.session().0
}

fn stopping(stop: &[&str]) -> Request {
    Request { stop: stop.iter().map(|stop| (*stop).to_owned()).collect(), ..Request::default() }
}

#[test]
fn a_stop_string_ends_the_reply_before_it_wherever_tokens_are_cut() {
    let mut session = saying("alpha beta gamma delta");
    let found = complete(&mut session, &prompt(3), stopping(&["zzz", "ta gam"]));
    assert!(found.text.ends_with("alpha be"), "{}", found.text);
    assert_eq!(found.outcome.finish_reason, FinishReason::Stop);
    assert_eq!(found.outcome.stop_string.as_deref(), Some("ta gam"));
    let kept = complete(&mut session, &prompt(3), Request { include_stop: true, ..stopping(&["ta gam"]) });
    assert!(kept.text.ends_with("alpha beta gam"), "{}", kept.text);
}

#[test]
fn what_is_held_for_a_stop_string_comes_out_at_the_end() {
    // E7: the end of the turn, the longest reply and a cancellation.
    let mut session = saying("once as");
    assert!(complete(&mut session, &prompt(3), stopping(&["as if"])).text.ends_with("once as"));
    let n = complete(&mut session, &prompt(3), stopping(&[])).outcome.usage.completion_tokens;
    let cut = complete(&mut session, &prompt(3), Request { max_tokens: Some(n), ..stopping(&["as if"]) });
    assert!(cut.text.ends_with("once as"));
    assert_eq!((cut.outcome.finish_reason, cut.outcome.stop_string), (FinishReason::Length, None));
}

#[test]
fn an_end_that_is_only_spelled_is_text() {
    // E11
    let found = complete(&mut saying("a </s> b"), &prompt(3), Request::default());
    assert!(found.text.ends_with("a </s> b"), "{}", found.text);
}

#[test]
fn ignoring_the_ends_goes_on_to_the_limit() {
    let (mut session, _) = Stub::replying(3, &[300, END, 301, OTHER_END, 302, 303]).session();
    let request = Request { ignore_eos: true, ..at_most(6) };
    let found = complete(&mut session, &prompt(3), request);
    assert_eq!((found.outcome.finish_reason, found.outcome.usage.completion_tokens), (FinishReason::Length, 6));
}

#[test]
fn calls_of_tools_are_events_and_a_finish_reason() {
    let call = r#"One moment.<tool_call>{"name": "ping", "arguments": {"n": 1}}</tool_call>"#;
    let mut session = saying(call);
    let request = |session: &Session| {
        let mut reply = session.text().reply_options(Some("hermes"));
        reply.tools = ToolSchemas::new(&[json!({"name": "ping"})]);
        Request { reply, ..Request::default() }
    };
    let asked = request(&session);
    let found = complete(&mut session, &prompt(3), asked);
    assert_eq!(found.outcome.finish_reason, FinishReason::ToolCalls);
    assert_eq!(found.parts.tool_calls.len(), 1);
    assert_eq!((found.parts.tool_calls[0].name.as_str(), found.text.trim()), ("ping", "One moment."));
    // H11, H12: the limit is the reason when it cut the call off.
    let asked = Request { max_tokens: Some(found.outcome.usage.completion_tokens - 6), ..request(&session) };
    let cut = complete(&mut session, &prompt(3), asked);
    assert_eq!((cut.outcome.finish_reason, cut.parts.tool_calls.len()), (FinishReason::Length, 0));
}

#[test]
fn every_token_is_told_with_log_probabilities_of_its_own_position() {
    let (mut session, _) = Stub::mixing().session();
    for n_top in [0, 3] {
        let request = Request { log_probs: Some(n_top), ..at_most(4) };
        let (events, found) = events(&mut session, &prompt(3), request);
        let tokens: Vec<_> = events
            .iter()
            .filter_map(|event| if let Event::Token(token) = event { Some(token) } else { None })
            .collect();
        assert_eq!(tokens.iter().map(|t| t.token).collect::<Vec<_>>(), found.tokens[3..]);
        assert!(tokens.iter().all(|t| t.top.len() == n_top && t.logprob < 0.0));
        if n_top > 0 {
            assert!(tokens.iter().all(|t| t.top[0].0 == t.token), "the likeliest is what greedy chooses");
        }
    }
}

#[test]
fn a_deadline_is_read_from_the_hosts_clock_and_so_are_timings() {
    let start = Instant::now();
    let ticks = Arc::new(Mutex::new(0u32));
    let (mut session, log) = Stub::mixing().session();
    session.set_clock(Arc::new(move || {
        let mut ticks = ticks.lock().unwrap();
        *ticks += 1;
        start + Duration::from_secs(1) * *ticks
    }));
    let request = Request { deadline: Some(start + Duration::from_secs(20)), ..Request::default() };
    let found = complete(&mut session, &prompt(3), request);
    assert_eq!(found.outcome.finish_reason, FinishReason::LocalDecodeTimeout);
    assert!(!found.text.is_empty() && log.lock().unwrap().n_calls < 10);
    let timings = found.outcome.timings;
    assert!(timings.prefill > Duration::ZERO && timings.decode > timings.prefill, "{timings:?}");
    assert!(timings.time_to_first_token.is_some_and(|time| time > timings.prefill), "{timings:?}");
}

fn shifting(keep: usize, max_tokens: usize) -> Request {
    Request { overflow: Overflow::Shift { keep }, ..at_most(max_tokens) }
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_unless_it_may_be_cut() {
    let mut stub = Stub::mixing();
    stub.context_length = 16;
    let (mut session, _) = stub.session();
    let full = RunnerError::ContextFull { context_length: 16, asked: 40 };
    let refused = session.start(&prompt(40), at_most(1)).err().unwrap();
    assert_eq!(refused.downcast_ref(), Some(&full));
    let (seen, found) = {
        let events: Vec<Event> = session.start(&prompt(40), shifting(4, 3)).unwrap().collect::<Result<_, _>>().unwrap();
        (events[0].clone(), events)
    };
    // The first four, and the last six.
    assert_eq!(seen, Event::Shifted { dropped_tokens: 30 });
    let cut = [&prompt(40)[..4], &prompt(40)[34..]].concat();
    let Some(Event::Done(outcome)) = found.last() else { panic!("{found:?}") };
    assert_eq!((outcome.usage.dropped_tokens, outcome.usage.prompt_tokens), (30, 40));
    let text: String = found
        .iter()
        .filter_map(|event| if let Event::Reply(ReplyEvent::Text(text)) = event { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(text, complete(&mut session, &cut, at_most(3)).text);
    // Nothing may be dropped if all of the context is to stay.
    for keep in [15, 16, 400] {
        let refused = session.start(&prompt(40), shifting(keep, 1)).err().unwrap();
        assert_eq!(refused.downcast_ref(), Some(&full), "keep {keep}");
    }
}

#[test]
fn a_reply_that_fills_the_context_goes_on_if_it_may_drop_and_equals_a_cold_run() {
    for reuses in [true, false] {
        let mut stub = Stub::mixing();
        (stub.context_length, stub.reuses) = (16, reuses);
        let (mut session, _) = stub.session();
        let mut reply = session.start(&prompt(12), shifting(3, 30)).unwrap();
        let mut expected = prompt(12);
        let mut dropped = 0;
        for event in reply.by_ref() {
            match event.unwrap() {
                Event::Shifted { dropped_tokens } => dropped += dropped_tokens,
                Event::Done(outcome) => {
                    assert_eq!((outcome.finish_reason, outcome.usage.completion_tokens), (FinishReason::Length, 30));
                    assert_eq!(outcome.usage.dropped_tokens, dropped);
                }
                _ => {}
            }
        }
        let found = reply.tokens().to_vec();
        // The same by hand: a token at a time, each after a cold prefill.
        for _ in 0..30 {
            expected.push((Stub::mixing().next)(&expected));
            if expected.len() > 16 {
                expected.drain(3..3 + expected.len() - 3 - 6);
            }
        }
        assert_eq!(found, expected, "reuses {reuses}");
        assert!(dropped > 20);
    }
}

#[test]
fn why_less_is_reused_than_is_shared_is_said() {
    use crate::{
        session::ReuseMiss,
        toy_model::{Log, ToyModel},
    };
    let miss = |session: &mut Session, prompt: &[u32]| complete(session, prompt, at_most(1)).outcome.reuse_miss;
    let (mut session, _) = Stub::mixing().session();
    assert_eq!([miss(&mut session, &prompt(9)), miss(&mut session, &prompt(5))], [None, None]);
    let mut stub = Stub::mixing();
    stub.reuses = false;
    let (mut session, _) = stub.session();
    assert_eq!([miss(&mut session, &prompt(9)), miss(&mut session, &prompt(5))], [None, Some(ReuseMiss::Unsupported)]);
    let mut session = Session::new(ToyModel::new(&Arc::<Log>::default()).windowed(Some(6)).runner(), text());
    assert_eq!(miss(&mut session, &prompt(9)), None);
    assert_eq!(miss(&mut session, &prompt(5)), Some(ReuseMiss::CannotGoBack { shared_tokens: 4 }));
    let mut stub = Stub::mixing();
    stub.fails_at = Some(1);
    let (mut session, _) = stub.session();
    session.complete(&prompt(9), at_most(3)).unwrap_err();
    assert_eq!(miss(&mut session, &prompt(9)), Some(ReuseMiss::ContextLost));
}
