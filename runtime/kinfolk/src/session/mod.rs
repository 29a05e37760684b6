//! From a prompt to text: a runner, its text layer, and a state machine between them.
//!
//! A [`Reply`] is an iterator of [`Event`]s. It does no I/O: whoever pulls events decides when the next step is computed, and gives the
//! clock that deadlines and timings are read from. Cancellation and deadline are looked at between prefill chunks and before each step.
//! [`Chat`] keeps the turns of a conversation.

mod chat;
mod drive;
mod event;
mod generation;
mod reply;
mod request;
mod saved;

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::Result;
use kinfolk_text::{ParsedReply, ReplyEvent, ReplyOptions, Text};

pub(crate) use drive::{Evicted, choosing, discard, guard};
pub(crate) use generation::Generation;

pub use chat::Chat;
pub use drive::{DriveError, Reload};
pub use event::{Event, FinishReason, Outcome, ReuseMiss, Timings, Usage};
pub use reply::Reply;
pub use request::{Overflow, Request};
pub use saved::SavedSessionError;

#[cfg(feature = "grammar")]
use crate::sampling::{GrammarCompiler, GrammarError};
use crate::{builder::TextCallback, host_driven::HostDriven, runner::LmRunner, sampling::SampleOpts};

/// Tells the time. A host without the system's clock, or a test, gives its own.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The content: what was generated, without reasoning, calls of tools and the token that ended it.
    pub text: String,
    /// All of it in its parts: content, reasoning, calls of tools.
    pub parts: ParsedReply,
    /// Prompt and reply, as tokens.
    pub tokens: Vec<u32>,
    /// Why it ended, and what it took.
    pub outcome: Outcome,
}

/// A model that speaks text. Prompts that begin like the last one, its reply included, reuse what is computed.
pub struct Session {
    runner: HostDriven<Box<dyn LmRunner>>,
    /// The runner panicked and was dropped.
    is_evicted: bool,
    reload: Option<Reload>,
    text: Arc<Text>,
    convention: Option<&'static str>,
    sample: SampleOpts,
    stream: Option<TextCallback>,
    clock: Clock,
}

impl Session {
    /// A session with default sampling over a loaded model and its text layer.
    pub fn new(runner: Box<dyn LmRunner>, text: impl Into<Arc<Text>>) -> Session {
        Session {
            runner: HostDriven::new(runner),
            is_evicted: false,
            reload: None,
            text: text.into(),
            convention: None,
            sample: SampleOpts::default(),
            stream: None,
            clock: Arc::new(Instant::now),
        }
    }

    /// How tokens are chosen where a request does not say.
    ///
    /// # Errors
    /// A setting out of range.
    pub fn set_sample(&mut self, sample: SampleOpts) -> Result<()> {
        sample.validate()?;
        self.sample = sample;
        Ok(())
    }

    /// Receives the text of every [`complete`](Self::complete) piece by piece.
    pub fn set_stream(&mut self, stream: Option<TextCallback>) {
        self.stream = stream;
    }

    /// How to load another runner after one that panicked. Without, the session answers nothing more once that has happened.
    pub fn set_reload(&mut self, reload: Option<Reload>) {
        self.reload = reload;
    }

    /// How the model's family writes calls of tools, where its chat template does not show it.
    pub fn set_convention(&mut self, convention: Option<&'static str>) {
        self.convention = convention;
    }

    /// How replies of this model are read: for [`Request::reply`], with the tools of the request added.
    pub fn reply_options(&self) -> ReplyOptions {
        self.text.reply_options(self.convention)
    }

    /// Where deadlines and timings are read from; the system's clock by default.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// The runner.
    pub fn runner(&self) -> &dyn LmRunner {
        &self.runner
    }

    /// Gives the runner up.
    pub fn into_runner(self) -> Box<dyn LmRunner> {
        self.runner.into_inner()
    }

    /// Tokenizer, template and ends.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// The text layer, to share.
    pub fn shared_text(&self) -> Arc<Text> {
        Arc::clone(&self.text)
    }

    /// Prepares to constrain replies of this model by grammars; see [`Request::constraint`]. Worth keeping: it takes a fraction of a second.
    ///
    /// # Errors
    /// [`GrammarError`] if the vocabulary cannot be used.
    #[cfg(feature = "grammar")]
    pub fn grammar_compiler(&self) -> Result<GrammarCompiler, GrammarError> {
        GrammarCompiler::new(&self.text.tokenizer, &self.text.ends, self.runner.vocab_size())
    }

    /// The tokens that the next prompt may share with this one.
    pub fn context(&self) -> &[u32] {
        self.runner.context()
    }

    /// Begins a reply to prompt tokens. Nothing is computed before the first event is pulled.
    ///
    /// # Errors
    /// An empty prompt, one longer than the context, a token outside the vocabulary; sampling options out of range; a runner that was
    /// dropped after a panic and cannot be loaded again.
    pub fn start(&mut self, prompt: &[u32], request: Request) -> Result<Reply<'_>> {
        self.replace_evicted()?;
        let chunk_tokens = request.chunk_tokens;
        let (vocab_size, context_length) = (self.runner.vocab_size(), self.runner.context_length());
        let now = (self.clock)();
        let generation = Generation::new(&self.text, prompt, request, &self.sample, vocab_size, context_length, now)?;
        Ok(Reply::new(&mut self.runner, &mut self.is_evicted, generation, chunk_tokens, Arc::clone(&self.clock)))
    }

    /// A whole reply to prompt tokens.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`DriveError`].
    pub fn complete(&mut self, prompt: &[u32], request: Request) -> Result<Completion> {
        // Taken, since the reply borrows the session.
        let mut stream = self.stream.take();
        let completion = self.start(prompt, request).and_then(|reply| {
            reply.complete(|event| {
                if let (Some(receive), Event::Reply(ReplyEvent::Text(piece))) = (&mut stream, event) {
                    receive(piece);
                }
            })
        });
        self.stream = stream;
        completion
    }

    /// Writes the context to a file, so that [`load`](Self::load) can go on from it in another run of the program: a long system prompt is
    /// computed once. The file is complete or not there.
    ///
    /// # Errors
    /// [`SavedSessionError`], or whatever the runner fails with; [`DriveError::RunnerCorrupted`] if the runner was dropped after a panic, its
    /// context with it. A file that is there is then as it was.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        if self.is_evicted {
            let message = "it was dropped after a panic, and its context with it".to_owned();
            return Err(DriveError::RunnerCorrupted { message }.into());
        }
        saved::save(&mut self.runner, path.as_ref())
    }

    /// Replaces the context by one that [`save`](Self::save) wrote with the same model.
    ///
    /// # Errors
    /// [`SavedSessionError`] if the file is damaged, of another version or of another model. The context is then as it was.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.replace_evicted()?;
        saved::load(&mut self.runner, path.as_ref())
    }

    fn replace_evicted(&mut self) -> Result<()> {
        if self.is_evicted {
            let reload = self.reload.as_mut().ok_or_else(|| DriveError::RunnerCorrupted {
                message: "it was dropped after a panic, and the session does not know how to load another".to_owned(),
            })?;
            self.runner = HostDriven::new(reload()?);
            self.is_evicted = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
