//! What a forward pass has to do with a model's weights.

use anyhow::Result;
use kinfolk::decoder::{Decoder, Ffn, Model, Source, Stored};

/// Weights by how often a pass uses them. Vectors are left out: norms and biases are next to nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Multiplied for every token.
    token: Weights,
    /// Of these, one token takes `expert_share`.
    experts: Weights,
    expert_share: f64,
    /// Multiplied for every row of logits.
    head: Weights,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Weights {
    n: f64,
    /// As the checkpoint stores them.
    bytes: f64,
}

impl Work {
    /// Counts the weights of `model`, which was loaded from `source`.
    ///
    /// # Errors
    /// The source has changed since.
    pub fn of(model: &dyn Model, source: &Source) -> Result<Work> {
        let decoder = model.decoder();
        let stored: Vec<Stored> = decoder.bind(source)?.stored().filter(|stored| !stored.is_vector).collect();
        let sum = |takes: &dyn Fn(&str) -> bool| {
            let mut weights = Weights::default();
            for stored in stored.iter().filter(|stored| takes(stored.slot.pattern)) {
                weights.n += stored.n_elements as f64;
                weights.bytes += stored.n_bytes() as f64;
            }
            weights
        };
        let is_expert = |pattern: &str| pattern.contains("{e}");
        let head = sum(&|pattern| pattern == "head");
        Ok(Work {
            token: sum(&|pattern| pattern.starts_with("layers.") && !is_expert(pattern)),
            experts: sum(&is_expert),
            expert_share: expert_share(decoder),
            // A table that is also the head.
            head: if head.n > 0.0 { head } else { sum(&|pattern| pattern == "embed") },
        })
    }

    /// Multiplications with their addition of a prompt of `n_tokens`, attention aside: each weight once per token, the head once.
    pub fn prompt_macs(&self, n_tokens: usize) -> f64 {
        (self.token.n + self.experts.n * self.expert_share) * n_tokens as f64 + self.head.n
    }

    /// Bytes of weights that a step of `n_sequences` reads if it reads each once, and no expert serves two sequences.
    pub fn step_bytes(&self, n_sequences: usize) -> f64 {
        let experts = (self.expert_share * n_sequences as f64).min(1.0);
        self.token.bytes + self.experts.bytes * experts + self.head.bytes
    }
}

/// How much of all experts one token runs.
fn expert_share(decoder: &Decoder) -> f64 {
    let of_layer = decoder.layers.iter().filter_map(|layer| match &layer.ffn {
        Ffn::Moe(moe) => Some((moe.top_k, moe.n_experts)),
        _ => None,
    });
    let (run, all) = of_layer.fold((0, 0), |(run, all), (top_k, n_experts)| (run + top_k, all + n_experts));
    run as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_takes_its_share_of_experts_and_a_prompt_the_head_once() {
        let weights = |n: f64| Weights { n, bytes: n / 2.0 };
        let work = Work { token: weights(10.0), experts: weights(80.0), expert_share: 0.25, head: weights(100.0) };
        assert_eq!(work.prompt_macs(3), 3.0 * 30.0 + 100.0);
        assert_eq!(work.step_bytes(1), 5.0 + 10.0 + 50.0);
        assert_eq!(work.step_bytes(8), 5.0 + 40.0 + 50.0, "no more than all of them");
    }
}
