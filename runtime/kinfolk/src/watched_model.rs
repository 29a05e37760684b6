//! A whole model for tests, whose passes are written down, and one of which fails or cancels when the test says so.

use std::sync::{Arc, Mutex};

use kinfolk_decoder::{Cache, Cancel, Decoder, ForwardError, Model, Output, Sequence};

/// What is around the model.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) inside: Arc<dyn Model>,
    /// The number of tokens of every sequence of every pass.
    pub(crate) passes: Mutex<Vec<Vec<usize>>>,
    /// This pass finds no memory.
    pub(crate) fails_at: Option<usize>,
    /// After this pass the flag is set.
    pub(crate) cancels_after: Option<(usize, Cancel)>,
}

impl Watched {
    pub(crate) fn new(inside: Arc<dyn Model>) -> Watched {
        Watched { inside, passes: Mutex::default(), fails_at: None, cancels_after: None }
    }
}

impl Model for Watched {
    fn decoder(&self) -> &Decoder {
        self.inside.decoder()
    }
    fn executor(&self) -> &'static str {
        self.inside.executor()
    }
    fn threads(&self) -> usize {
        self.inside.threads()
    }
    fn context_length(&self) -> usize {
        self.inside.context_length()
    }
    fn weight_bytes(&self) -> u64 {
        self.inside.weight_bytes()
    }
    fn new_cache(&self) -> Box<dyn Cache> {
        self.inside.new_cache()
    }
    fn cache_bytes(&self, tokens: usize) -> u64 {
        self.inside.cache_bytes(tokens)
    }
    fn forward(&self, batch: &mut [Sequence<'_>], cancel: &Cancel) -> Result<Vec<Output>, ForwardError> {
        let pass = {
            let mut passes = self.passes.lock().unwrap();
            passes.push(batch.iter().map(|sequence| sequence.tokens.len()).collect());
            passes.len() - 1
        };
        if self.fails_at == Some(pass) {
            return Err(ForwardError::OutOfMemory { needed_bytes: 42 });
        }
        let outputs = self.inside.forward(batch, cancel);
        if let Some((_, cancel)) = self.cancels_after.as_ref().filter(|(at, _)| *at == pass) {
            cancel.cancel();
        }
        outputs
    }
}
