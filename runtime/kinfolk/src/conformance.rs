//! The conformance kit: what every runner must satisfy, to be run in the tests of whoever writes one.
//!
//! ```ignore
//! #[test]
//! fn conforms() {
//!     kinfolk::conformance::check(|| load("tests/tiny.gguf"));
//! }
//! ```
//!
//! Nothing is compared with a reference: the facts hold of any model, because every answer is defined by
//! [`predict_logits`](LmRunner::predict_logits).

use std::{fmt, ops::ControlFlow};

use anyhow::Result;

use crate::{GenerateOptions, HostDriven, LmRunner, RunnerError, host_driven::is_unsupported, runner::common_prefix};

/// The context lengths with which every fact can be checked, in tokens. Load with a shorter context if the model's is longer.
pub const CONTEXT_TOKENS: std::ops::RangeInclusive<usize> = 8..=4096;

/// Largest difference of two logits that are defined to be the same, relative to the largest logit.
pub const TOLERANCE: f32 = 1e-3;

/// Checks every fact on runners that `make` makes, all of one model, and again with [`HostDriven`] around them.
///
/// # Panics
/// If a fact does not hold, with its name.
#[track_caller]
pub fn check(make: impl Fn() -> Box<dyn LmRunner>) {
    check_within(TOLERANCE, make);
}

/// [`check`] with another tolerance, for a model whose prefill and decode round differently.
///
/// # Panics
/// As [`check`].
#[track_caller]
pub fn check_within(tolerance: f32, make: impl Fn() -> Box<dyn LmRunner>) {
    let driven = || Box::new(HostDriven::new(make())) as Box<dyn LmRunner>;
    for (made, make) in [("the runner", &make as &dyn Fn() -> Box<dyn LmRunner>), ("HostDriven around it", &driven)] {
        let kit = Kit { make, tolerance, prompts: Prompts::of(&*make()) };
        for (fact, holds) in FACTS {
            if let Err(violation) = holds(&kit) {
                panic!("{made} does not conform: {fact}: {violation}");
            }
        }
    }
}

type Fact = fn(&Kit) -> Result<(), Violation>;

const FACTS: &[(&str, Fact)] = &[
    ("a runner says what it is", says_what_it_is),
    ("logits are one finite number per token of the vocabulary", logits_have_the_shape_of_the_vocabulary),
    ("capabilities tell the truth", capabilities_are_true),
    ("a decode equals a longer prefill", decode_equals_prefill),
    ("prediction depends on the tokens alone and leaves the context", prediction_is_pure),
    ("what a caller does wrong is a typed error that leaves the context usable", errors_are_typed_and_harmless),
    ("several decodes at once equal as many one by one", several_decodes_equal_single_ones),
    ("a full context is a typed error", the_end_of_the_context_is_typed),
    ("a reused prefix equals a cold one", reuse_equals_cold),
    ("begin_prompt keeps what is shared and leaves a token to compute", begin_prompt_keeps_what_is_shared),
    ("a restored session goes on where it was saved", sessions_restore),
    ("a cleared context equals a fresh one", clear_equals_fresh),
    ("generate follows its options", generate_follows_its_options),
    ("an embedding depends on the tokens alone and leaves the context", embedding_is_pure),
];

/// What a fact is checked with.
struct Kit<'a> {
    make: &'a dyn Fn() -> Box<dyn LmRunner>,
    tolerance: f32,
    prompts: Prompts,
}

/// Why a fact does not hold.
struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<anyhow::Error> for Violation {
    fn from(error: anyhow::Error) -> Violation {
        Violation(format!("expected an answer, found the error: {error:#}"))
    }
}

macro_rules! holds {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Violation(format!($($message)+)));
        }
    };
}

/// Tokens that any model of the vocabulary has, as varied as it allows.
struct Prompts {
    vocab_size: usize,
    context_length: usize,
}

impl Prompts {
    fn of(runner: &dyn LmRunner) -> Prompts {
        Prompts { vocab_size: runner.vocab_size().max(1), context_length: runner.context_length() }
    }

    /// `n` tokens; two prompts of one seed share their beginning.
    fn tokens(&self, seed: u64, n: usize) -> Vec<u32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % self.vocab_size as u64) as u32
        };
        (0..n).map(|_| next()).collect()
    }

    /// A length that leaves room for some decodes.
    fn len(&self) -> usize {
        (self.context_length / 2).min(20)
    }
}

impl Kit<'_> {
    fn runner(&self) -> Box<dyn LmRunner> {
        (self.make)()
    }

    fn has_pair(&self) -> bool {
        self.runner().capabilities().prefill_decode_pair
    }

    /// What the answer is defined to be.
    fn predicted(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.runner().predict_logits(tokens)
    }

    fn same(&self, what: impl fmt::Display, tokens: &[u32], found: &[f32]) -> Result<(), Violation> {
        let expected = self.predicted(tokens)?;
        holds!(expected.len() == found.len(), "{what}: expected {} logits, found {}", expected.len(), found.len());
        let largest = expected.iter().fold(1.0, |largest: f32, logit| largest.max(logit.abs()));
        let differs = |(a, b): (&f32, &f32)| (a - b).is_nan() || (a - b).abs() > self.tolerance * largest;
        let differing = expected.iter().zip(found).position(differs);
        if let Some(id) = differing {
            let (expected, found) = (expected[id], found[id]);
            return Err(Violation(format!(
                "{what}, {} tokens of context: expected logit {expected} of token {id}, found {found}",
                tokens.len()
            )));
        }
        Ok(())
    }
}

fn says_what_it_is(kit: &Kit) -> Result<(), Violation> {
    let runner = kit.runner();
    holds!(!runner.family().is_empty(), "expected the name of a family, found an empty one");
    holds!(runner.vocab_size() > 0, "expected a vocabulary, found an empty one");
    let context_length = runner.context_length();
    holds!(
        CONTEXT_TOKENS.contains(&context_length),
        "expected a context of {CONTEXT_TOKENS:?} tokens to check with, found {context_length}; load with another"
    );
    Ok(())
}

fn logits_have_the_shape_of_the_vocabulary(kit: &Kit) -> Result<(), Violation> {
    let logits = kit.predicted(&kit.prompts.tokens(1, kit.prompts.len()))?;
    let vocab_size = kit.prompts.vocab_size;
    holds!(logits.len() == vocab_size, "expected {vocab_size} logits, found {}", logits.len());
    holds!(logits.iter().all(|logit| logit.is_finite()), "expected finite logits, found others");
    Ok(())
}

fn prediction_is_pure(kit: &Kit) -> Result<(), Violation> {
    let mut runner = kit.runner();
    let [context, other] = [1, 2].map(|seed| kit.prompts.tokens(seed, kit.prompts.len()));
    if kit.has_pair() {
        runner.prefill_logits(&context)?;
    }
    let first = runner.predict_logits(&other)?;
    kit.same("the same prompt again", &other, &first)?;
    if kit.has_pair() {
        let longer = kit.prompts.tokens(1, kit.prompts.len() + 1);
        let logits = runner.decode_logits(longer[kit.prompts.len()])?;
        kit.same("a decode after a prediction of other tokens", &longer, &logits)?;
    }
    Ok(())
}

fn capabilities_are_true(kit: &Kit) -> Result<(), Violation> {
    let capabilities = kit.runner().capabilities();
    let prompt = kit.prompts.tokens(1, kit.prompts.len());
    let no_token = &mut |_| ControlFlow::Break(());
    let has = |name: &str, said: bool, answer: Result<()>| {
        let found = !answer.as_ref().is_err_and(is_unsupported);
        holds!(said == found, "`{name}`: capabilities say {said}, the method says {found}");
        Ok(())
    };
    let prefill = kit.runner().prefill_logits(&prompt).map(drop);
    has("prefill_logits", capabilities.prefill_decode_pair, prefill)?;
    let mut runner = kit.runner();
    let decode = runner.prefill_logits(&prompt).and_then(|_| runner.decode_logits(prompt[0])).map(drop);
    has("decode_logits", capabilities.prefill_decode_pair, decode)?;
    if capabilities.decodes_several {
        let mut runner = kit.runner();
        let each = runner.prefill_logits(&prompt).and_then(|_| runner.decode_logits_each(&prompt[..1])).map(drop);
        has("decode_logits_each", true, each)?;
    }
    // A wrapper may answer these for a runner that reuses nothing; a runner that claims reuse must have them.
    if capabilities.prefix_reuse {
        has("prefill_logits_reusing", true, kit.runner().prefill_logits_reusing(&prompt).map(drop))?;
        has("begin_prompt", true, kit.runner().begin_prompt(&prompt).map(drop))?;
    }
    let mut runner = kit.runner();
    let export = runner.export_session();
    let restore = export.as_ref().map_or(Ok(()), |session| runner.restore_session(session));
    has("export_session", capabilities.sessions, export.map(drop))?;
    if capabilities.sessions {
        has("restore_session", true, restore)?;
    }
    has("embed", capabilities.embeddings, kit.runner().embed(&prompt).map(drop))?;
    has("generate_multimodal", capabilities.multimodal, {
        let options = GenerateOptions { max_new_tokens: 1, ..GenerateOptions::default() };
        let parts = [crate::PromptPart::Tokens(prompt.clone())];
        kit.runner().generate_multimodal(&parts, &options, no_token).map(drop)
    })?;
    let runner = kit.runner();
    holds!(runner.supports_multimodal() == capabilities.multimodal, "`supports_multimodal` and the capability differ");
    holds!(runner.model().is_some() == capabilities.batching, "`model` and the capability `batching` differ");
    Ok(())
}

fn errors_are_typed_and_harmless(kit: &Kit) -> Result<(), Violation> {
    let Prompts { vocab_size, context_length } = kit.prompts;
    let context = kit.prompts.tokens(1, kit.prompts.len());
    let out_of_range = RunnerError::TokenOutOfRange { token: vocab_size as u32, vocab_size };
    let too_long = RunnerError::ContextFull { context_length, asked: context_length + 1 };
    let wrong_prompts = [
        (vec![], RunnerError::EmptyPrompt),
        (vec![0, vocab_size as u32], out_of_range.clone()),
        (vec![0; context_length + 1], too_long),
    ];
    type Method = fn(&mut dyn LmRunner, &[u32]) -> Result<()>;
    let methods: [(&str, Method); 5] = [
        ("predict_logits", |runner, tokens| runner.predict_logits(tokens).map(drop)),
        ("prefill_logits", |runner, tokens| runner.prefill_logits(tokens).map(drop)),
        ("prefill_logits_reusing", |runner, tokens| runner.prefill_logits_reusing(tokens).map(drop)),
        ("begin_prompt", |runner, tokens| runner.begin_prompt(tokens).map(drop)),
        ("embed", |runner, tokens| runner.embed(tokens).map(drop)),
    ];
    for (method, call) in methods {
        for (prompt, expected) in &wrong_prompts {
            let mut runner = kit.runner();
            if kit.has_pair() {
                runner.prefill_logits(&context)?;
            }
            let answer = call(&mut *runner, prompt);
            if !answer.as_ref().is_err_and(is_unsupported) {
                typed(method, answer, expected)?;
                goes_on(kit, &mut *runner, method)?;
            }
        }
    }
    if kit.has_pair() {
        let mut runner = kit.runner();
        typed("decode_logits", runner.decode_logits(0).map(drop), &RunnerError::NotPrefilled)?;
        runner.prefill_logits(&context)?;
        typed("decode_logits", runner.decode_logits(vocab_size as u32).map(drop), &out_of_range)?;
        goes_on(kit, &mut *runner, "decode_logits")?;
    }
    Ok(())
}

fn typed(method: &str, answer: Result<()>, expected: &RunnerError) -> Result<(), Violation> {
    let Err(error) = answer else {
        return Err(Violation(format!("`{method}`: expected the error `{expected}`, found an answer")));
    };
    holds!(
        error.downcast_ref::<RunnerError>() == Some(expected),
        "`{method}`: expected the error `{expected}`, found `{error:#}`"
    );
    Ok(())
}

/// After the prompt of seed 1 and a call that was refused: the next token, if the runner has the pair.
fn goes_on(kit: &Kit, runner: &mut dyn LmRunner, refused: &str) -> Result<(), Violation> {
    if !kit.has_pair() {
        return Ok(());
    }
    let longer = kit.prompts.tokens(1, kit.prompts.len() + 1);
    let logits = runner.decode_logits(longer[kit.prompts.len()])?;
    kit.same(format_args!("a decode after `{refused}` was refused"), &longer, &logits)
}

fn decode_equals_prefill(kit: &Kit) -> Result<(), Violation> {
    if !kit.has_pair() {
        return Ok(());
    }
    let mut runner = kit.runner();
    // Two prompts: the second shows that a prefill starts anew.
    for seed in [1, 2] {
        let n_prompt = kit.prompts.len() / seed as usize;
        let tokens = kit.prompts.tokens(seed, n_prompt + 4);
        let logits = runner.prefill_logits(&tokens[..n_prompt])?;
        kit.same("a prefill", &tokens[..n_prompt], &logits)?;
        for n in n_prompt..tokens.len() {
            let logits = runner.decode_logits(tokens[n])?;
            kit.same("a decode", &tokens[..=n], &logits)?;
        }
        if let Some(stats) = runner.kv_store_stats() {
            let found = stats.tokens;
            holds!(found == tokens.len(), "`kv_store_stats`: expected {} tokens, found {found}", tokens.len());
            holds!(stats.capacity_tokens >= found, "`kv_store_stats`: the context holds more than its capacity");
        }
    }
    Ok(())
}

fn several_decodes_equal_single_ones(kit: &Kit) -> Result<(), Violation> {
    if !kit.runner().capabilities().decodes_several {
        return Ok(());
    }
    let n = kit.prompts.len();
    let tokens = kit.prompts.tokens(1, n + 4);
    let mut runner = kit.runner();
    typed("decode_logits_each", runner.decode_logits_each(&tokens[n..]).map(drop), &RunnerError::NotPrefilled)?;
    runner.prefill_logits(&tokens[..n])?;
    typed("decode_logits_each", runner.decode_logits_each(&[]).map(drop), &RunnerError::EmptyPrompt)?;
    let rows = runner.decode_logits_each(&tokens[n..n + 3])?;
    holds!(rows.len() == 3, "expected logits after each of 3 tokens, found {}", rows.len());
    for (i, logits) in rows.iter().enumerate() {
        kit.same("one of several decodes", &tokens[..=n + i], logits)?;
    }
    let logits = runner.decode_logits(tokens[n + 3])?;
    kit.same("a decode after several", &tokens, &logits)
}

fn the_end_of_the_context_is_typed(kit: &Kit) -> Result<(), Violation> {
    if !kit.has_pair() {
        return Ok(());
    }
    let context_length = kit.prompts.context_length;
    let full = kit.prompts.tokens(3, context_length);
    let mut runner = kit.runner();
    runner.prefill_logits(&full[..context_length - 1])?;
    let logits = runner.decode_logits(full[context_length - 1])?;
    kit.same("the last token that fits", &full, &logits)?;
    let expected = RunnerError::ContextFull { context_length, asked: context_length + 1 };
    typed("decode_logits", runner.decode_logits(0).map(drop), &expected)?;
    let logits = runner.prefill_logits(&full[..1])?;
    kit.same("a prefill after a full context", &full[..1], &logits)
}

fn reuse_equals_cold(kit: &Kit) -> Result<(), Violation> {
    if !kit.runner().capabilities().prefix_reuse {
        return Ok(());
    }
    let n = kit.prompts.len();
    let base = kit.prompts.tokens(1, n);
    let fork = |at: usize| [&base[..at], &kit.prompts.tokens(2, n - at)].concat();
    let prompts = [base.clone(), base.clone(), base[..n / 2].to_vec(), base.clone(), fork(n - 1), fork(n / 2), fork(0)];
    let mut runner = kit.runner();
    for (i, prompt) in prompts.iter().enumerate() {
        let logits = runner.prefill_logits_reusing(prompt)?;
        kit.same(format_args!("prompt {i} of a row that shares prefixes"), prompt, &logits)?;
    }
    if kit.has_pair() {
        let longer = [&prompts[6][..], &[base[0]]].concat();
        let logits = runner.decode_logits(base[0])?;
        kit.same("a decode after a reused prefix", &longer, &logits)?;
    }
    // In chunks, as a host prefills a long prompt.
    for chunk in [1, 3, n] {
        runner.begin_prompt(&base)?;
        for end in (chunk..n).step_by(chunk).chain([n]) {
            let logits = runner.prefill_logits_reusing(&base[..end])?;
            kit.same(format_args!("a prefill in chunks of {chunk}"), &base[..end], &logits)?;
        }
        runner.prefill_logits_reusing(&prompts[6])?;
    }
    Ok(())
}

fn begin_prompt_keeps_what_is_shared(kit: &Kit) -> Result<(), Violation> {
    if !kit.runner().capabilities().prefix_reuse {
        return Ok(());
    }
    let n = kit.prompts.len();
    let base = kit.prompts.tokens(1, n);
    holds!(kit.runner().begin_prompt(&base)? == 0, "expected 0 tokens cached in a fresh runner, found more");
    for n_shared in [n, n - 1, n / 2, 1] {
        let fork = [&base[..n_shared], &kit.prompts.tokens(2, n - n_shared)].concat();
        let shared = common_prefix(&base, &fork).min(n - 1);
        let mut runner = kit.runner();
        runner.prefill_logits_reusing(&base)?;
        // A window or a recurrence cannot always go back that far, so less is right too.
        let cached = runner.begin_prompt(&fork)?;
        holds!(
            cached <= shared,
            "expected at most {shared} tokens cached of a prompt that shares {shared}, found {cached}"
        );
        if cached > 0 && kit.has_pair() {
            let logits = runner.decode_logits(fork[cached])?;
            kit.same("a decode right after `begin_prompt`", &fork[..=cached], &logits)?;
        }
        let logits = runner.prefill_logits_reusing(&fork)?;
        kit.same("the prompt after `begin_prompt`", &fork, &logits)?;
    }
    Ok(())
}

fn sessions_restore(kit: &Kit) -> Result<(), Violation> {
    if !(kit.runner().capabilities().sessions && kit.has_pair()) {
        return Ok(());
    }
    let n = kit.prompts.len();
    let tokens = kit.prompts.tokens(1, n + 2);
    let mut saved = kit.runner();
    saved.prefill_logits(&tokens[..n])?;
    let session = saved.export_session()?;
    let logits = saved.decode_logits(tokens[n])?;
    kit.same("a decode after saving", &tokens[..=n], &logits)?;

    let mut restored = kit.runner();
    restored.prefill_logits(&kit.prompts.tokens(2, n))?;
    restored.restore_session(&session)?;
    // Cut short, and not a session at all: refused, and what was restored stays.
    for rubbish in [&session[..session.len() / 2], &[], b"not a session"] {
        let Err(error) = restored.restore_session(rubbish) else {
            return Err(Violation(format!(
                "expected an error for a session of {} rubbish bytes, found none",
                rubbish.len()
            )));
        };
        let is_typed = matches!(error.downcast_ref::<RunnerError>(), Some(RunnerError::InvalidSession { .. }));
        holds!(is_typed, "expected `InvalidSession` for rubbish, found `{error:#}`");
    }
    for end in n..n + 2 {
        let logits = restored.decode_logits(tokens[end])?;
        kit.same("a decode after restoring", &tokens[..=end], &logits)?;
    }
    Ok(())
}

fn clear_equals_fresh(kit: &Kit) -> Result<(), Violation> {
    let mut runner = kit.runner();
    if !kit.has_pair() || runner.clear_kv_cache().is_err_and(|error| is_unsupported(&error)) {
        return Ok(());
    }
    let [context, other] = [1, 2].map(|seed| kit.prompts.tokens(seed, kit.prompts.len()));
    runner.prefill_logits(&context)?;
    runner.clear_kv_cache()?;
    typed("decode_logits", runner.decode_logits(context[0]).map(drop), &RunnerError::NotPrefilled)?;
    if let Some(stats) = runner.kv_store_stats() {
        holds!(stats.tokens == 0, "`kv_store_stats`: expected 0 tokens after clearing, found {}", stats.tokens);
    }
    let logits = runner.prefill_logits(&other)?;
    kit.same("a prefill after clearing", &other, &logits)
}

fn generate_follows_its_options(kit: &Kit) -> Result<(), Violation> {
    let prompt = kit.prompts.tokens(1, kit.prompts.len());
    let n_wanted = (kit.prompts.context_length - prompt.len()).min(4);
    let mut options = GenerateOptions { max_new_tokens: n_wanted, ..GenerateOptions::default() };
    options.sample.temperature = 0.0;
    let mut seen = Vec::new();
    let reply = kit.runner().generate(&prompt, &options, &mut |token| {
        seen.push(token);
        ControlFlow::Continue(())
    })?;
    holds!(reply.len() == n_wanted, "expected {n_wanted} tokens, found {}", reply.len());
    holds!(seen == reply, "expected `on_token` to see the reply, found other tokens");

    let mut context = prompt.clone();
    for &token in &reply {
        let logits = kit.predicted(&context)?;
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = logits.iter().fold(1.0, |scale: f32, logit| scale.max(logit.abs()));
        let chosen = logits.get(token as usize).copied();
        holds!(
            chosen.is_some_and(|logit| logit >= largest - 2.0 * kit.tolerance * scale),
            "temperature 0: expected a likeliest token, logit {largest}, found token {token}, logit {chosen:?}"
        );
        context.push(token);
    }

    options.stop_tokens = vec![reply[n_wanted - 1]];
    let stopped = kit.runner().generate(&prompt, &options, &mut |_| ControlFlow::Continue(()))?;
    holds!(!stopped.contains(&reply[n_wanted - 1]), "expected the reply to end before the stop token, found it inside");
    options.stop_tokens.clear();
    let broken_off = kit.runner().generate(&prompt, &options, &mut |_| ControlFlow::Break(()))?;
    holds!(broken_off.len() == 1, "expected 1 token where `on_token` breaks, found {}", broken_off.len());
    Ok(())
}

fn embedding_is_pure(kit: &Kit) -> Result<(), Violation> {
    if !kit.runner().capabilities().embeddings {
        return Ok(());
    }
    let [context, other] = [1, 2].map(|seed| kit.prompts.tokens(seed, kit.prompts.len()));
    let mut runner = kit.runner();
    if kit.has_pair() {
        runner.prefill_logits(&context)?;
    }
    let first = runner.embed(&other)?;
    holds!(
        !first.is_empty() && first.iter().all(|x| x.is_finite()),
        "expected a vector of finite numbers, found another"
    );
    let again = kit.runner().embed(&other)?;
    holds!(first.len() == again.len(), "expected {} numbers again, found {}", first.len(), again.len());
    let largest = first.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let differs = first.iter().zip(&again).any(|(a, b)| (a - b).abs() > kit.tolerance * largest);
    holds!(!differs, "expected the same vector for the same tokens, found another");
    goes_on(kit, &mut *runner, "embed")
}

#[cfg(test)]
mod tests;
