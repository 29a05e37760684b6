//! Runs forward passes and takes their time.

use std::time::{Duration, Instant};

use anyhow::Result;
use kinfolk::decoder::{Cache, Cancel, Model, OpTime, Sequence, Want, Workload};

/// What is measured.
pub struct Bench<'a> {
    pub model: &'a dyn Model,
    pub cancel: &'a Cancel,
    pub repetitions: usize,
}

/// One phase, measured several times.
pub struct Measured {
    /// Tokens in the context before.
    pub depth: usize,
    pub n_sequences: usize,
    /// Tokens of each sequence.
    pub n_tokens: usize,
    /// Of all sequences together, by repetition.
    pub tokens_per_s: Vec<f64>,
    /// State of all sequences at the end.
    pub cache_bytes: usize,
    /// Where the time went, if the model was loaded to tell.
    pub profile: Vec<OpTime>,
}

impl Bench<'_> {
    /// A prompt in an empty context, up to the logits after its last token.
    pub fn prefill(&self, n_tokens: usize) -> Result<Measured> {
        let tokens = self.tokens(0, 0, n_tokens);
        let mut cache = self.model.new_cache();
        self.measure(0, 1, n_tokens, &mut |start| {
            cache = self.model.new_cache();
            *start = Instant::now();
            self.extend(&mut *cache, &tokens)?;
            Ok(cache.bytes())
        })
    }

    /// A context of so many tokens to decode after.
    pub fn prompt(&self, depth: usize) -> Result<Box<dyn Cache>> {
        let mut cache = self.model.new_cache();
        self.extend(&mut *cache, &self.tokens(0, 0, depth))?;
        Ok(cache)
    }

    /// `n_tokens` steps of `n_sequences` that all begin with `prompt`, up to the logits after each token. Nothing is sampled.
    pub fn decode(&self, prompt: &dyn Cache, n_sequences: usize, n_tokens: usize) -> Result<Measured> {
        let depth = prompt.len();
        let tokens: Vec<_> = (0..n_sequences).map(|sequence| self.tokens(sequence, depth, n_tokens)).collect();
        self.measure(depth, n_sequences, n_tokens, &mut |start| {
            let mut caches: Vec<_> = (0..n_sequences).map(|_| prompt.fork(depth)).collect();
            *start = Instant::now();
            for step in 0..n_tokens {
                let sequence = |(cache, tokens)| {
                    let (cache, tokens): (&mut Box<dyn Cache>, &Vec<u32>) = (cache, tokens);
                    Sequence { cache: &mut **cache, tokens: &tokens[step..=step], want: Want::LastLogits }
                };
                let mut batch: Vec<_> = caches.iter_mut().zip(&tokens).map(sequence).collect();
                self.model.forward(&mut batch, self.cancel)?;
            }
            Ok(caches.iter().map(|cache| cache.bytes()).sum())
        })
    }

    /// Does `work` once to warm up and then several times. It says when its time begins, and the bytes of its sequences at the end.
    fn measure(
        &self,
        depth: usize,
        n_sequences: usize,
        n_tokens: usize,
        work: &mut dyn FnMut(&mut Instant) -> Result<usize>,
    ) -> Result<Measured> {
        let mut start = Instant::now();
        let mut cache_bytes = work(&mut start)?;
        let before = self.model.profile();
        let mut tokens_per_s = Vec::with_capacity(self.repetitions);
        for _ in 0..self.repetitions {
            cache_bytes = work(&mut start)?;
            tokens_per_s.push((n_sequences * n_tokens) as f64 / start.elapsed().as_secs_f64());
        }
        let profile = since(&before, self.model.profile());
        Ok(Measured { depth, n_sequences, n_tokens, tokens_per_s, cache_bytes, profile })
    }

    /// Appends `tokens` in the chunks that runners take.
    fn extend(&self, cache: &mut dyn Cache, tokens: &[u32]) -> Result<()> {
        let n_chunks = tokens.len().div_ceil(Workload::CHUNK_TOKENS);
        for (i, tokens) in tokens.chunks(Workload::CHUNK_TOKENS).enumerate() {
            let want = if i + 1 == n_chunks { Want::LastLogits } else { Want::Nothing };
            self.model.forward(&mut [Sequence { cache: &mut *cache, tokens, want }], self.cancel)?;
        }
        Ok(())
    }

    /// Arbitrary tokens from a position of a sequence on, the same in every run.
    fn tokens(&self, sequence: usize, position: usize, n: usize) -> Vec<u32> {
        let vocab_size = self.model.decoder().embedding.vocab_size as u64;
        let first = ((sequence as u64) << 32) + position as u64;
        // The golden ratio in 64 bits: neighbours land far apart.
        let token = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % vocab_size.max(1);
        (first..first + n as u64).map(|i| token(i + 1) as u32).collect()
    }
}

/// What came on top of `before`.
fn since(before: &[OpTime], after: Vec<OpTime>) -> Vec<OpTime> {
    let earlier = |op: &str| before.iter().find(|earlier| earlier.op == op);
    let difference = after.into_iter().map(|now| {
        let (calls, time) = earlier(now.op).map_or((0, Duration::ZERO), |earlier| (earlier.calls, earlier.time));
        OpTime { op: now.op, calls: now.calls - calls, time: now.time.saturating_sub(time) }
    });
    difference.filter(|op| op.calls > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_what_came_on_top() {
        let op = |op, calls, ms| OpTime { op, calls, time: Duration::from_millis(ms) };
        let found =
            since(&[op("qkv", 2, 10), op("head", 1, 5)], vec![op("qkv", 5, 30), op("down", 3, 7), op("head", 1, 5)]);
        assert_eq!(found, [op("qkv", 3, 20), op("down", 3, 7)]);
    }
}
