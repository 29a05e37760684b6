//! From a prompt to text: a runner, its text layer, and a state machine between them.
//!
//! A [`Reply`] is an iterator of [`Event`]s. It has no clock and does no I/O: whoever pulls events decides when the next step is
//! computed, and measures time itself. A cancellation is seen between prefill chunks and before each decode step.

mod reply;

use anyhow::Result;
use kinfolk_decoder::Cancel;
use kinfolk_text::Text;

pub use reply::{Event, FinishReason, Reply, Usage};

use crate::{
    builder::TextCallback,
    host_driven::HostDriven,
    runner::LmRunner,
    sampling::{SampleOpts, SamplerChain},
};

/// What to generate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The longest reply, in tokens. `None`: as long as the context lasts.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen. `None`: as the session is set.
    pub sample: Option<SampleOpts>,
    /// Ends the reply where it is, with what was generated.
    pub cancel: Cancel,
    /// Prompt tokens computed between two looks at `cancel`.
    pub chunk_tokens: usize,
}

impl Default for Request {
    fn default() -> Self {
        Request { max_tokens: None, sample: None, cancel: Cancel::new(), chunk_tokens: 512 }
    }
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What was generated, without the token that ended it.
    pub text: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Tokens that went in and came out.
    pub usage: Usage,
}

/// A model that speaks text. Prompts that begin like the last one, its reply included, reuse what is computed.
pub struct Session {
    runner: HostDriven<Box<dyn LmRunner>>,
    text: Text,
    sample: SampleOpts,
    stream: Option<TextCallback>,
}

impl Session {
    /// A session with default sampling over a loaded model and its text layer.
    pub fn new(runner: Box<dyn LmRunner>, text: Text) -> Session {
        Session { runner: HostDriven::new(runner), text, sample: SampleOpts::default(), stream: None }
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

    /// The runner.
    pub fn runner(&self) -> &dyn LmRunner {
        &self.runner
    }

    /// Tokenizer, template and ends.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Begins a reply to prompt tokens. Nothing is computed before the first event is pulled.
    ///
    /// # Errors
    /// An empty prompt, one longer than the context, a token outside the vocabulary; sampling options out of range.
    pub fn start(&mut self, prompt: &[u32], request: Request) -> Result<Reply<'_>> {
        let chain = SamplerChain::new(request.sample.as_ref().unwrap_or(&self.sample))?;
        Reply::new(&mut self.runner, &self.text, prompt, chain, request)
    }

    /// A whole reply to prompt tokens.
    ///
    /// # Errors
    /// As [`start`](Self::start), and whatever the model fails with on the way.
    pub fn complete(&mut self, prompt: &[u32], request: Request) -> Result<Completion> {
        let mut stream = self.stream.take();
        let completion = self.drive(prompt, request, &mut stream);
        self.stream = stream;
        completion
    }

    fn drive(&mut self, prompt: &[u32], request: Request, stream: &mut Option<TextCallback>) -> Result<Completion> {
        let mut text = String::new();
        let mut end = None;
        for event in self.start(prompt, request)? {
            match event? {
                Event::Progress { .. } => {}
                Event::Text(piece) => {
                    stream.iter_mut().for_each(|receive| receive(&piece));
                    text += &piece;
                }
                Event::Done { finish_reason, usage } => end = Some((finish_reason, usage)),
            }
        }
        let (finish_reason, usage) = end.ok_or_else(|| anyhow::anyhow!("the reply ended without saying why"))?;
        Ok(Completion { text, finish_reason, usage })
    }
}

#[cfg(test)]
mod tests;
