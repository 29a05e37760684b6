//! A model for tests of whatever batches: logits are a fixed function of the tokens, every pass may go wrong as the test says, and what is
//! still alive is counted.

use std::{
    any::Any,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kinfolk_decoder::{Activation, Cache, Cancel, Decoder, ForwardError, Model, Output, Sequence, Source, Want};
use kinfolk_text::Text;
use kinfolk_weights::Fingerprint;

use crate::{DecoderRunner, LmRunner};

/// Tokens of the vocabulary, which is that of [`text`].
pub(crate) const VOCAB: usize = 1024;

/// A small vocabulary with ends 0 and 2, bytes from 3 on, and the text layer of a whole model.
pub(crate) fn text() -> Text {
    Text::from_source(&model_files(), &[]).unwrap()
}

fn model_files() -> Source {
    Source::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../registry-tests/models/tinytales")).unwrap()
}

/// `n` tokens of text, different for every seed.
pub(crate) fn prompt(seed: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| 300 + (seed.wrapping_mul(7919) ^ i.wrapping_mul(31)) % 500).collect()
}

/// What a pass does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error,
    OutOfMemory,
    Panic,
    Stall(Duration),
    FewOutputs,
    ShortLogits,
    NotANumber,
    KeepsCache,
    Cancelled,
}

type Faults = Box<dyn FnMut(usize, &[&[u32]]) -> Option<Fault> + Send>;

/// The token after a context is a mix of every token before, and once in `end_every` contexts an end.
pub(crate) struct ToyModel {
    decoder: Decoder,
    context_length: usize,
    end_every: u64,
    /// Tokens after which a cache cannot go back.
    window: Option<usize>,
    log: Arc<Log>,
    faults: Mutex<Faults>,
    _alive: Alive,
}

/// Counts a model for as long as it lives.
struct Alive(Arc<Log>);

impl Alive {
    fn new(log: &Arc<Log>) -> Alive {
        log.live_models.fetch_add(1, Ordering::SeqCst);
        Alive(Arc::clone(log))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.live_models.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a [`ToyModel`] has done, shared with the test.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) passes: AtomicUsize,
    pub(crate) live_models: AtomicUsize,
    pub(crate) live_caches: AtomicUsize,
    /// Tokens each sequence of each pass brought.
    pub(crate) batches: Mutex<Vec<Vec<usize>>>,
}

impl ToyModel {
    pub(crate) fn new(log: &Arc<Log>) -> ToyModel {
        ToyModel {
            decoder: Decoder::llama_shaped(model_files().config(), 10_000.0, Activation::Silu).unwrap(),
            context_length: 256,
            end_every: 40,
            window: None,
            log: Arc::clone(log),
            faults: Mutex::new(Box::new(|_, _| None)),
            _alive: Alive::new(log),
        }
    }

    /// Never ends its turn, in a context of that many tokens.
    pub(crate) fn endless(mut self, context_length: usize) -> ToyModel {
        (self.end_every, self.context_length) = (u64::MAX, context_length);
        self
    }

    /// Caches that cannot go back once they hold more than so many tokens.
    pub(crate) fn windowed(mut self, window: Option<usize>) -> ToyModel {
        self.window = window;
        self
    }

    /// Every pass asks which fault it has: its number, from 0, and the tokens of its sequences are given.
    pub(crate) fn failing(
        mut self,
        faults: impl FnMut(usize, &[&[u32]]) -> Option<Fault> + Send + 'static,
    ) -> ToyModel {
        self.faults = Mutex::new(Box::new(faults));
        self
    }

    pub(crate) fn runner(self) -> Box<dyn LmRunner> {
        Box::new(DecoderRunner::new("toy", Arc::new(self), Fingerprint::from_bytes([1; 32]), Cancel::new()))
    }

    fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let mix =
            |state: u64, token: &u32| (state ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        let state = tokens.iter().fold(1, mix);
        let mut logits = vec![0.0; VOCAB];
        let likeliest = if (state >> 20) % self.end_every == 0 { 2 } else { 300 + state as usize % 500 };
        logits[likeliest] = 9.0;
        logits[300 + (state >> 9) as usize % 500] += 8.0;
        logits
    }
}

impl std::fmt::Debug for ToyModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToyModel").finish_non_exhaustive()
    }
}

impl Model for ToyModel {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn executor(&self) -> &'static str {
        "toy"
    }

    fn threads(&self) -> usize {
        1
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn weight_bytes(&self) -> u64 {
        0
    }

    fn new_cache(&self) -> Box<dyn Cache> {
        Box::new(ToyCache::new(Vec::new(), self.window, &self.log))
    }

    fn cache_bytes(&self, tokens: usize) -> u64 {
        tokens as u64
    }

    fn forward(&self, batch: &mut [Sequence<'_>], cancel: &Cancel) -> Result<Vec<Output>, ForwardError> {
        let pass = self.log.passes.fetch_add(1, Ordering::SeqCst);
        self.log.batches.lock().unwrap().push(batch.iter().map(|sequence| sequence.tokens.len()).collect());
        let tokens: Vec<&[u32]> = batch.iter().map(|sequence| sequence.tokens).collect();
        let fault = (self.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner))(pass, &tokens);
        match fault {
            Some(Fault::Error) => return Err(ForwardError::ForeignCache),
            Some(Fault::OutOfMemory) => return Err(ForwardError::OutOfMemory { needed_bytes: 1 }),
            Some(Fault::Cancelled) => return Err(ForwardError::Cancelled),
            Some(Fault::Panic) => panic!("injected panic"),
            Some(Fault::Stall(time)) => std::thread::sleep(time),
            _ => {}
        }
        if cancel.is_cancelled() {
            return Err(ForwardError::Cancelled);
        }
        let mut outputs = Vec::new();
        for sequence in batch.iter_mut() {
            let cache = sequence.cache.as_any_mut().downcast_mut::<ToyCache>().ok_or(ForwardError::ForeignCache)?;
            let held = cache.tokens.len();
            let asked = held + sequence.tokens.len();
            if asked > self.context_length {
                return Err(ForwardError::ContextFull { context_length: self.context_length, asked });
            }
            let longer = [&cache.tokens, sequence.tokens].concat();
            let first = match sequence.want {
                Want::AllLogits => held + 1,
                Want::LastLogits => asked,
                Want::Nothing | Want::Hidden => asked + 1,
            };
            let mut values: Vec<f32> = (first..=asked).flat_map(|n| self.logits(&longer[..n])).collect();
            match fault {
                Some(Fault::ShortLogits) => values.truncate(values.len() / 2),
                Some(Fault::NotANumber) => values.fill(f32::NAN),
                _ => {}
            }
            if fault != Some(Fault::KeepsCache) {
                cache.tokens = longer;
            }
            outputs.push(Output::of_one(values, VOCAB));
        }
        if fault == Some(Fault::FewOutputs) {
            outputs.pop();
        }
        Ok(outputs)
    }
}

struct ToyCache {
    tokens: Vec<u32>,
    window: Option<usize>,
    log: Arc<Log>,
}

impl ToyCache {
    fn new(tokens: Vec<u32>, window: Option<usize>, log: &Arc<Log>) -> ToyCache {
        log.live_caches.fetch_add(1, Ordering::SeqCst);
        ToyCache { tokens, window, log: Arc::clone(log) }
    }

    fn reachable(&self, n: usize) -> usize {
        match self.window {
            _ if n >= self.tokens.len() => self.tokens.len(),
            Some(window) if self.tokens.len() > window => 0,
            _ => n,
        }
    }
}

impl Drop for ToyCache {
    fn drop(&mut self) {
        self.log.live_caches.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Cache for ToyCache {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn truncate(&mut self, n: usize) -> usize {
        self.tokens.truncate(self.reachable(n));
        self.tokens.len()
    }

    fn fork(&self, n: usize) -> Box<dyn Cache> {
        Box::new(ToyCache::new(self.tokens[..self.reachable(n)].to_vec(), self.window, &self.log))
    }

    fn snapshot(&self) -> Vec<u8> {
        self.tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.tokens = snapshot.as_chunks::<4>().0.iter().map(|token| u32::from_le_bytes(*token)).collect();
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.tokens.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
