//! What a request asks of the sampler.

use super::SampleError;

/// Sampling settings of one request. Flat, with the names the field uses; a value that switches a stage off is stated per field.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOpts {
    /// Divides the logits. 0 chooses the likeliest token (the lowest id on a tie) and draws nothing.
    pub temperature: f32,
    /// Keeps the k likeliest tokens; of those that tie at the cut, the lowest ids. 0: off.
    pub top_k: usize,
    /// Keeps the likeliest tokens until their probabilities sum to this. 1: off.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the likeliest. 0: off.
    pub min_p: f32,
    /// Divides positive logits of recent tokens by this and multiplies negative ones (Keskar et al. 2019, arXiv:1909.05858). 1: off.
    pub repetition_penalty: f32,
    /// How many of the latest tokens, prompt included, the penalty looks at. 0: none.
    pub repetition_window: usize,
    /// Tokens every truncating stage keeps at least.
    pub min_keep: usize,
    /// Seed of this request's own generator. `None`: a different one each time.
    pub seed: Option<u64>,
}

impl Default for SampleOpts {
    /// Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalty: the defaults people know from llama.cpp.
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            repetition_window: 64,
            min_keep: 1,
            seed: None,
        }
    }
}

impl SampleOpts {
    /// The likeliest token at every step.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751): `temperature` and `top_p`, every other stage off.
    pub fn nucleus(temperature: f32, top_p: f32) -> Self {
        Self { temperature, top_p, top_k: 0, min_p: 0.0, ..Self::default() }
    }

    /// Whether the likeliest token is chosen without a draw.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks every field's range.
    ///
    /// # Errors
    /// `OutOfRange` naming the first field that no sampler can honour.
    pub fn validate(&self) -> Result<(), SampleError> {
        let check = |field, value: f32, ok: bool, expected| match ok {
            true => Ok(()),
            false => Err(SampleError::OutOfRange { field, expected, found: value.to_string() }),
        };
        let t = self.temperature;
        check("temperature", t, t.is_finite() && t >= 0.0, "a number ≥ 0")?;
        check("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "a number from 0 to 1")?;
        check("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "a number from 0 to 1")?;
        let r = self.repetition_penalty;
        check("repetition_penalty", r, r.is_finite() && r > 0.0, "a number > 0")
    }
}
