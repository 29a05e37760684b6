//! Reading blocks from a config: the llama-shaped decoder most families start from, and the small readers they share.

use std::collections::HashSet;

use kinfolk_weights::{Config, ConfigError};

use crate::{
    Activation, Attention, Decoder, Embedding, Ffn, GatedMlp, Head, Layer, Mask, Mixer, Moe, Names, Norm, Result, Rope,
    Wiring,
};

/// Sizes no model has; a config beyond them is damaged, and believing it would exhaust memory.
const MAX_LAYERS: usize = 4096;
const MAX_WIDTH: usize = 1 << 24;
const MAX_HEAD_DIM: usize = 1 << 13;
/// Experts of all layers together: each is several slots to look for, whether or not the checkpoint has a tensor for it.
const MAX_EXPERTS: usize = 1 << 17;

impl Decoder {
    /// The decoder most families start from (Touvron et al. 2023, arXiv:2302.13971): RMS norm before each half, grouped
    /// attention with rotary positions, a gated feed-forward. `default_theta` holds where the config gives no rope base.
    /// Where `layer_types` lists sliding layers they slide.
    ///
    /// # Errors
    /// A missing, mistyped or senseless number.
    pub fn llama_shaped(config: &Config, default_theta: f32, activation: Activation) -> Result<Decoder> {
        let n_layers = size(config, "num_hidden_layers", MAX_LAYERS)?;
        let hidden_size = size(config, "hidden_size", MAX_WIDTH)?;
        let norm = Norm::rms(eps(config)?);
        let types = layer_types(config, n_layers)?;
        let layers = (0..n_layers).map(|i| {
            let layer_type = types.as_ref().map_or("full_attention", |t| t[i].as_str());
            let attention = Attention::from_config(config, i, n_layers, layer_type, default_theta)?;
            let intermediate_size = config.layer_usize("intermediate_size", i, n_layers)?;
            Ok(Layer {
                wiring: Wiring::Sequential {
                    pre_mixer: Some(norm),
                    post_mixer: None,
                    pre_ffn: Some(norm),
                    post_ffn: None,
                },
                mixer: Mixer::Attention(attention),
                ffn: Ffn::Gated(GatedMlp {
                    intermediate_size: within(config, "intermediate_size", intermediate_size, MAX_WIDTH)?,
                    activation,
                }),
            })
        });
        Ok(Decoder {
            layers: layers.collect::<Result<_>>()?,
            embedding: Embedding { vocab_size: size(config, "vocab_size", MAX_WIDTH)?, hidden_size, scale: None },
            final_norm: norm,
            head: Head::default(),
            context_length: size(config, "max_position_embeddings", usize::MAX)?,
            names: Names::default(),
        })
    }

    /// Lets the layers from `max_window_layers` on slide if `use_sliding_window` says so, where `layer_types` does not say it already.
    ///
    /// # Errors
    /// A mistyped key.
    pub fn slide_from_max_window_layers(&mut self, config: &Config) -> std::result::Result<(), ConfigError> {
        if !config.has("layer_types") && config.opt_bool("use_sliding_window")? == Some(true) {
            /// What the configs' classes assume.
            const DEFAULT_MAX_WINDOW_LAYERS: usize = 28;
            let mask = Mask::from_config(config)?;
            let from = config.opt_usize("max_window_layers")?.unwrap_or(DEFAULT_MAX_WINDOW_LAYERS);
            self.attentions_mut().skip(from).for_each(|a| a.mask = mask);
        }
        Ok(())
    }

    /// Gives experts to the layers that have them by `decoder_sparse_step` and `mlp_only_layers`; without these keys, to all.
    ///
    /// # Errors
    /// A mistyped key.
    pub fn set_experts(&mut self, config: &Config, moe: Moe) -> std::result::Result<(), ConfigError> {
        let step = config.opt_usize("decoder_sparse_step")?.unwrap_or(1).max(1);
        let dense: HashSet<usize> = config.opt_usizes("mlp_only_layers")?.unwrap_or_default().into_iter().collect();
        let sparse = |i: &usize| (i + 1).is_multiple_of(step) && !dense.contains(i);
        within(config, "num_local_experts", moe.n_experts, MAX_EXPERTS / self.layers.len().max(1))?;
        for i in (0..self.layers.len()).filter(sparse) {
            self.layers[i].ffn = Ffn::Moe(moe);
        }
        Ok(())
    }

    /// The attention of every layer that has one, to adjust what a family does differently.
    pub fn attentions_mut(&mut self) -> impl Iterator<Item = &mut Attention> {
        self.layers.iter_mut().map(|layer| {
            let Mixer::Attention(a) = &mut layer.mixer;
            a
        })
    }
}

impl Attention {
    fn from_config(
        config: &Config,
        i: usize,
        n_layers: usize,
        layer_type: &str,
        default_theta: f32,
    ) -> Result<Attention> {
        let n_heads =
            within(config, "num_attention_heads", config.layer_usize("num_attention_heads", i, n_layers)?, MAX_WIDTH)?;
        let n_kv_heads = match config.has("num_key_value_heads") {
            true => config.layer_usize("num_key_value_heads", i, n_layers)?,
            false => n_heads,
        };
        if n_kv_heads == 0 || n_heads % n_kv_heads != 0 {
            let reason = format!("expected a divisor of the {n_heads} attention heads, found {n_kv_heads}");
            return Err(config.unsupported("num_key_value_heads", reason).into());
        }
        let head_dim = match config.opt_usize("head_dim")? {
            Some(dim) => dim,
            None => config.usize("hidden_size")? / n_heads,
        };
        let head_dim = within(config, "head_dim", head_dim, MAX_HEAD_DIM)?;
        within(config, "num_attention_heads", n_heads, MAX_WIDTH / head_dim)?;
        let mask = match layer_type {
            "sliding_attention" => Mask::from_config(config)?,
            "full_attention" => Mask::Causal,
            other => {
                let reason = format!("expected `full_attention` or `sliding_attention` for layer {i}, found `{other}`");
                return Err(config.unsupported("layer_types", reason).into());
            }
        };
        Ok(Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            scale: (head_dim as f32).powf(-0.5),
            mask,
            rope: Some(Rope::from_config(config, head_dim, layer_type, default_theta)?),
            qk_norm: None,
            softcap: None,
            query_temperature: None,
        })
    }
}

impl Moe {
    /// Experts of `num_local_experts` and `num_experts_per_tok`, each as wide as `width_key` says.
    ///
    /// # Errors
    /// A missing, mistyped or senseless number.
    pub fn from_config(config: &Config, width_key: &str, activation: Activation, renormalize: bool) -> Result<Moe> {
        let n_experts = size(config, "num_local_experts", MAX_WIDTH)?;
        let top_k = size(config, "num_experts_per_tok", n_experts)?;
        let expert = GatedMlp { intermediate_size: size(config, width_key, MAX_WIDTH)?, activation };
        Ok(Moe { n_experts, top_k, expert, renormalize, shared: None })
    }
}

impl GatedMlp {
    /// A projection as wide as `width_key` says.
    ///
    /// # Errors
    /// A missing, mistyped or senseless number.
    pub fn from_config(config: &Config, width_key: &str, activation: Activation) -> Result<GatedMlp> {
        Ok(GatedMlp { intermediate_size: size(config, width_key, MAX_WIDTH)?, activation })
    }
}

impl Mask {
    /// The window of `sliding_window`; causal if the key is absent or null.
    ///
    /// # Errors
    /// A window of 0 tokens, in which a token would not see even itself.
    pub fn from_config(config: &Config) -> std::result::Result<Mask, ConfigError> {
        match config.opt_usize("sliding_window")? {
            None => Ok(Mask::Causal),
            Some(0) => Err(config.unsupported("sliding_window", "expected at least 1 token, found 0")),
            Some(window) => Ok(Mask::Window(window)),
        }
    }
}

impl Activation {
    /// The activation named by `hidden_act`; SiLU where a file (as every GGUF) does not say.
    ///
    /// # Errors
    /// A name that is not known.
    pub fn from_config(config: &Config) -> std::result::Result<Activation, ConfigError> {
        match config.opt_str("hidden_act")? {
            None | Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_tanh") => Ok(Activation::GeluTanh),
            Some(other) => {
                Err(config
                    .unsupported("hidden_act", format!("expected `silu` or `gelu_pytorch_tanh`, found `{other}`")))
            }
        }
    }
}

/// The kind of each layer from `layer_types`; `None` if the config does not list them.
///
/// # Errors
/// A list of another length than the layers.
pub fn layer_types(config: &Config, n_layers: usize) -> std::result::Result<Option<Vec<String>>, ConfigError> {
    let Some(types) = config.opt_strs("layer_types")? else {
        return Ok(None);
    };
    if types.len() != n_layers {
        let reason = format!("expected {n_layers} entries, one per layer, found {}", types.len());
        return Err(config.unsupported("layer_types", reason));
    }
    Ok(Some(types.into_iter().map(str::to_owned).collect()))
}

/// Which layers slide: as `layer_types` lists them, or as `otherwise` says of each in configs without the list.
///
/// # Errors
/// As [`layer_types`].
pub fn sliding_layers(
    config: &Config,
    n_layers: usize,
    otherwise: impl Fn(usize) -> bool,
) -> std::result::Result<Vec<bool>, ConfigError> {
    Ok(match layer_types(config, n_layers)? {
        Some(types) => types.iter().map(|kind| kind == "sliding_attention").collect(),
        None => (0..n_layers).map(otherwise).collect(),
    })
}

/// Whether the config counts experts. A count of 0 is how some converters say that there are none.
///
/// # Errors
/// A mistyped key.
pub fn has_experts(config: &Config) -> std::result::Result<bool, ConfigError> {
    Ok(config.opt_usize("num_local_experts")?.is_some_and(|n| n > 0))
}

/// The cap under `key`; `None` if it is absent, null or 0, which cannot cap anything.
///
/// # Errors
/// A mistyped or negative number.
pub fn softcap(config: &Config, key: &str) -> std::result::Result<Option<f32>, ConfigError> {
    match config.opt_f32(key)? {
        Some(cap) if !(cap.is_finite() && cap >= 0.0) => {
            Err(config.unsupported(key, format!("expected a number ≥ 0, found {cap}")))
        }
        cap => Ok(cap.filter(|cap| *cap > 0.0)),
    }
}

fn eps(config: &Config) -> std::result::Result<f32, ConfigError> {
    match config.f32("rms_norm_eps")? {
        eps if eps.is_finite() && eps >= 0.0 => Ok(eps),
        eps => Err(config.unsupported("rms_norm_eps", format!("expected a number ≥ 0, found {eps}"))),
    }
}

fn size(config: &Config, key: &str, max: usize) -> std::result::Result<usize, ConfigError> {
    within(config, key, config.usize(key)?, max)
}

fn within(config: &Config, key: &str, value: usize, max: usize) -> std::result::Result<usize, ConfigError> {
    if (1..=max).contains(&value) {
        Ok(value)
    } else {
        Err(config.unsupported(key, format!("expected 1 to {max}, found {value}")))
    }
}
