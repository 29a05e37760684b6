//! Sessions as files, and conversations.

use kinfolk_text::RenderOptions;
use serde_json::json;

use super::*;
use crate::{
    fixture::{self, LLAMA, WINDOWED},
    session::{Chat, SavedSessionError},
};

fn of(file: &str) -> Session {
    let runner = fixture::load(fixture::request(fixture::source(file), |_| {})).unwrap();
    let mut session = Session::new(runner, text());
    session.set_sample(SampleOpts::greedy()).unwrap();
    session
}

#[test]
fn a_saved_session_goes_on_in_another_one_and_computes_nothing_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("système.session");
    for file in [LLAMA, WINDOWED] {
        let system = fixture::tokens(30);
        let mut first = of(file);
        first.complete(&system, at_most(1)).unwrap();
        first.save(&path).unwrap();
        let longer = [&system[..], &[9, 8, 7]].concat();
        let mut second = of(file);
        second.load(&path).unwrap();
        let found = second.complete(&longer, at_most(5)).unwrap();
        assert_eq!(found.outcome.usage.cached_tokens, 30, "{file}");
        assert_eq!(found.tokens, of(file).complete(&longer, at_most(5)).unwrap().tokens, "{file}");
    }
}

#[test]
fn a_file_that_is_not_this_models_is_refused_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let mut session = of(LLAMA);
    session.complete(&fixture::tokens(20), at_most(1)).unwrap();
    session.save(&path).unwrap();
    let good = std::fs::read(&path).unwrap();

    let mut other = of(WINDOWED);
    let error = other.load(&path).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RunnerError::InvalidSession { .. })), "{error:#}");

    type Change = fn(&mut Vec<u8>);
    let damage: [(&str, Change); 8] = [
        ("nothing", |bytes| bytes.clear()),
        ("another file", |bytes| bytes[0] ^= 1),
        ("another version", |bytes| bytes[16] = 9),
        ("a wrong checksum", |bytes| bytes[20] ^= 1),
        ("a changed token", |bytes| bytes[100] ^= 1),
        ("a changed last byte", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("half of it", |bytes| bytes.truncate(bytes.len() / 2)),
        ("more than it", |bytes| bytes.extend([0; 9])),
    ];
    for (what, change) in damage {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let error = session.load(&path).unwrap_err();
        assert!(error.downcast_ref::<SavedSessionError>().is_some(), "{what}: {error:#}");
        assert_eq!(session.context(), fixture::tokens(20), "{what}");
    }
    let error = session.load(folder.path().join("none")).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(SavedSessionError::File { .. })));
}

#[test]
fn a_session_of_the_same_shape_with_other_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    let mut session = of("quant-llama/model-IQ1_M.gguf");
    session.complete(&fixture::tokens(20), at_most(1)).unwrap();
    session.save(&path).unwrap();
    let error = of("quant-llama/model-Q4_K_M.gguf").load(&path).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RunnerError::InvalidSession { .. })), "{error:#}");
}

/// A conversation over a runner that answers with `replies`, one after the other.
fn chat() -> Chat {
    Chat::new(RenderOptions::default())
}

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

fn talker() -> (Session, Arc<Mutex<Log>>) {
    let mut layer = text();
    // Ends a turn after six tokens that are not the ones its tokenizer would choose: single letters.
    let spelled = ["m", "o", "t", "h", "e", "r"].map(|letter| layer.tokenizer.id_of(letter).unwrap());
    let mut stub = Stub::new(move |context| {
        let since = context.iter().rev().take_while(|token| spelled.contains(token)).count();
        spelled.get(since).copied().unwrap_or(END)
    });
    stub.context_length = 512;
    let log = Arc::clone(&stub.log);
    layer.template = Some(kinfolk_text::ChatTemplate::new(TEMPLATE, &Default::default()).unwrap());
    let mut session = Session::new(Box::new(stub), layer);
    session.set_sample(SampleOpts::greedy()).unwrap();
    (session, log)
}

#[test]
fn a_conversation_reuses_its_turns_with_the_tokens_that_were_generated() {
    let (mut session, _) = talker();
    let mut chat = chat();
    chat.push(json!({"role": "user", "content": "Hi"}));
    let first = chat.answer(&mut session, Request::default(), |_| {}).unwrap();
    assert!(first.outcome.usage.completion_tokens > 0 && !first.text.is_empty());
    let retokenised = session.text().tokenizer.encode(&first.text, Default::default()).unwrap();
    assert!(retokenised.len() < first.outcome.usage.completion_tokens, "the tokenizer would choose others");
    chat.push(json!({"role": "user", "content": "More"}));
    let second = chat.answer(&mut session, Request::default(), |_| {}).unwrap();
    // Everything but the token chosen last, which was never in the context.
    let n_first = first.tokens.len();
    assert_eq!(second.tokens[..n_first], first.tokens);
    assert!(second.outcome.usage.cached_tokens >= n_first - 1, "{:?}", second.outcome.usage);
    assert_eq!(chat.messages().len(), 4);
}

#[test]
fn an_edited_turn_goes_back_to_what_is_shared() {
    let (mut session, _) = talker();
    let mut chat = chat();
    for content in ["Hi there", "And then?"] {
        chat.push(json!({"role": "user", "content": content}));
        chat.answer(&mut session, Request::default(), |_| {}).unwrap();
    }
    chat.messages_mut().truncate(3);
    chat.messages_mut()[2]["content"] = "And now?".into();
    let edited = chat.answer(&mut session, Request::default(), |_| {}).unwrap();
    let usage = edited.outcome.usage;
    assert!(usage.cached_tokens > 0 && usage.cached_tokens < usage.prompt_tokens - 1, "{usage:?}");
    // The same from the start.
    let (mut fresh, _) = talker();
    assert_eq!(fresh.complete(&edited.tokens[..usage.prompt_tokens], Request::default()).unwrap().text, edited.text);
}
