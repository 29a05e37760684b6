//! candle's quantised models. They keep one sequence, and take their threads from `RAYON_NUM_THREADS`.

use std::{fs::File, io::BufReader, path::Path};

use anyhow::{Result, bail, ensure};
use candle_core::{Device, Tensor, quantized::gguf_file::Content};
use candle_transformers::models::{quantized_gemma3, quantized_llama, quantized_qwen3};

use super::{Engine, Found};

/// Tokens of a prompt that go through the model at once, as in the other two engines.
const CHUNK_TOKENS: usize = 512;

#[derive(Clone)]
enum Weights {
    Llama(quantized_llama::ModelWeights),
    Gemma3(quantized_gemma3::ModelWeights),
    Qwen3(quantized_qwen3::ModelWeights),
}

pub struct Candle {
    /// With an empty context. Clones share the weights and have a context of their own.
    empty: Weights,
    base: Weights,
    n_base_tokens: usize,
    current: Weights,
    n_tokens: usize,
}

impl Candle {
    pub fn load(path: &Path) -> Result<Candle> {
        let mut file = BufReader::new(File::open(path)?);
        let content = Content::read(&mut file)?;
        let architecture = content.metadata.get("general.architecture").map(|value| value.to_string()).transpose()?;
        let device = Device::Cpu;
        let empty = match architecture.map(String::as_str) {
            Some("llama") => Weights::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &device)?),
            Some("gemma3") => Weights::Gemma3(quantized_gemma3::ModelWeights::from_gguf(content, &mut file, &device)?),
            Some("qwen3") => Weights::Qwen3(quantized_qwen3::ModelWeights::from_gguf(content, &mut file, &device)?),
            other => bail!("architecture: expected llama, gemma3 or qwen3, found {other:?}"),
        };
        Ok(Candle { base: empty.clone(), n_base_tokens: 0, current: empty.clone(), n_tokens: 0, empty })
    }
}

impl Weights {
    /// Appends `tokens` after `held` and gives the logits after the last.
    fn extend(&mut self, held: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let mut held = held;
        let mut last = Vec::new();
        for chunk in tokens.chunks(CHUNK_TOKENS) {
            let input = Tensor::new(chunk, &Device::Cpu)?.unsqueeze(0)?;
            let logits = match self {
                Weights::Llama(model) => model.forward(&input, held)?,
                Weights::Gemma3(model) => model.forward(&input, held)?,
                Weights::Qwen3(model) => model.forward(&input, held)?,
            };
            last = logits.flatten_all()?.to_vec1::<f32>()?;
            held += chunk.len();
        }
        Ok(last)
    }
}

impl Engine for Candle {
    fn about(&self) -> String {
        let avx = candle_core::utils::with_avx();
        format!(
            "candle, AVX {avx}, F16C {}, {} threads",
            candle_core::utils::with_f16c(),
            candle_core::utils::get_num_threads()
        )
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.empty.clone().extend(0, tokens)?;
        Ok(())
    }

    fn start(&mut self, tokens: &[u32], n_sequences: usize) -> Result<()> {
        ensure!(n_sequences == 1, "one sequence at a time");
        let mut base = self.empty.clone();
        base.extend(0, tokens)?;
        (self.base, self.n_base_tokens) = (base, tokens.len());
        self.rewind()
    }

    fn rewind(&mut self) -> Result<()> {
        (self.current, self.n_tokens) = (self.base.clone(), self.n_base_tokens);
        Ok(())
    }

    fn step(&mut self, tokens: &[u32]) -> Result<()> {
        self.current.extend(self.n_tokens, tokens)?;
        self.n_tokens += 1;
        Ok(())
    }

    fn logits(&mut self, tokens: &[u32], pass_tokens: usize, found: &mut Found<'_>) -> Result<()> {
        ensure!(pass_tokens == 1, "gives the logits of the last position of a pass alone");
        let mut current = self.empty.clone();
        (0..tokens.len()).try_for_each(|i| found(&current.extend(i, &tokens[i..=i])?))
    }
}
