//! The runner of every family that is a description: one sequence on a loaded model.

use std::sync::Arc;

use anyhow::Result;
use kinfolk_decoder::{Cache, Cancel, ForwardError, LoadRole, Mixer, Model, Output, Sequence, Want, Workload};
use kinfolk_weights::Fingerprint;

use crate::{
    embedding::{EmbeddingConventions, Pooler, normalize},
    passes::{self, Job},
    runner::{Capabilities, KvStoreStats, LmRunner, RunnerError, common_prefix},
};

/// One sequence on a [`Model`].
///
/// After an error the context is the part of it that was computed: a prefix of what was asked for, and still usable.
pub struct DecoderRunner {
    family: &'static str,
    model: Arc<dyn Model>,
    /// Of the checkpoint the model was loaded from.
    fingerprint: Fingerprint,
    cache: Box<dyn Cache>,
    /// What the cache holds.
    tokens: Vec<u32>,
    cancel: Cancel,
}

impl DecoderRunner {
    /// A runner with an empty context. Every call polls `cancel`. Sessions it exports are bound to `fingerprint`, that of the checkpoint
    /// which `model` was loaded from.
    pub fn new(family: &'static str, model: Arc<dyn Model>, fingerprint: Fingerprint, cancel: Cancel) -> DecoderRunner {
        let cache = model.new_cache();
        DecoderRunner { family, model, fingerprint, cache, tokens: Vec::new(), cancel }
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(RunnerError::EmptyPrompt.into());
        }
        let (context_length, asked) = (self.context_length(), tokens.len());
        if asked > context_length {
            return Err(RunnerError::ContextFull { context_length, asked }.into());
        }
        let vocab_size = self.vocab_size();
        match tokens.iter().find(|t| **t as usize >= vocab_size) {
            Some(&token) => Err(RunnerError::TokenOutOfRange { token, vocab_size }.into()),
            None => Ok(()),
        }
    }

    /// Trims the context to what it shares with `tokens`, leaving at least one of them to compute. Returns how many stay.
    fn keep_shared(&mut self, tokens: &[u32]) -> usize {
        let kept = self.cache.truncate(common_prefix(&self.tokens, tokens).min(tokens.len() - 1));
        self.tokens.truncate(kept);
        kept
    }

    fn clear(&mut self) {
        self.cache.truncate(0);
        self.tokens.clear();
    }

    /// Appends `tokens` to the context and returns the logits after the last.
    fn extend(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let logits = run(&*self.model, &mut *self.cache, tokens, Want::LastLogits, &self.cancel, &mut |done| {
            self.tokens.extend_from_slice(done);
        })?;
        Ok(logits.values().to_vec())
    }
}

/// Runs `tokens` in chunks on one cache and returns what the last chunk gives. `done` is told of each chunk that is in the cache.
fn run(
    model: &dyn Model,
    cache: &mut dyn Cache,
    tokens: &[u32],
    want: Want,
    cancel: &Cancel,
    done: &mut dyn FnMut(&[u32]),
) -> Result<Output> {
    let mut output = Output::default();
    let n_chunks = tokens.len().div_ceil(Workload::CHUNK_TOKENS);
    for (i, chunk) in tokens.chunks(Workload::CHUNK_TOKENS).enumerate() {
        let want = if i + 1 == n_chunks { want } else { Want::Nothing };
        let sequence = Sequence { cache: &mut *cache, tokens: chunk, want };
        let outputs = model.forward(&mut [sequence], cancel).map_err(for_host)?;
        done(chunk);
        output = outputs.into_iter().next().unwrap_or_default();
    }
    Ok(output)
}

/// How many of `n` tokens after `held` may share a pass that gives logits after each, as if they came one by one: a rope whose frequencies
/// change with the length of the sequence turns all tokens of a pass alike.
pub(crate) fn alike(model: &dyn Model, held: usize, n: usize) -> usize {
    let attentions = model.decoder().layers.iter().filter_map(|layer| match &layer.mixer {
        Mixer::Attention(attention) => attention.rope.as_ref(),
        _ => None,
    });
    let until_switch = attentions.filter_map(|rope| rope.switches_beyond()?.checked_sub(held)).filter(|left| *left > 0);
    until_switch.min().unwrap_or(n).min(n)
}

/// What a host can do something about, in the waist's own words.
pub(crate) fn for_host(error: ForwardError) -> anyhow::Error {
    match error {
        ForwardError::NoTokens => RunnerError::EmptyPrompt.into(),
        ForwardError::TokenOutOfRange { token, vocab_size } => {
            RunnerError::TokenOutOfRange { token, vocab_size }.into()
        }
        ForwardError::ContextFull { context_length, asked } => {
            RunnerError::ContextFull { context_length, asked }.into()
        }
        ForwardError::NoHead => RunnerError::NoHead.into(),
        ForwardError::Cancelled => RunnerError::Cancelled.into(),
        other => other.into(),
    }
}

impl LmRunner for DecoderRunner {
    fn family(&self) -> &str {
        self.family
    }

    fn vocab_size(&self) -> usize {
        self.model.decoder().embedding.vocab_size
    }

    fn context_length(&self) -> usize {
        self.model.context_length()
    }

    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(tokens)?;
        let mut cache = self.model.new_cache();
        Ok(run(&*self.model, &mut *cache, tokens, Want::LastLogits, &self.cancel, &mut |_| {})?.values().to_vec())
    }

    fn capabilities(&self) -> Capabilities {
        let gives_logits = self.model.role() == LoadRole::Text;
        Capabilities {
            prefill_decode_pair: gives_logits,
            decodes_several: gives_logits,
            prefix_reuse: gives_logits,
            sessions: gives_logits,
            embeddings: true,
            multimodal: false,
            batching: true,
        }
    }

    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(tokens)?;
        self.clear();
        self.extend(tokens)
    }

    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        if self.tokens.is_empty() {
            return Err(RunnerError::NotPrefilled.into());
        }
        self.extend(&[token])
    }

    fn decode_logits_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        if self.tokens.is_empty() {
            return Err(RunnerError::NotPrefilled.into());
        }
        if tokens.is_empty() {
            return Err(RunnerError::EmptyPrompt.into());
        }
        let (before, beyond) = tokens.split_at(alike(&*self.model, self.tokens.len(), tokens.len()));
        let mut rows = Vec::with_capacity(tokens.len());
        for tokens in [before, beyond].into_iter().filter(|tokens| !tokens.is_empty()) {
            let sequence = Sequence { cache: &mut *self.cache, tokens, want: Want::AllLogits };
            let outputs = self.model.forward(&mut [sequence], &self.cancel).map_err(for_host)?;
            self.tokens.extend_from_slice(tokens);
            rows.extend(outputs.iter().flat_map(Output::rows).map(<[f32]>::to_vec));
        }
        Ok(rows)
    }

    fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(tokens)?;
        let kept = self.keep_shared(tokens);
        self.extend(&tokens[kept..])
    }

    fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
        self.check(tokens)?;
        Ok(self.keep_shared(tokens))
    }

    fn clear_kv_cache(&mut self) -> Result<()> {
        self.clear();
        Ok(())
    }

    /// The checkpoint's fingerprint, the tokens and the executor's snapshot: 32 bytes, `n_tokens` as u64, the tokens as u32, all
    /// little-endian, then the snapshot.
    fn export_session(&mut self) -> Result<Vec<u8>> {
        let mut bytes = self.fingerprint.as_bytes().to_vec();
        bytes.extend((self.tokens.len() as u64).to_le_bytes());
        bytes.extend(self.tokens.iter().flat_map(|t| t.to_le_bytes()));
        bytes.extend(self.cache.snapshot());
        Ok(bytes)
    }

    fn restore_session(&mut self, session: &[u8]) -> Result<()> {
        let invalid = |reason: String| RunnerError::InvalidSession { family: self.family.to_owned(), reason };
        let cut_short = || invalid("expected tokens and a snapshot, found the end".to_owned());
        let (fingerprint, rest) = session.split_first_chunk::<32>().ok_or_else(cut_short)?;
        if fingerprint != self.fingerprint.as_bytes() {
            let found = Fingerprint::from_bytes(*fingerprint);
            return Err(invalid(format!("expected one of model {}, found one of {found}", self.fingerprint)).into());
        }
        let (n_tokens, rest) = rest.split_first_chunk::<8>().ok_or_else(cut_short)?;
        let n_bytes = usize::try_from(u64::from_le_bytes(*n_tokens)).ok().and_then(|n| n.checked_mul(4));
        let (tokens, snapshot) = rest.split_at_checked(n_bytes.ok_or_else(cut_short)?).ok_or_else(cut_short)?;
        let tokens: Vec<u32> = tokens.as_chunks::<4>().0.iter().map(|t| u32::from_le_bytes(*t)).collect();
        if !tokens.is_empty() {
            self.check(&tokens).map_err(|e| invalid(e.to_string()))?;
        }
        let mut cache = self.model.new_cache();
        cache.restore(snapshot).map_err(invalid)?;
        if cache.len() != tokens.len() {
            return Err(
                invalid(format!("expected a snapshot of {} tokens, found {}", tokens.len(), cache.len())).into()
            );
        }
        (self.cache, self.tokens) = (cache, tokens);
        Ok(())
    }

    fn kv_store_stats(&self) -> Option<KvStoreStats> {
        Some(KvStoreStats::new(self.cache.len(), self.model.context_length(), self.cache.bytes()))
    }

    /// Pools as [`EmbeddingConventions::default`] says: the last token's hidden state, scaled to length 1. What the checkpoint says, an
    /// [`Embedder`](crate::embedding::Embedder) follows.
    fn embed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check(tokens)?;
        let conventions = EmbeddingConventions::default();
        let mut pooler = Pooler::new(&conventions.pooling);
        let job = Job { tokens, n_silent: 0 };
        passes::run(
            &*self.model,
            &[job],
            Want::Hidden,
            Workload::CHUNK_TOKENS,
            &self.cancel,
            &mut |_, position, hidden| {
                pooler.add(position, hidden);
            },
        )?;
        let mut vector = pooler.finish().ok_or(RunnerError::EmptyPrompt)?;
        if conventions.normalize {
            normalize(&mut vector);
        }
        Ok(vector)
    }

    fn model(&self) -> Option<Arc<dyn Model>> {
        Some(Arc::clone(&self.model))
    }
}

#[cfg(test)]
mod tests;
