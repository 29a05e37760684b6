//! A runner for tests: logits are a fixed function of the tokens, abilities and failures are chosen by the test.

use anyhow::{Result, anyhow, ensure};

use crate::{Capabilities, KvStoreStats, LmRunner, RunnerError, Unsupported};

/// Which methods a [`ToyRunner`] has, beside the required ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) prefill: bool,
    pub(crate) decode: bool,
    pub(crate) several: bool,
    pub(crate) reuse: bool,
    pub(crate) clear: bool,
    pub(crate) sessions: bool,
}

impl Abilities {
    pub(crate) const NONE: Abilities =
        Abilities { prefill: false, decode: false, several: false, reuse: false, clear: false, sessions: false };
    pub(crate) const ALL: Abilities =
        Abilities { prefill: true, decode: true, several: true, reuse: true, clear: true, sessions: true };
}

/// One thing a [`ToyRunner`] does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    PrefillKeepsOldContext,
    DecodeForgetsContext,
    SeveralSkipsFirst,
    ReuseIgnoresDivergence,
    BeginPromptKeepsAll,
    RestoreKeepsOldContext,
    RestoreAcceptsRubbish,
    ClearKeepsContext,
    PredictMovesContext,
    ClaimsEmbeddings,
    AcceptsAnyToken,
    ErrorSpoilsContext,
    ShortLogits,
    NotANumber,
}

/// A model of `vocab_size` tokens whose logits depend on every token before.
#[derive(Clone, Debug)]
pub(crate) struct ToyRunner {
    pub(crate) abilities: Abilities,
    pub(crate) vocab_size: usize,
    pub(crate) context_length: usize,
    /// Calls that fail, by count from the first, each once. What is cached afterwards is rubbish.
    pub(crate) failing_calls: Vec<usize>,
    pub(crate) n_calls: usize,
    /// Tokens computed by all calls.
    pub(crate) n_computed: usize,
    pub(crate) context: Vec<u32>,
    /// A call failed, and what is cached is rubbish until something replaces it.
    pub(crate) is_spoilt: bool,
    pub(crate) flaw: Option<Flaw>,
}

/// The error of a failing call.
pub(crate) const INJECTED: &str = "injected failure";

impl ToyRunner {
    pub(crate) fn new(abilities: Abilities) -> ToyRunner {
        ToyRunner {
            abilities,
            vocab_size: 16,
            context_length: 32,
            failing_calls: Vec::new(),
            n_calls: 0,
            n_computed: 0,
            context: Vec::new(),
            is_spoilt: false,
            flaw: None,
        }
    }

    /// What any correct runner of this model answers after `tokens`.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let mix = |state: u64, token: u64| (state ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let state = tokens.iter().fold(1, |state, &token| mix(state, token.into()));
        let mut logits: Vec<f32> =
            (0..self.vocab_size as u64).map(|id| (mix(state, id) >> 40) as f32 / 65536.0).collect();
        match self.flaw {
            Some(Flaw::ShortLogits) => logits.truncate(3),
            Some(Flaw::NotANumber) => logits[3] = f32::NAN,
            _ => {}
        }
        logits
    }

    fn call(&mut self, has_it: bool, operation: &'static str) -> Result<()> {
        ensure!(has_it, Unsupported::new("toy", operation));
        self.n_calls += 1;
        if self.failing_calls.contains(&(self.n_calls - 1)) {
            self.context = vec![0; self.n_calls % 5];
            self.is_spoilt = true;
            return Err(anyhow!(INJECTED));
        }
        Ok(())
    }

    fn check(&mut self, tokens: &[u32]) -> Result<()> {
        let (asked, context_length, vocab_size) = (tokens.len(), self.context_length, self.vocab_size);
        let out_of_range = tokens.iter().find(|&&token| token as usize >= vocab_size);
        let error = match out_of_range {
            _ if tokens.is_empty() => RunnerError::EmptyPrompt,
            _ if asked > context_length => RunnerError::ContextFull { context_length, asked },
            Some(&token) if self.flaw != Some(Flaw::AcceptsAnyToken) => {
                RunnerError::TokenOutOfRange { token, vocab_size }
            }
            _ => return Ok(()),
        };
        if self.flaw == Some(Flaw::ErrorSpoilsContext) {
            self.context.clear();
        }
        Err(error.into())
    }

    fn compute(&mut self, tokens: Vec<u32>, n_cached: usize) -> Result<Vec<f32>> {
        self.check(&tokens)?;
        self.n_computed += tokens.len() - n_cached;
        self.context = tokens;
        let mut logits = self.logits(&self.context);
        if self.is_spoilt {
            logits.reverse();
        }
        Ok(logits)
    }

    fn n_shared(&self, tokens: &[u32]) -> usize {
        let shared = self.context.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        shared.min(tokens.len() - 1)
    }
}

impl LmRunner for ToyRunner {
    fn family(&self) -> &str {
        "toy"
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.call(true, "predict_logits")?;
        self.check(tokens)?;
        self.n_computed += tokens.len();
        if self.flaw == Some(Flaw::PredictMovesContext) {
            self.context = tokens.to_vec();
        }
        Ok(self.logits(tokens))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            prefill_decode_pair: self.abilities.prefill && self.abilities.decode,
            decodes_several: self.abilities.several,
            prefix_reuse: self.abilities.reuse,
            sessions: self.abilities.sessions,
            embeddings: self.flaw == Some(Flaw::ClaimsEmbeddings),
            ..Capabilities::default()
        }
    }

    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.call(self.abilities.prefill, "prefill_logits")?;
        self.is_spoilt = false;
        let mut context = tokens.to_vec();
        if self.flaw == Some(Flaw::PrefillKeepsOldContext) {
            self.check(tokens)?;
            context.splice(0..0, self.context.iter().copied());
        }
        self.compute(context, 0)
    }

    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        self.call(self.abilities.decode, "decode_logits")?;
        ensure!(!self.context.is_empty(), RunnerError::NotPrefilled);
        if self.flaw == Some(Flaw::DecodeForgetsContext) {
            return self.compute(vec![token], 0);
        }
        let longer: Vec<u32> = self.context.iter().copied().chain([token]).collect();
        let n_cached = self.context.len();
        self.compute(longer, n_cached)
    }

    fn decode_logits_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        self.call(self.abilities.several, "decode_logits_each")?;
        ensure!(!self.context.is_empty(), RunnerError::NotPrefilled);
        self.check(tokens)?;
        let n_cached = self.context.len();
        let longer = [&self.context[..], tokens].concat();
        self.check(&longer)?;
        let first = n_cached + usize::from(self.flaw == Some(Flaw::SeveralSkipsFirst));
        let rows = (first..longer.len()).map(|last| self.logits(&longer[..=last])).collect();
        self.compute(longer, n_cached)?;
        Ok(rows)
    }

    fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.call(self.abilities.reuse, "prefill_logits_reusing")?;
        self.check(tokens)?;
        if self.flaw == Some(Flaw::ReuseIgnoresDivergence) {
            let n_cached = self.context.len().min(tokens.len() - 1);
            let context = [&self.context[..n_cached], &tokens[n_cached..]].concat();
            return self.compute(context, n_cached);
        }
        let n_cached = self.n_shared(tokens);
        self.compute(tokens.to_vec(), n_cached)
    }

    fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
        self.call(self.abilities.reuse, "begin_prompt")?;
        self.check(tokens)?;
        let n_cached = self.n_shared(tokens);
        if self.flaw != Some(Flaw::BeginPromptKeepsAll) {
            self.context.truncate(n_cached);
        }
        Ok(n_cached)
    }

    fn clear_kv_cache(&mut self) -> Result<()> {
        self.call(self.abilities.clear, "clear_kv_cache")?;
        if self.flaw != Some(Flaw::ClearKeepsContext) {
            self.context.clear();
        }
        self.is_spoilt = false;
        Ok(())
    }

    fn export_session(&mut self) -> Result<Vec<u8>> {
        self.call(self.abilities.sessions, "export_session")?;
        let count = (self.context.len() as u64).to_le_bytes();
        Ok(count.into_iter().chain(self.context.iter().flat_map(|token| token.to_le_bytes())).collect())
    }

    fn restore_session(&mut self, session: &[u8]) -> Result<()> {
        self.call(self.abilities.sessions, "restore_session")?;
        let saved = session.split_first_chunk::<8>().map(|(count, tokens)| (u64::from_le_bytes(*count), tokens));
        let Some((_, tokens)) = saved.filter(|(count, tokens)| count.checked_mul(4) == Some(tokens.len() as u64))
        else {
            ensure!(
                self.flaw == Some(Flaw::RestoreAcceptsRubbish),
                RunnerError::InvalidSession { family: "toy".to_owned(), reason: "expected whole tokens".to_owned() }
            );
            return Ok(());
        };
        if self.flaw != Some(Flaw::RestoreKeepsOldContext) {
            self.context = tokens.as_chunks::<4>().0.iter().map(|&token| u32::from_le_bytes(token)).collect();
        }
        self.is_spoilt = false;
        Ok(())
    }

    fn kv_store_stats(&self) -> Option<KvStoreStats> {
        Some(KvStoreStats::new(self.context.len(), self.context_length, self.context.len() * 4))
    }
}
