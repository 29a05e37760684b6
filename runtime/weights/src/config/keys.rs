//! Every spelling of every key: the one table that knows what published configs call a quantity.
//!
//! Only names that mean the same are one row. Those left out on purpose: `v_head_dim` and `global_head_dim` are no `head_dim`;
//! `intermediate_size_mlp` (llama 4) is the dense width where `intermediate_size` is the experts'; `max_length` is a
//! generation setting; the two epsilons stay apart because a family with both kinds of norm has both.

/// The spellings of one quantity.
pub(super) struct Key {
    /// The name it is asked for by.
    pub canonical: &'static str,
    /// Other names in `config.json`, in order of preference. A dot leads into a nested object.
    pub json: &'static [&'static str],
    /// Names in GGUF, behind the architecture (`llama.`) unless they are of `general.` or `tokenizer.`.
    pub gguf: &'static [&'static str],
}

/// The keys of one object: its rows, and where GGUF keeps keys that have no row.
pub(super) struct KeyTable {
    rows: &'static [Key],
    gguf_prefix: &'static str,
}

impl KeyTable {
    /// Names to try in `config.json`, in order.
    pub fn json_names<'a>(&self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let aliases = self.row(key).map_or(&[][..], |row| row.json);
        std::iter::once(key).chain(aliases.iter().copied())
    }

    /// Names to try in GGUF metadata of an architecture, in order; never empty.
    pub fn gguf_names(&self, key: &str, architecture: &str) -> Vec<String> {
        match self.row(key) {
            Some(row) if !row.gguf.is_empty() => row.gguf.iter().map(|name| qualify(name, architecture)).collect(),
            _ => vec![format!("{architecture}.{}{key}", self.gguf_prefix)],
        }
    }

    fn row(&self, key: &str) -> Option<&'static Key> {
        self.rows.iter().find(|row| row.canonical == key)
    }
}

fn qualify(name: &str, architecture: &str) -> String {
    if name.starts_with("general.") || name.starts_with("tokenizer.") {
        name.to_owned()
    } else {
        format!("{architecture}.{name}")
    }
}

/// Objects of `config.json` that hold the language model of a multimodal wrapper.
pub(super) const TEXT_SECTIONS: &[&str] =
    &["text_config", "llm_config", "language_config", "lm_config", "thinker_config.text_config"];

/// Names of the object that says how rotary positions are stretched, as published before and since transformers 5.
pub(super) const ROPE_SECTIONS: &[&str] = &["rope_scaling", "rope_parameters"];

macro_rules! rows {
    ($( $canonical:literal: [$($json:literal),*] [$($gguf:literal),*]; )*) => {
        &[$( Key { canonical: $canonical, json: &[$($json),*], gguf: &[$($gguf),*] } ),*]
    };
}

/// Keys of an object that is no section known here: looked up as they are.
pub(super) static PLAIN: KeyTable = KeyTable { rows: &[], gguf_prefix: "" };

/// Keys of a model.
#[rustfmt::skip]
pub(super) static MODEL: KeyTable = KeyTable { gguf_prefix: "", rows: rows! {
    // sizes
    "num_hidden_layers": ["n_layers", "n_layer", "num_layers"] ["block_count"];
    "hidden_size": ["n_embd", "n_embed", "d_model", "dim"] ["embedding_length"];
    "num_attention_heads": ["n_head", "n_heads"] ["attention.head_count"];
    "num_key_value_heads": ["n_kv_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"] ["attention.head_count_kv"];
    "head_dim": ["kv_channels", "attention_head_dim"] ["attention.key_length"];
    "v_head_dim": [] ["attention.value_length"];
    "intermediate_size": ["n_inner", "ffn_hidden_size", "ffn_dim", "block_ff_dim"] ["feed_forward_length"];
    "max_position_embeddings": ["n_positions", "n_ctx", "max_sequence_length", "model_max_length", "max_seq_len", "seq_length", "context_length"] ["context_length"];
    "vocab_size": ["padded_vocab_size"] ["vocab_size", "tokenizer.ggml.tokens"];
    // norms and activation
    "rms_norm_eps": ["norm_eps", "norm_epsilon", "layer_norm_epsilon", "layernorm_epsilon"] ["attention.layer_norm_rms_epsilon"];
    "layer_norm_eps": ["norm_eps", "norm_epsilon", "layer_norm_epsilon", "layernorm_epsilon"] ["attention.layer_norm_epsilon"];
    "hidden_act": ["hidden_activation", "activation_function", "activation", "mlp_hidden_act"] [];
    // rotary positions
    "rope_theta": ["rotary_emb_base", "global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_parameters.rope_theta", "rope_parameters.full_attention.rope_theta"] ["rope.freq_base"];
    "rope_local_base_freq": ["local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_parameters.sliding_attention.rope_theta"] ["rope.freq_base_swa"];
    "rope_dim": ["rotary_dim"] ["rope.dimension_count"];
    "partial_rotary_factor": ["rotary_pct", "rope_pct", "rope_percent", "rope_parameters.partial_rotary_factor"] [];
    "original_max_position_embeddings": ["rope_parameters.original_max_position_embeddings", "rope_scaling.original_max_position_embeddings"] ["rope.scaling.original_context_length"];
    // attention
    "sliding_window": ["attention_window_size", "sliding_window_size"] ["attention.sliding_window"];
    "sliding_window_pattern": ["_sliding_window_pattern"] ["attention.sliding_window_pattern"];
    "layer_types": ["layers_block_type"] [];
    "attention_bias": ["qkv_bias", "use_qkv_bias", "add_qkv_bias"] [];
    "attn_logit_softcapping": [] ["attn_logit_softcapping"];
    "attention_multiplier": [] ["attention.scale"];
    "clip_qkv": [] ["attention.clamp_kqv"];
    "q_lora_rank": [] ["attention.q_lora_rank"];
    "kv_lora_rank": [] ["attention.kv_lora_rank"];
    // experts
    "num_local_experts": ["num_experts", "n_routed_experts", "moe_num_experts"] ["expert_count"];
    "num_experts_per_tok": ["num_experts_per_token", "top_k_experts", "moe_k", "moe_topk"] ["expert_used_count"];
    "moe_intermediate_size": ["expert_intermediate_size"] ["expert_feed_forward_length"];
    "n_shared_experts": ["num_shared_experts", "moe_num_shared_experts", "num_shared_expert"] ["expert_shared_count"];
    "shared_expert_intermediate_size": ["shared_intermediate_size", "moe_shared_expert_intermediate_size"] ["expert_shared_feed_forward_length"];
    "scoring_func": ["score_function", "score_func", "moe_router_activation_func", "moe_router_activation", "expert_selection_fn"] [];
    "norm_topk_prob": ["moe_renormalize"] ["expert_weights_norm"];
    "routed_scaling_factor": [] ["expert_weights_scale"];
    "n_group": ["num_expert_group"] ["expert_group_count"];
    "topk_group": [] ["expert_group_used_count"];
    "first_k_dense_replace": ["num_dense_layers"] ["leading_dense_block_count"];
    "num_nextn_predict_layers": ["num_mtp_layers", "mtp_num_hidden_layers"] ["nextn_predict_layers"];
    // scalars
    "embedding_multiplier": ["scale_emb"] ["embedding_scale"];
    "residual_multiplier": [] ["residual_scale"];
    "logit_scale": ["lm_head_multiplier"] ["logit_scale"];
    "logits_scaling": [] ["logit_scale"];
    "final_logit_softcapping": ["logits_soft_cap"] ["final_logit_softcapping"];
    "tie_word_embeddings": ["tie_embedding"] [];
    // special tokens
    "bos_token_id": [] ["tokenizer.ggml.bos_token_id"];
    "eos_token_id": [] ["tokenizer.ggml.eos_token_id"];
    "pad_token_id": [] ["tokenizer.ggml.padding_token_id"];
} };

/// Keys of `rope_scaling` and `rope_parameters`.
#[rustfmt::skip]
pub(super) static ROPE: KeyTable = KeyTable { gguf_prefix: "rope.scaling.", rows: rows! {
    "type": ["rope_type"] ["rope.scaling.type"];
    "rope_type": ["type"] ["rope.scaling.type"];
    "rope_theta": [] ["rope.freq_base"];
    "factor": [] ["rope.scaling.factor"];
    "original_max_position_embeddings": [] ["rope.scaling.original_context_length"];
    "attention_factor": [] ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"];
    "beta_fast": [] ["rope.scaling.yarn_beta_fast"];
    "beta_slow": [] ["rope.scaling.yarn_beta_slow"];
    "llama_4_scaling_beta": [] ["attention.temperature_scale"];
} };
