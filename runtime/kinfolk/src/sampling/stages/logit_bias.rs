//! Logit bias.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use crate::sampling::{Candidates, SampleError, Stage, Step};

/// Adds a number to the logits of chosen tokens; minus infinity forbids a token.
///
/// Biases of one token are summed up front: llama.cpp adds each of them or only the first, depending on what ran before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitBias {
    biases: BTreeMap<u32, f32>,
}

impl LogitBias {
    /// Biases by token id.
    ///
    /// # Errors
    /// `Bias` if one is NaN or plus infinity.
    pub fn new(biases: impl IntoIterator<Item = (u32, f32)>) -> Result<LogitBias, SampleError> {
        let mut all = LogitBias::default();
        for (id, bias) in biases {
            all.add(id, bias)?;
        }
        Ok(all)
    }

    /// Reads the form of OpenAI's API, `{"123": -100}`, and that of llama.cpp, `[[123, -100]]`. null is none.
    ///
    /// # Errors
    /// `Bias` naming what is no token id or no number.
    pub fn from_json(value: &Value) -> Result<LogitBias, SampleError> {
        let unexpected = |key: &str, expected, found: &Value| SampleError::Bias {
            key: key.to_owned(),
            expected,
            found: found.to_string(),
        };
        let id = |key: &str| {
            let found = || Value::from(key);
            key.parse::<u32>().map_err(|_| unexpected(key, "a token id as the key", &found()))
        };
        let mut all = LogitBias::default();
        let mut add = |key: &str, bias: &Value| {
            let number = bias.as_f64().ok_or_else(|| unexpected(key, "a number", bias))?;
            all.add(id(key)?, number as f32)
        };
        match value {
            Value::Null => {}
            Value::Object(map) => map.iter().try_for_each(|(key, bias)| add(key, bias))?,
            Value::Array(pairs) => {
                for pair in pairs {
                    match pair.as_array().map(Vec::as_slice) {
                        Some([key, bias]) => add(&key.to_string(), bias)?,
                        _ => return Err(unexpected("", "pairs of a token id and a number", pair)),
                    }
                }
            }
            other => return Err(unexpected("", "an object of token ids and numbers", other)),
        }
        Ok(all)
    }

    fn add(&mut self, id: u32, bias: f32) -> Result<(), SampleError> {
        let sum = self.biases.get(&id).copied().unwrap_or(0.0) + bias;
        if sum.is_nan() || sum == f32::INFINITY {
            let (key, found) = (id.to_string(), bias.to_string());
            return Err(SampleError::Bias { key, expected: "a finite number or minus infinity", found });
        }
        self.biases.insert(id, sum);
        Ok(())
    }

    /// Whether there is no bias.
    pub fn is_empty(&self) -> bool {
        self.biases.is_empty()
    }

    /// Biases by token id, ids ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f32)> {
        self.biases.iter().map(|(id, bias)| (*id, *bias))
    }
}

impl Stage for LogitBias {
    fn apply(&mut self, candidates: &mut Candidates, _step: &mut Step<'_>) {
        for (id, bias) in self.iter() {
            if bias == f32::NEG_INFINITY {
                candidates.ban(id);
            } else {
                candidates.change(id, |logit| logit + bias);
            }
        }
    }

    fn check(&self, vocab_size: usize) -> Result<(), SampleError> {
        match self.biases.last_key_value() {
            Some((&found, _)) if found as usize >= vocab_size => {
                Err(SampleError::OutsideVocabulary { what: "logit bias", found, vocab_size })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for LogitBias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "logit bias of {} tokens", self.biases.len())
    }
}
