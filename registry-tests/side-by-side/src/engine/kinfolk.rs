//! kinfolk, as a host with batches of its own uses it.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use kinfolk::{
    LmRunnerBuilder,
    decoder::{Cache, Cancel, Model, Sequence, Want, Workload},
};

use super::{Engine, Found};
use crate::protocol::Settings;

pub struct Kinfolk {
    model: Arc<dyn Model>,
    /// What every sequence starts from.
    base: Box<dyn Cache>,
    sequences: Vec<Box<dyn Cache>>,
}

impl Kinfolk {
    pub fn load(path: &Path, settings: Settings, narrow_activations: bool) -> Result<Kinfolk> {
        let builder = LmRunnerBuilder::new()
            .weights(path)
            .threads(settings.threads)
            .max_seq(settings.context_length)
            .packed_weights(!settings.exact)
            .narrow_activations(narrow_activations);
        let model = builder.build()?.model().context("expected a family that is a description, found a runner")?;
        Ok(Kinfolk { base: model.new_cache(), sequences: Vec::new(), model })
    }

    /// Appends `tokens` to `cache` in the chunks that runners take.
    fn extend(&self, cache: &mut dyn Cache, tokens: &[u32]) -> Result<()> {
        let chunks = tokens.chunks(Workload::CHUNK_TOKENS);
        let last = chunks.len().saturating_sub(1);
        for (i, tokens) in chunks.enumerate() {
            let want = if i == last { Want::LastLogits } else { Want::Nothing };
            self.model.forward(&mut [Sequence { cache: &mut *cache, tokens, want }], &Cancel::default())?;
        }
        Ok(())
    }
}

impl Engine for Kinfolk {
    fn about(&self) -> String {
        format!("kinfolk, executor {}, {} threads", self.model.executor(), self.model.threads())
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.extend(&mut *self.model.new_cache(), tokens)
    }

    fn start(&mut self, tokens: &[u32], n_sequences: usize) -> Result<()> {
        let mut base = self.model.new_cache();
        self.extend(&mut *base, tokens)?;
        self.base = base;
        self.sequences = (0..n_sequences).map(|_| self.base.fork(tokens.len())).collect();
        Ok(())
    }

    fn rewind(&mut self) -> Result<()> {
        let n_tokens = self.base.len();
        for sequence in &mut self.sequences {
            *sequence = self.base.fork(n_tokens);
        }
        Ok(())
    }

    fn step(&mut self, tokens: &[u32]) -> Result<()> {
        let sequence = |(cache, token)| {
            let cache: &mut Box<dyn Cache> = cache;
            Sequence { cache: &mut **cache, tokens: std::slice::from_ref(token), want: Want::LastLogits }
        };
        let mut batch: Vec<_> = self.sequences.iter_mut().zip(tokens).map(sequence).collect();
        self.model.forward(&mut batch, &Cancel::default())?;
        Ok(())
    }

    fn logits(&mut self, tokens: &[u32], pass_tokens: usize, found: &mut Found<'_>) -> Result<()> {
        let mut cache = self.model.new_cache();
        for tokens in tokens.chunks(pass_tokens.min(Workload::CHUNK_TOKENS)) {
            let sequence = Sequence { cache: &mut *cache, tokens, want: Want::AllLogits };
            for of_pass in self.model.forward(&mut [sequence], &Cancel::default())? {
                of_pass.rows().try_for_each(&mut *found)?;
            }
        }
        Ok(())
    }
}
