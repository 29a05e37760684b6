use std::ops::ControlFlow;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    GenerateOptions,
    toy_runner::{Abilities, INJECTED, ToyRunner},
};

/// One call of a host.
#[derive(Clone, Debug)]
enum Call {
    Predict(Vec<u32>),
    Prefill(Vec<u32>),
    PrefillReusing(Vec<u32>),
    /// The prompt, after a `begin_prompt`, in chunks of this many tokens.
    PrefillChunked(Vec<u32>, usize),
    /// Extends the present context by this and prefills it again, reusing.
    Extend(Vec<u32>),
    Decode(u32),
    Clear,
    SaveAndRestore,
    Generate(Vec<u32>),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    // Few distinct tokens and short prompts, so that prefixes are shared; some out of the vocabulary or too long.
    let token = || prop_oneof![20 => 0u32..3, 1 => 14u32..18];
    let prompt = move || prop_oneof![20 => vec(token(), 0..8), 1 => vec(0u32..3, 30..35)];
    let call = prop_oneof![
        1 => prompt().prop_map(Call::Predict),
        2 => prompt().prop_map(Call::Prefill),
        2 => prompt().prop_map(Call::PrefillReusing),
        2 => (prompt(), 1usize..4).prop_map(|(prompt, chunk)| Call::PrefillChunked(prompt, chunk)),
        2 => prompt().prop_map(Call::Extend),
        8 => token().prop_map(Call::Decode),
        1 => Just(Call::Clear),
        1 => Just(Call::SaveAndRestore),
        1 => prompt().prop_map(Call::Generate),
    ];
    vec(call, 1..40)
}

fn abilities() -> impl Strategy<Value = Abilities> {
    any::<[bool; 6]>().prop_map(|[prefill, decode, several, reuse, clear, sessions]| Abilities {
        prefill,
        decode,
        several,
        reuse,
        clear,
        sessions,
    })
}

/// Makes one call; the answer is the logits, if the call has any.
fn make(runner: &mut impl LmRunner, context: &[u32], call: &Call) -> Result<Option<Vec<f32>>> {
    Ok(match call {
        Call::Predict(tokens) => Some(runner.predict_logits(tokens)?),
        Call::Prefill(tokens) => Some(runner.prefill_logits(tokens)?),
        Call::PrefillReusing(tokens) => Some(runner.prefill_logits_reusing(tokens)?),
        Call::PrefillChunked(tokens, chunk) => {
            let n_cached = runner.begin_prompt(tokens)?;
            let ends = (n_cached + chunk..tokens.len()).step_by(*chunk).chain([tokens.len()]);
            let mut logits = None;
            for end in ends {
                logits = Some(runner.prefill_logits_reusing(&tokens[..end])?);
            }
            logits
        }
        Call::Extend(more) => Some(runner.prefill_logits_reusing(&[context, more].concat())?),
        Call::Decode(token) => Some(runner.decode_logits(*token)?),
        Call::Clear => runner.clear_kv_cache().map(|()| None)?,
        Call::SaveAndRestore => {
            let session = runner.export_session()?;
            runner.restore_session(&session).map(|()| None)?
        }
        Call::Generate(prompt) => {
            let options = GenerateOptions { max_new_tokens: 3, ..GenerateOptions::default() };
            let reply = runner.generate(prompt, &options, &mut |_| ControlFlow::Continue(()))?;
            assert!(!reply.is_empty() && reply.len() <= 3);
            None
        }
    })
}

/// What the context is after a call that succeeded.
fn context_after(context: &[u32], call: &Call) -> Vec<u32> {
    match call {
        Call::Predict(_) | Call::SaveAndRestore => context.to_vec(),
        Call::Prefill(tokens) | Call::PrefillReusing(tokens) | Call::PrefillChunked(tokens, _) => tokens.clone(),
        Call::Extend(more) => [context, more].concat(),
        Call::Decode(token) => [context, &[*token]].concat(),
        Call::Clear | Call::Generate(_) => Vec::new(),
    }
}

fn is_injected(error: &anyhow::Error) -> bool {
    error.to_string() == INJECTED
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The definition of every answer is `predict_logits` over the tokens the context must then hold. Whatever the runner
    /// inside lacks, and wherever it fails, the wrapper gives that answer or an error that a retry gets past.
    #[test]
    fn any_runner_inside_answers_like_predict_logits(
        abilities in abilities(),
        calls in calls(),
        failing_calls in vec(0usize..60, 0..4),
    ) {
        let reference = ToyRunner::new(Abilities::NONE);
        let mut driven = HostDriven::new(ToyRunner { failing_calls: failing_calls.clone(), ..ToyRunner::new(abilities) });
        let mut context: Vec<u32> = Vec::new();
        for call in &calls {
            let mut answer = make(&mut driven, &context, call);
            // Each failure is injected once, so as many retries as failures get past them.
            for _ in 0..failing_calls.len() {
                if !answer.as_ref().is_err_and(is_injected) {
                    break;
                }
                // A chunked prefill and a restore are several calls, of which some may have succeeded.
                if !matches!(call, Call::PrefillChunked(..)) {
                    prop_assert_eq!(driven.context(), &context, "an error moved the context");
                }
                answer = make(&mut driven, &context, call);
            }
            match answer {
                Ok(logits) => {
                    context = context_after(&context, call);
                    prop_assert_eq!(driven.context(), &context);
                    if let Some(logits) = logits {
                        let predicted = match call {
                            Call::Predict(tokens) => tokens,
                            _ => &context,
                        };
                        prop_assert_eq!(logits, reference.logits(predicted));
                    }
                }
                Err(error) => {
                    prop_assert!(error.downcast_ref::<RunnerError>().is_some(), "{error:#}");
                    prop_assert_eq!(driven.context(), &context, "a refusal moved the context");
                }
            }
        }
        if abilities.prefill && abilities.decode {
            prop_assert!(!driven.fell_back());
        }
    }

    /// Bytes are a session or a typed error, and nothing else happens.
    #[test]
    fn any_bytes_are_a_session_or_a_typed_error(bytes in vec(any::<u8>(), 0..64), magic: bool) {
        let bytes = if magic { [SESSION_MAGIC.as_slice(), &bytes].concat() } else { bytes };
        let mut driven = HostDriven::new(ToyRunner::new(Abilities::ALL));
        if let Err(error) = driven.restore_session(&bytes) {
            prop_assert!(error.downcast_ref::<RunnerError>().is_some(), "{error:#}");
        }
    }
}

#[track_caller]
fn expect_error<T: std::fmt::Debug>(answer: Result<T>, expected: RunnerError) {
    let error = answer.expect_err("the call is wrong");
    assert_eq!(error.downcast_ref::<RunnerError>(), Some(&expected), "{error:#}");
}

#[test]
fn what_a_caller_does_wrong_is_a_typed_error_and_the_runner_never_sees_it() {
    for abilities in [Abilities::NONE, Abilities::ALL] {
        let mut driven = HostDriven::new(ToyRunner::new(abilities));
        let out_of_range = || RunnerError::TokenOutOfRange { token: 16, vocab_size: 16 };
        expect_error(driven.decode_logits(0), RunnerError::NotPrefilled);
        expect_error(driven.prefill_logits(&[]), RunnerError::EmptyPrompt);
        expect_error(driven.begin_prompt(&[]), RunnerError::EmptyPrompt);
        expect_error(driven.prefill_logits_reusing(&[1, 16]), out_of_range());
        let too_long = RunnerError::ContextFull { context_length: 32, asked: 33 };
        expect_error(driven.prefill_logits(&[0; 33]), too_long.clone());
        assert_eq!(driven.get_ref().n_calls, 0);
        driven.prefill_logits(&[0; 32]).expect("32 tokens fit");
        let n_calls = driven.get_ref().n_calls;
        expect_error(driven.decode_logits(0), too_long);
        expect_error(driven.decode_logits(16), out_of_range());
        assert_eq!(driven.get_ref().n_calls, n_calls);
    }
}

#[test]
fn only_unsupported_leads_to_the_slow_path() {
    let mut lacking = HostDriven::new(ToyRunner::new(Abilities::NONE));
    lacking.prefill_logits(&[1]).expect("predict_logits is there");
    assert!(lacking.fell_back());

    let mut failing = HostDriven::new(ToyRunner { failing_calls: vec![0, 2], ..ToyRunner::new(Abilities::ALL) });
    assert!(is_injected(&failing.prefill_logits(&[1]).expect_err("call 0 fails")));
    failing.prefill_logits(&[1]).expect("call 1 succeeds");
    assert!(is_injected(&failing.decode_logits(2).expect_err("call 2 fails")));
    assert!(!failing.fell_back());
    assert_eq!(failing.decode_logits(2).expect("a retry is safe"), failing.get_ref().logits(&[1, 2]));
}

#[test]
fn what_a_runner_cached_before_an_error_is_not_trusted() {
    let failures: [fn(&mut HostDriven<ToyRunner>) -> bool; 5] = [
        |driven| driven.predict_logits(&[5]).is_err(),
        |driven| driven.export_session().is_err(),
        |driven| driven.clear_kv_cache().is_err(),
        |driven| driven.begin_prompt(&[1, 7]).is_err(),
        |driven| driven.generate(&[1], &GenerateOptions::default(), &mut |_| ControlFlow::Continue(())).is_err(),
    ];
    for fails in failures {
        let mut driven = HostDriven::new(ToyRunner { failing_calls: vec![1], ..ToyRunner::new(Abilities::ALL) });
        driven.prefill_logits(&[1, 2]).expect("call 0 succeeds");
        assert!(fails(&mut driven));
        assert_eq!(driven.decode_logits(3).expect("call 2 succeeds"), driven.get_ref().logits(&[1, 2, 3]));
    }
}

#[test]
fn a_runner_with_the_pair_computes_each_token_once() {
    let mut driven = HostDriven::new(ToyRunner::new(Abilities::ALL));
    driven.prefill_logits(&[1, 2, 3]).expect("prefill");
    (0..5).for_each(|token| drop(driven.decode_logits(token).expect("decode")));
    assert_eq!(driven.get_ref().n_computed, 8);
    driven.prefill_logits_reusing(&[1, 2, 3, 0, 7]).expect("prefill");
    assert_eq!(driven.get_ref().n_computed, 9, "one token differs");
}

#[test]
fn a_wrapped_runner_keeps_its_warm_context() {
    let mut runner = ToyRunner::new(Abilities::ALL);
    runner.prefill_logits(&[1, 2, 3]).expect("prefill");
    let mut driven = HostDriven::new(runner);
    expect_error(driven.decode_logits(0), RunnerError::NotPrefilled);
    assert_eq!(driven.begin_prompt(&[1, 2, 5]).expect("begin"), 2);
}

#[test]
fn a_restored_session_is_not_computed_again_where_the_runner_saves_its_own() {
    for (sessions, n_computed) in [(true, 1), (false, 4)] {
        let abilities = Abilities { sessions, ..Abilities::ALL };
        let mut saved = HostDriven::new(ToyRunner::new(abilities));
        saved.prefill_logits(&[1, 2, 3]).expect("prefill");
        let session = saved.export_session().expect("export");
        let mut restored = HostDriven::new(ToyRunner::new(abilities));
        restored.restore_session(&session).expect("restore");
        assert_eq!(restored.decode_logits(4).expect("decode"), saved.decode_logits(4).expect("decode"));
        assert_eq!(restored.get_ref().n_computed, n_computed);
    }
}

#[test]
fn generate_ends_by_count_stop_token_callback_and_full_context() {
    #[track_caller]
    fn check(options: &GenerateOptions, n_wanted: usize, expected: &[u32]) {
        // By the trait's own method: neither runner brings a generate.
        for abilities in [Abilities::NONE, Abilities::ALL] {
            let mut seen = Vec::new();
            let mut on_token = |token| {
                seen.push(token);
                if seen.len() == n_wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let reply = ToyRunner::new(abilities).generate(&[1, 2], options, &mut on_token).expect("generate");
            assert_eq!(reply, expected);
            assert_eq!(seen, reply);
        }
    }
    let toy = ToyRunner::new(Abilities::NONE);
    let mut context = vec![1, 2];
    // 30 more tokens fit into the context, and the last of the reply needs no place.
    while context.len() < 33 {
        let logits = toy.logits(&context);
        let best = (0..16).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).expect("16 tokens");
        context.push(best as u32);
    }
    let all = &context[2..];

    let mut options = GenerateOptions::default();
    options.sample.temperature = 0.0;
    check(&options, usize::MAX, all);
    check(&options, 5, &all[..5]);
    options.max_new_tokens = 4;
    check(&options, usize::MAX, &all[..4]);
    options.stop_tokens = vec![all[3]];
    let stop = all.iter().position(|token| *token == all[3]).expect("it is there");
    check(&options, usize::MAX, &all[..stop]);
    options.max_new_tokens = 0;
    check(&options, usize::MAX, &[]);
}
