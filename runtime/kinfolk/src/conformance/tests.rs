use std::panic;

use super::check;
use crate::{
    LmRunner,
    toy_runner::{Abilities, Flaw, ToyRunner},
};

fn make(abilities: Abilities, flaw: Option<Flaw>) -> impl Fn() -> Box<dyn LmRunner> {
    move || Box::new(ToyRunner { flaw, ..ToyRunner::new(abilities) })
}

#[test]
fn runners_of_any_abilities_conform() {
    for bits in 0..32u32 {
        let has = |bit: u32| bits >> bit & 1 == 1;
        // The pair is one ability: a runner has both halves or says that it has none.
        let pair = has(0);
        let [reuse, clear, sessions, several] = [has(1), has(2), has(3), pair && has(4)];
        check(make(Abilities { prefill: pair, decode: pair, several, reuse, clear, sessions }, None));
    }
}

/// Each flaw is one that real runners had; the kit must name the fact it breaks.
#[test]
fn every_flaw_is_found() {
    let cases = [
        (Flaw::PrefillKeepsOldContext, "a decode equals a longer prefill"),
        (Flaw::DecodeForgetsContext, "a decode"),
        (Flaw::SeveralSkipsFirst, "several decodes at once"),
        (Flaw::ReuseIgnoresDivergence, "a reused prefix equals a cold one"),
        (Flaw::BeginPromptKeepsAll, "begin_prompt keeps what is shared"),
        (Flaw::RestoreKeepsOldContext, "a restored session goes on where it was saved"),
        (Flaw::RestoreAcceptsRubbish, "a restored session goes on where it was saved"),
        (Flaw::ClearKeepsContext, "a cleared context equals a fresh one"),
        (Flaw::PredictMovesContext, "prediction depends on the tokens alone"),
        (Flaw::ClaimsEmbeddings, "capabilities tell the truth"),
        (Flaw::AcceptsAnyToken, "what a caller does wrong is a typed error"),
        (Flaw::ErrorSpoilsContext, "what a caller does wrong is a typed error"),
        (Flaw::ShortLogits, "logits are one finite number per token"),
        (Flaw::NotANumber, "logits are one finite number per token"),
    ];
    for (flaw, fact) in cases {
        let outcome = panic::catch_unwind(|| check(make(Abilities::ALL, Some(flaw))));
        let message = outcome.expect_err(&format!("{flaw:?} is a flaw"));
        let message = message.downcast_ref::<String>().expect("the kit panics with a message");
        assert!(message.starts_with("the runner does not conform: ") && message.contains(fact), "{flaw:?}: {message}");
    }
}
