//! A correct prefill/decode pair for every runner.

use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use anyhow::Result;
use kinfolk_decoder::Model;

use crate::{
    runner::{
        Capabilities, GenerateOptions, KvStoreStats, LmRunner, MultimodalPhaseCallback, PromptPart, RunnerError,
        Unsupported,
    },
    sampling::SamplerChain,
};

/// Gives any runner a correct prefill/decode pair, prefix reuse and sessions.
///
/// It keeps the tokens of the context beside the runner, which buys three things:
///
/// - A runner without the pair ([`Unsupported`]) is asked for [`predict_logits`](LmRunner::predict_logits) over the
///   whole context instead; [`fell_back`](Self::fell_back) says so. No other error leads there.
/// - An error leaves the context as it was before the call. What the runner holds after its own error is not trusted:
///   the next call prefills the context anew, so a retry is safe.
/// - A prompt that is empty, too long or names a token that does not exist is refused before the runner sees it, and so
///   is a decode before a prefill, each with its [`RunnerError`].
#[derive(Debug)]
pub struct HostDriven<R> {
    runner: R,
    /// The context as the caller sees it. Empty: not prefilled.
    context: Vec<u32>,
    /// Whether the runner's own context equals `context`, or holds more that it can match against a prompt itself.
    in_step: bool,
    /// The runner lacks the pair.
    fell_back: bool,
    /// The runner lacks prefix reuse.
    reuses_nothing: bool,
}

impl<R: LmRunner> HostDriven<R> {
    /// Wraps a runner. A context it already holds is used by the next
    /// [`prefill_logits_reusing`](LmRunner::prefill_logits_reusing), and is otherwise as if it were not there.
    pub fn new(runner: R) -> HostDriven<R> {
        HostDriven { runner, context: Vec::new(), in_step: true, fell_back: false, reuses_nothing: false }
    }

    /// Whether the slow path is in use: the runner lacks the pair and predicts every token from scratch.
    pub fn fell_back(&self) -> bool {
        self.fell_back
    }

    /// Whether an error or a panic has lost what the runner held, so that the next call computes the context anew.
    pub fn has_lost_context(&self) -> bool {
        !self.in_step && !self.fell_back && !self.context.is_empty()
    }

    /// The tokens of the context.
    pub fn context(&self) -> &[u32] {
        &self.context
    }

    /// The runner inside.
    pub fn get_ref(&self) -> &R {
        &self.runner
    }

    /// Gives the runner back.
    pub fn into_inner(self) -> R {
        self.runner
    }

    /// Generates with the pair: what [`LmRunner::generate`] does where a runner brings nothing of its own.
    pub(crate) fn drive(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        let mut chain = SamplerChain::new(&options.sample)?;
        chain.accept_prompt(prompt);
        let mut logits = self.prefill_logits_reusing(prompt)?;
        let mut reply = Vec::new();
        while reply.len() < options.max_new_tokens {
            let token = chain.sample(&logits)?;
            if options.stop_tokens.contains(&token) {
                break;
            }
            chain.accept(token)?;
            reply.push(token);
            let full = self.context.len() >= self.context_length();
            if on_token(token).is_break() || reply.len() == options.max_new_tokens || full {
                break;
            }
            logits = self.decode_logits(token)?;
        }
        Ok(reply)
    }

    /// Refuses tokens no runner of this model could take as a context.
    pub(crate) fn check_prompt(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(RunnerError::EmptyPrompt.into());
        }
        self.check_room(tokens.len())?;
        tokens.iter().try_for_each(|&token| self.check_token(token))
    }

    fn check_room(&self, asked: usize) -> Result<()> {
        let context_length = self.context_length();
        match asked <= context_length {
            true => Ok(()),
            false => Err(RunnerError::ContextFull { context_length, asked }.into()),
        }
    }

    fn check_token(&self, token: u32) -> Result<()> {
        let vocab_size = self.vocab_size();
        match usize::try_from(token).is_ok_and(|id| id < vocab_size) {
            true => Ok(()),
            false => Err(RunnerError::TokenOutOfRange { token, vocab_size }.into()),
        }
    }

    /// Makes the runner hold `tokens` by its cheapest way that is safe now. Says `in_step` only if that succeeded.
    fn establish(&mut self, tokens: &[u32], reuse: bool) -> Result<Vec<f32>> {
        let trusted = std::mem::replace(&mut self.in_step, false);
        if !self.fell_back && reuse && trusted && !self.reuses_nothing {
            match self.runner.prefill_logits_reusing(tokens) {
                Err(error) if is_unsupported(&error) => self.reuses_nothing = true,
                answer => return self.now_in_step(answer),
            }
        }
        if !self.fell_back {
            match self.runner.prefill_logits(tokens) {
                Err(error) if is_unsupported(&error) => self.fall_back(),
                answer => return self.now_in_step(answer),
            }
        }
        self.runner.predict_logits(tokens)
    }

    fn now_in_step(&mut self, answer: Result<Vec<f32>>) -> Result<Vec<f32>> {
        self.in_step = answer.is_ok();
        answer
    }

    fn fall_back(&mut self) {
        self.fell_back = true;
        tracing::debug!(family = self.runner.family(), "no prefill/decode pair: predicting every token from scratch");
    }

    /// Passes on the answer of a call that leaves the context alone. After an error that is no longer sure.
    fn aside<T>(&mut self, answer: Result<T>) -> Result<T> {
        if answer.as_ref().is_err_and(|error| !is_unsupported(error)) {
            self.in_step = false;
        }
        answer
    }

    /// Passes on the answer of a call that leaves the runner's context unspecified.
    fn moved_on<T>(&mut self, answer: Result<T>) -> Result<T> {
        if answer.is_ok() {
            self.forget();
        }
        self.aside(answer)
    }

    /// Empties the context without the runner's doing.
    fn forget(&mut self) {
        self.context.clear();
        self.in_step = false;
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: LmRunner> LmRunner for HostDriven<R> {
    fn family(&self) -> &str {
        self.runner.family()
    }

    fn vocab_size(&self) -> usize {
        self.runner.vocab_size()
    }

    fn context_length(&self) -> usize {
        self.runner.context_length()
    }

    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_prompt(tokens)?;
        let answer = self.runner.predict_logits(tokens);
        self.aside(answer)
    }

    fn capabilities(&self) -> Capabilities {
        let inside = self.runner.capabilities();
        Capabilities {
            prefill_decode_pair: true,
            sessions: true,
            decodes_several: inside.decodes_several && !self.fell_back,
            prefix_reuse: inside.prefix_reuse && !self.fell_back && !self.reuses_nothing,
            ..inside
        }
    }

    fn prefill_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_prompt(tokens)?;
        let logits = self.establish(tokens, false)?;
        self.context = tokens.to_vec();
        Ok(logits)
    }

    fn decode_logits(&mut self, token: u32) -> Result<Vec<f32>> {
        if self.context.is_empty() {
            return Err(RunnerError::NotPrefilled.into());
        }
        self.check_token(token)?;
        self.check_room(self.context.len() + 1)?;
        // Before the call, so that a panic inside the runner leaves the truth behind.
        if std::mem::replace(&mut self.in_step, false) {
            match self.runner.decode_logits(token) {
                Err(error) if is_unsupported(&error) => self.fall_back(),
                answer => {
                    let logits = self.now_in_step(answer)?;
                    self.context.push(token);
                    return Ok(logits);
                }
            }
        }
        let mut longer = self.context.clone();
        longer.push(token);
        let logits = self.establish(&longer, false)?;
        self.context = longer;
        Ok(logits)
    }

    /// One by one where the runner cannot do several at once. An error then takes back those before it.
    fn decode_logits_each(&mut self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        if self.context.is_empty() {
            return Err(RunnerError::NotPrefilled.into());
        }
        self.check_room(self.context.len().saturating_add(tokens.len()))?;
        self.check_prompt(tokens)?;
        if self.capabilities().decodes_several && std::mem::replace(&mut self.in_step, false) {
            let rows = self.runner.decode_logits_each(tokens)?;
            self.in_step = true;
            self.context.extend_from_slice(tokens);
            return Ok(rows);
        }
        let n_before = self.context.len();
        let rows = tokens.iter().map(|&token| self.decode_logits(token)).collect::<Result<_>>();
        if rows.is_err() {
            self.context.truncate(n_before);
            self.in_step = false;
        }
        rows
    }

    fn prefill_logits_reusing(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_prompt(tokens)?;
        let logits = self.establish(tokens, true)?;
        self.context = tokens.to_vec();
        Ok(logits)
    }

    fn begin_prompt(&mut self, tokens: &[u32]) -> Result<usize> {
        self.check_prompt(tokens)?;
        if !std::mem::replace(&mut self.in_step, false) || self.fell_back || self.reuses_nothing {
            self.forget();
            return Ok(0);
        }
        match self.runner.begin_prompt(tokens) {
            Ok(cached) => {
                let cached = cached.min(tokens.len() - 1);
                self.context = tokens[..cached].to_vec();
                self.in_step = true;
                Ok(cached)
            }
            Err(error) if is_unsupported(&error) => {
                self.forget();
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn clear_kv_cache(&mut self) -> Result<()> {
        self.in_step = false;
        match self.runner.clear_kv_cache() {
            Ok(()) => {
                self.context.clear();
                self.in_step = true;
                Ok(())
            }
            // The next prefill starts a new context, whatever the runner still holds.
            Err(error) if is_unsupported(&error) => {
                self.forget();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn export_session(&mut self) -> Result<Vec<u8>> {
        let inside = match self.in_step && !self.fell_back {
            true => match self.runner.export_session() {
                Ok(bytes) => Some(Cow::Owned(bytes)),
                Err(error) if is_unsupported(&error) => None,
                Err(error) => return self.aside(Err(error)),
            },
            false => None,
        };
        Ok(SavedSession { context: self.context.clone(), inside }.to_bytes())
    }

    fn restore_session(&mut self, session: &[u8]) -> Result<()> {
        let saved = SavedSession::from_bytes(session)
            .map_err(|reason| RunnerError::InvalidSession { family: self.family().to_owned(), reason })?;
        if !saved.context.is_empty() {
            self.check_prompt(&saved.context)?;
        }
        self.in_step = false;
        if let Some(inside) = saved.inside {
            match self.runner.restore_session(&inside) {
                Ok(()) => self.in_step = true,
                Err(error) if is_unsupported(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.context = saved.context;
        Ok(())
    }

    fn kv_store_stats(&self) -> Option<KvStoreStats> {
        let stats = self.runner.kv_store_stats()?;
        Some(KvStoreStats { tokens: self.context.len(), ..stats })
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        self.check_prompt(prompt)?;
        let answer = self.runner.generate(prompt, options, on_token);
        self.moved_on(answer)
    }

    fn embed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_prompt(tokens)?;
        let answer = self.runner.embed(tokens);
        self.aside(answer)
    }

    fn supports_multimodal(&self) -> bool {
        self.runner.supports_multimodal()
    }

    fn set_multimodal_phase_callback(&mut self, callback: Option<MultimodalPhaseCallback>) {
        self.runner.set_multimodal_phase_callback(callback)
    }

    fn generate_multimodal(
        &mut self,
        prompt: &[PromptPart],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<Vec<u32>> {
        let answer = self.runner.generate_multimodal(prompt, options, on_token);
        self.moved_on(answer)
    }

    fn model(&self) -> Option<Arc<dyn Model>> {
        self.runner.model()
    }
}

/// Whether the error says that the ability is not there, as opposed to that it failed.
pub(crate) fn is_unsupported(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Unsupported>().is_some()
}

/// A saved context: the tokens, and what the runner saved of them if it can.
///
/// ```text
/// "kinfolk1"  8 bytes
/// n_tokens    u64 LE
/// tokens      n_tokens × u32 LE
/// has_inside  u8, 0 or 1; the runner's own bytes follow 1 up to the end
/// ```
struct SavedSession<'a> {
    context: Vec<u32>,
    inside: Option<Cow<'a, [u8]>>,
}

const SESSION_MAGIC: &[u8; 8] = b"kinfolk1";

impl<'a> SavedSession<'a> {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = SESSION_MAGIC.to_vec();
        bytes.extend((self.context.len() as u64).to_le_bytes());
        bytes.extend(self.context.iter().flat_map(|token| token.to_le_bytes()));
        bytes.push(self.inside.is_some().into());
        bytes.extend(self.inside.iter().flat_map(|inside| inside.iter()));
        bytes
    }

    /// The error says what was expected and found.
    fn from_bytes(bytes: &'a [u8]) -> std::result::Result<SavedSession<'a>, String> {
        let rest = bytes.strip_prefix(SESSION_MAGIC).ok_or("expected a saved session, found other bytes")?;
        let (n_tokens, rest) = rest.split_first_chunk::<8>().ok_or("expected a token count, found the end")?;
        let n_tokens = u64::from_le_bytes(*n_tokens);
        let n_bytes = usize::try_from(n_tokens).ok().and_then(|n| n.checked_mul(4)).unwrap_or(usize::MAX);
        let (tokens, rest) = rest
            .split_at_checked(n_bytes)
            .ok_or_else(|| format!("expected {n_tokens} tokens, found {} bytes", rest.len()))?;
        let context = tokens.as_chunks::<4>().0.iter().map(|&token| u32::from_le_bytes(token)).collect();
        let inside = match rest {
            [0] => None,
            [1, inside @ ..] => Some(Cow::Borrowed(inside)),
            _ => return Err("expected the runner's own part after the tokens, found other bytes".to_owned()),
        };
        Ok(SavedSession { context, inside })
    }
}

#[cfg(test)]
mod tests;
