//! Whatever is done to a sequence, its next logits are those of a cold prefill, to the last bit.

use std::sync::Arc;

use kinfolk_decoder::{Cancel, ForwardError, Model, Sequence, Want};
use proptest::prelude::*;

use crate::{
    fixtures::{ALL, CONTEXT, LLAMA, WINDOWED, cold, load, try_forward},
    longrope,
};

/// One thing a host does to a sequence.
#[derive(Clone, Debug)]
enum Operation {
    /// Appends tokens and asks for logits.
    Extend(Vec<u32>),
    /// The same, given up from the start.
    Cancelled(Vec<u32>),
    /// A token that does not exist.
    Refused,
    /// Goes back to a part of what is held, in hundredths.
    Truncate(usize),
    /// Remembers the present state.
    Save,
    /// Goes on from the state last remembered.
    Restore,
}

fn operation() -> impl Strategy<Value = Operation> {
    // Few enough to be few also with what is computed anew when the rope switches after 16.
    let tokens = || prop::collection::vec(0u32..320, 1..16);
    prop_oneof![
        5 => tokens().prop_map(Operation::Extend),
        1 => tokens().prop_map(Operation::Cancelled),
        1 => Just(Operation::Refused),
        3 => (0usize..=100).prop_map(Operation::Truncate),
        1 => Just(Operation::Save),
        1 => Just(Operation::Restore),
    ]
}

fn check(model: &dyn Model, operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut cache = model.new_cache();
    let mut held: Vec<u32> = Vec::new();
    let mut saved = (cache.snapshot(), held.clone());
    for operation in operations {
        match operation {
            Operation::Extend(tokens) if held.len() + tokens.len() <= CONTEXT => {
                held.extend(tokens);
                let found = try_forward(model, &mut *cache, tokens, Want::LastLogits).unwrap();
                prop_assert_eq!(found, cold(model, &held), "after {} tokens", held.len());
            }
            Operation::Extend(_) => {}
            Operation::Cancelled(tokens) => {
                let cancel = Cancel::new();
                cancel.cancel();
                let sequence = Sequence { cache: &mut *cache, tokens, want: Want::LastLogits };
                prop_assert!(model.forward(&mut [sequence], &cancel).is_err());
            }
            Operation::Refused => {
                let error = try_forward(model, &mut *cache, &[1, 320], Want::Nothing).unwrap_err();
                let expected = matches!(error, ForwardError::TokenOutOfRange { .. } | ForwardError::ContextFull { .. });
                prop_assert!(expected, "{error}");
            }
            Operation::Truncate(hundredths) => {
                let n = held.len() * hundredths / 100;
                let kept = cache.truncate(n);
                prop_assert!(kept == n || kept == 0, "{kept} for {n} of {}", held.len());
                held.truncate(kept);
            }
            Operation::Save => saved = (cache.snapshot(), held.clone()),
            Operation::Restore => {
                cache.restore(&saved.0).unwrap();
                held.clone_from(&saved.1);
            }
        }
        prop_assert_eq!(cache.len(), held.len());
    }
    Ok(())
}

fn check_many(models: &[Arc<dyn Model>]) {
    let config = ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() };
    proptest!(config, |(operations in prop::collection::vec(operation(), 1..25))| {
        for model in models {
            check(&**model, &operations)?;
        }
    });
}

#[test]
fn any_history_ends_like_a_cold_prefill() {
    check_many(&ALL.map(load));
}

#[test]
fn any_history_across_a_switch_of_the_rope_ends_like_a_cold_prefill() {
    check_many(&[LLAMA, WINDOWED].map(longrope::load));
}
