//! Bigrams: the next token's logits are the row of the last token in one matrix, and nothing before it counts.
//!
//! No block of the description language says that, so this family writes its runner by hand. It has the four required methods and
//! no more; the runtime makes up for the rest. A checkpoint is a folder with
//!
//! - `config.json`: `"model_type": "bigram"`, `vocab_size`, `max_position_embeddings`;
//! - `model.safetensors`: `bigram.weight`, `[vocab, vocab]`, row = last token, column = next.

use anyhow::{Context, Result, ensure};
use kinfolk::{LmRunner, LoadRequest, RunnerError};

kinfolk::register_lm_runner! {
    family = "bigram",
    description = "Byte bigrams",
    arches = ["bigram"],
    load = load,
}

/// The largest vocabulary: the square of it is the size of the matrix.
const MAX_VOCAB_SIZE: usize = 1 << 12;

fn load(request: LoadRequest) -> Result<Box<dyn LmRunner>> {
    let config = request.source.config();
    let vocab_size = config.usize("vocab_size")?;
    ensure!(
        (1..=MAX_VOCAB_SIZE).contains(&vocab_size),
        "expected a vocabulary of 1..={MAX_VOCAB_SIZE}, found {vocab_size}"
    );
    let context_length = config.usize("max_position_embeddings")?;
    let tensor = request.source.tensor("bigram.weight").context("tensor `bigram.weight` is missing")?;
    let (expected, found) = ([vocab_size; 2], &tensor.info.shape);
    ensure!(*found == expected, "tensor `bigram.weight`: expected shape {expected:?}, found {found:?}");
    let context_length = request.options.max_seq.unwrap_or(context_length).min(context_length);
    Ok(Box::new(Bigram { weight: tensor.to_f32()?, vocab_size, context_length }))
}

struct Bigram {
    weight: Vec<f32>, // [vocab, vocab]
    vocab_size: usize,
    context_length: usize,
}

impl LmRunner for Bigram {
    fn family(&self) -> &str {
        FAMILY.name
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn predict_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let (vocab_size, context_length, asked) = (self.vocab_size, self.context_length, tokens.len());
        let &last = tokens.last().ok_or(RunnerError::EmptyPrompt)?;
        ensure!(asked <= context_length, RunnerError::ContextFull { context_length, asked });
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab_size) {
            return Err(RunnerError::TokenOutOfRange { token, vocab_size }.into());
        }
        let row = last as usize * vocab_size;
        Ok(self.weight[row..row + vocab_size].to_vec())
    }
}

#[cfg(test)]
mod tests;
