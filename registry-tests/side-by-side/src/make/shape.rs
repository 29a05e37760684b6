//! What a made file says it is.

use std::fmt;

use clap::ValueEnum;
use llama_cpp_sys_2 as ggml;

use super::{
    gguf::{Tensor, Value},
    mixture::{Mixture, Use},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Qwen3 with 0.6 G weights.
    #[value(name = "qwen3-0.6b")]
    Qwen3_0_6B,
    /// Qwen3 with as little as every type of weights can have, to try things out.
    #[value(name = "qwen3-tiny")]
    Qwen3Tiny,
    /// Qwen3 with experts: a few layers of half the width of 30B-A3B, with as many experts.
    #[value(name = "qwen3-moe")]
    Qwen3Moe,
}

/// Sizes of a Qwen3.
struct Sizes {
    n_layers: usize,
    hidden: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    /// Of each expert, if there are any.
    intermediate: usize,
    experts: Option<Experts>,
    vocab: usize,
}

struct Experts {
    n: usize,
    /// How many a token goes to.
    n_used: usize,
}

impl Shape {
    fn sizes(self) -> Sizes {
        match self {
            Shape::Qwen3_0_6B => Sizes {
                n_layers: 28,
                hidden: 1024,
                n_heads: 16,
                n_kv_heads: 8,
                head_dim: 128,
                intermediate: 3072,
                experts: None,
                vocab: 151_936,
            },
            Shape::Qwen3Tiny => Sizes {
                n_layers: 2,
                hidden: 256,
                n_heads: 4,
                n_kv_heads: 2,
                head_dim: 64,
                intermediate: 512,
                experts: None,
                vocab: 1024,
            },
            Shape::Qwen3Moe => Sizes {
                n_layers: 4,
                hidden: 1024,
                n_heads: 16,
                n_kv_heads: 4,
                head_dim: 128,
                intermediate: 512,
                experts: Some(Experts { n: 128, n_used: 8 }),
                vocab: 32_768,
            },
        }
    }

    pub fn metadata(self, mixture: Mixture) -> Vec<(String, Value)> {
        let s = self.sizes();
        let size = |n: usize| Value::U32(n as u32);
        let (tokens, kinds) = tokens(s.vocab);
        let architecture = if s.experts.is_some() { "qwen3moe" } else { "qwen3" };
        let of_experts = s.experts.iter().flat_map(|experts| {
            [
                ("expert_count", size(experts.n)),
                ("expert_used_count", size(experts.n_used)),
                ("expert_feed_forward_length", size(s.intermediate)),
            ]
        });
        let sizes = [
            ("block_count", size(s.n_layers)),
            ("context_length", Value::U32(40_960)),
            ("embedding_length", size(s.hidden)),
            ("feed_forward_length", size(s.intermediate)),
            ("attention.head_count", size(s.n_heads)),
            ("attention.head_count_kv", size(s.n_kv_heads)),
            ("attention.key_length", size(s.head_dim)),
            ("attention.value_length", size(s.head_dim)),
            ("attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
            ("rope.freq_base", Value::F32(1e6)),
        ];
        let of_model = sizes.into_iter().chain(of_experts).map(|(key, value)| (format!("{architecture}.{key}"), value));
        let of_file = [
            ("general.architecture", Value::Text(architecture.to_owned())),
            ("general.name", Value::Text(format!("random weights in the shape of {self}"))),
            ("general.file_type", Value::U32(mixture.file_type())),
            ("general.quantization_version", Value::U32(2)),
            ("tokenizer.ggml.model", Value::Text("gpt2".to_owned())),
            ("tokenizer.ggml.pre", Value::Text("qwen2".to_owned())),
            ("tokenizer.ggml.tokens", Value::Texts(tokens)),
            ("tokenizer.ggml.token_type", Value::I32s(kinds)),
            ("tokenizer.ggml.merges", Value::Texts(letters().map(|(a, b)| format!("{a} {b}")).collect())),
            ("tokenizer.ggml.eos_token_id", size(s.vocab - 1)),
            ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
        ];
        of_file.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(of_model).collect()
    }

    pub fn tensors(self, mixture: Mixture) -> Vec<Tensor> {
        let s = self.sizes();
        let matrix = |name: String, rows: usize, columns: usize, used_for: Use| Tensor {
            name,
            columns,
            rows: Some(rows),
            experts: None,
            dtype: mixture.tensor_type(used_for, s.n_layers),
        };
        let norm = |name: String, columns: usize| Tensor {
            name,
            columns,
            rows: None,
            experts: None,
            dtype: ggml::GGML_TYPE_F32,
        };
        let (q, kv) = (s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim);
        let mut tensors = vec![
            matrix("token_embd.weight".to_owned(), s.vocab, s.hidden, Use::Embedding),
            norm("output_norm.weight".to_owned(), s.hidden),
        ];
        for layer in 0..s.n_layers {
            let name = |of: &str| format!("blk.{layer}.{of}.weight");
            let delicate = Use::Delicate { layer };
            tensors.extend([
                norm(name("attn_norm"), s.hidden),
                matrix(name("attn_q"), q, s.hidden, Use::Other),
                matrix(name("attn_k"), kv, s.hidden, Use::Other),
                matrix(name("attn_v"), kv, s.hidden, delicate),
                matrix(name("attn_output"), s.hidden, q, Use::Other),
                norm(name("attn_q_norm"), s.head_dim),
                norm(name("attn_k_norm"), s.head_dim),
                norm(name("ffn_norm"), s.hidden),
            ]);
            let experts = s.experts.as_ref().map(|experts| experts.n);
            let suffix = if experts.is_some() { "_exps" } else { "" };
            let projection = |of: &str, rows: usize, columns: usize, used_for: Use| {
                let name = name(&format!("ffn_{of}{suffix}"));
                Tensor { experts, ..matrix(name, rows, columns, used_for) }
            };
            tensors.extend(experts.map(|n| matrix(name("ffn_gate_inp"), n, s.hidden, Use::Router)));
            tensors.extend([
                projection("gate", s.intermediate, s.hidden, Use::Other),
                projection("up", s.intermediate, s.hidden, Use::Other),
                projection("down", s.hidden, s.intermediate, delicate),
            ]);
        }
        tensors
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// Every pair of small letters.
fn letters() -> impl Iterator<Item = (char, char)> {
    ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| (a, b)))
}

/// A vocabulary of byte-level BPE that encodes any text: the bytes, pairs of letters, tokens that no text gives, and an end.
fn tokens(n: usize) -> (Vec<String>, Vec<i32>) {
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    const UNUSED: i32 = 5;
    let bytes = (0..=255).map(|byte| byte_letter(byte).to_string());
    let mut tokens: Vec<String> = bytes.chain(letters().map(|(a, b)| format!("{a}{b}"))).collect();
    let mut kinds = vec![NORMAL; tokens.len()];
    let unused = tokens.len()..n - 1;
    kinds.extend(unused.clone().map(|_| UNUSED));
    tokens.extend(unused.map(|i| format!("<unused{i}>")));
    kinds.push(CONTROL);
    tokens.push("<|endoftext|>".to_owned());
    (tokens, kinds)
}

/// The letter that stands for a byte in byte-level BPE: itself if it can be seen, and otherwise the next from U+0100 on.
fn byte_letter(byte: u8) -> char {
    let is_seen = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_seen(&byte) {
        return char::from(byte);
    }
    let n_before = (0..byte).filter(|byte| !is_seen(byte)).count() as u32;
    char::from_u32(0x100 + n_before).expect("there are fewer than 256 of them")
}
