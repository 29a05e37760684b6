//! Where the time goes, as a model tells it.

use std::time::{Duration, Instant};

use crate::fixtures::{EXPERTS, LLAMA, cold, load, load_with, tokens};

#[test]
fn nothing_is_measured_unless_asked_for() {
    let model = load(LLAMA);
    cold(&*model, &tokens(5));
    assert_eq!(model.profile(), []);
}

#[test]
fn operations_are_counted_and_take_no_more_than_there_was() {
    let always = ["embed", "norm", "qkv", "rope", "attention", "o", "gate/up", "activation", "down", "head"];
    for (fixture, also) in [(LLAMA, &[][..]), (EXPERTS, &["router", "experts"])] {
        let model = load_with(fixture, |context| (context.profile, context.threads) = (true, Some(2)));
        assert_eq!(model.profile(), [], "{fixture}: nothing has run");
        let start = Instant::now();
        for _ in 0..3 {
            cold(&*model, &tokens(5));
        }
        let elapsed = start.elapsed();
        let ops = model.profile();
        for name in always.iter().chain(also) {
            assert!(ops.iter().any(|op| op.op == *name && op.calls > 0), "{fixture}: {name} in {ops:?}");
        }
        assert_eq!(ops.len(), always.len() + also.len(), "{fixture}: {ops:?}");
        let calls = |name| ops.iter().find(|op| op.op == name).map(|op| op.calls);
        assert_eq!((calls("embed"), calls("attention"), calls("head")), (Some(3), Some(6), Some(3)), "{fixture}");
        let sum: Duration = ops.iter().map(|op| op.time).sum();
        assert!(Duration::ZERO < sum && sum <= elapsed, "{fixture}: {sum:?} of {elapsed:?}");
    }
}
