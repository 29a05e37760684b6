//! The one reckoning of what a model takes, for an admission and for a load.

use kinfolk_decoder::{Decoder, Executor, LoadRole, Source, Weights, Workload};

use super::{Memory, TooLarge, remedies::remedies};
use crate::load::LoadChoiceError;

/// Memory that one token of a vocabulary takes in tokenizer and detokenizer. Measured in the text layer: 480 bytes with the 49,152
/// tokens and merges of SmolLM2, 240 with the 262,144 of Gemma 3.
const TEXT_BYTES_PER_TOKEN: u64 = 300;

/// Memory of a program without a model: what `kinfolk families` takes.
const PROGRAM_BYTES: u64 = 14 << 20;

/// A described model with the table of its tensors, on one executor.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub decoder: &'a Decoder,
    pub source: &'a Source,
    pub executor: &'static dyn Executor,
    /// Bytes of the listed files that the table was guessed for, head included.
    pub file_bytes: Option<u64>,
}

impl Candidate<'_> {
    /// What it takes with `weights` bound for the workload's role.
    pub fn memory(&self, weights: &Weights<'_>, workload: &Workload) -> Memory {
        let need = self.executor.memory(self.decoder, weights, workload);
        let weight_bytes = need.weight_bytes.max(self.file_bytes_of(workload.role));
        let text_bytes = (self.decoder.embedding.vocab_size as u64).saturating_mul(TEXT_BYTES_PER_TOKEN);
        let host_bytes = text_bytes.saturating_add(PROGRAM_BYTES);
        let parts = [weight_bytes, need.cache_bytes, need.scratch_bytes, host_bytes];
        Memory {
            weight_bytes,
            cache_bytes: need.cache_bytes,
            scratch_bytes: need.scratch_bytes,
            host_bytes,
            total_bytes: parts.into_iter().fold(0, u64::saturating_add),
        }
    }

    /// [`memory`](Self::memory) for a workload of any role; `None` if the table does not bind for it.
    pub fn memory_for(&self, workload: &Workload) -> Option<Memory> {
        let weights = self.decoder.bind_for(self.source, workload.role).ok()?;
        Some(self.memory(&weights, workload))
    }

    /// The listed files less what the role leaves out of them; 0 if they are not known.
    pub fn file_bytes_of(&self, role: LoadRole) -> u64 {
        let Some(file_bytes) = self.file_bytes else { return 0 };
        let taken = self.decoder.tensors(self.source, role).map(|t| t.n_bytes() as u64).fold(0, u64::saturating_add);
        file_bytes.saturating_sub(self.source.tensor_bytes().saturating_sub(taken))
    }

    /// Why it does not fit into `available_bytes`, with what would. `alternatives` are other models of a listing, by file name.
    pub fn too_large(
        &self,
        memory: Memory,
        workload: &Workload,
        available_bytes: u64,
        alternatives: Vec<(String, Source, Option<u64>)>,
    ) -> TooLarge {
        let Workload { context_length, n_sequences, .. } = *workload;
        let remedies = remedies(self, memory, workload, available_bytes, alternatives);
        TooLarge { memory, context_length, n_sequences, available_bytes, remedies }
    }

    /// Holds it against a host's own limit.
    ///
    /// # Errors
    /// `TooLarge`. What does not bind is left to the load to say.
    pub fn check(&self, workload: &Workload, limit_bytes: u64) -> Result<(), LoadChoiceError> {
        match self.memory_for(workload) {
            Some(memory) if memory.total_bytes > limit_bytes => {
                let too_large = self.too_large(memory, workload, limit_bytes, Vec::new());
                Err(LoadChoiceError::TooLarge(Box::new(too_large)))
            }
            _ => Ok(()),
        }
    }
}
