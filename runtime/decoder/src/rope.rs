//! Rotary position embeddings (Su et al. 2021, arXiv:2104.09864) and the ways to stretch them.

use kinfolk_weights::{Config, ConfigError};

/// Which dimensions rotate, how fast, and how they pair up.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the geometric sequence of wavelengths.
    pub theta: f32,
    /// Leading dimensions of each head that rotate; even.
    pub dims: usize,
    /// Which two dimensions make a pair.
    pub pairing: Pairing,
    /// How frequencies are changed for contexts longer than the original.
    pub scaling: RopeScaling,
}

/// Which two dimensions rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pairing {
    /// `i` and `i + dims / 2`.
    Halves,
}

/// How rope frequencies are stretched over longer contexts. Named as in `rope_type` of Hugging Face configs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// Every frequency divided by the factor (Chen et al. 2023, arXiv:2306.15595).
    Linear {
        /// Stretch.
        factor: f32,
    },
    /// The base grown with the context ("NTK-aware"). The context is the one the model is loaded with, so that a token's rotation
    /// does not change as the sequence grows; up to `original` nothing changes.
    Dynamic {
        /// Stretch per original context.
        factor: f32,
        /// Context the model was trained with, in tokens.
        original: usize,
    },
    /// Low frequencies interpolated, high ones kept, a ramp between (Peng et al. 2023, arXiv:2309.00071).
    Yarn {
        /// Stretch.
        factor: f32,
        /// Context the model was trained with, in tokens.
        original: usize,
        /// Rotations over `original` above which a frequency is kept.
        beta_fast: f32,
        /// Rotations over `original` below which a frequency is fully stretched.
        beta_slow: f32,
        /// Multiplies the rotated vectors. `None`: `0.1 ln(factor) + 1`.
        attention_factor: Option<f32>,
        /// Whether the ramp starts and ends on whole dimensions.
        truncate: bool,
    },
    /// By wavelength: short ones kept, long ones divided, a ramp between (Llama 3.1).
    Llama3 {
        /// Divides long wavelengths.
        factor: f32,
        /// Wavelengths above `original / low` are long.
        low_freq_factor: f32,
        /// Wavelengths below `original / high` are short.
        high_freq_factor: f32,
        /// Context the model was trained with, in tokens.
        original: usize,
    },
    /// One divisor per frequency, one set within the original context and one beyond (Ding et al. 2024, arXiv:2402.13753).
    LongRope {
        /// Divisors within `original`.
        short: Vec<f32>,
        /// Divisors beyond.
        long: Vec<f32>,
        /// Context the model was trained with, in tokens.
        original: usize,
        /// Multiplies the rotated vectors.
        attention_factor: f32,
    },
}

/// What a [`Rope`] comes to: the angle of pair `i` at position `p` is `p · inv_freq[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequencies {
    /// Radians per position, `[dims / 2]`.
    pub inv_freq: Vec<f32>,
    /// Multiplies sine and cosine.
    pub attention_factor: f32,
}

impl Rope {
    /// Reads the rope of a layer of kind `layer_type` (`full_attention`, `sliding_attention`) from either spelling of a config:
    /// `rope_parameters` (flat or one entry per kind) or `rope_theta` with `rope_scaling`.
    ///
    /// # Errors
    /// A missing or mistyped number; a scaling type that is not known.
    pub fn from_config(
        config: &Config,
        head_dim: usize,
        layer_type: &str,
        default_theta: f32,
    ) -> Result<Rope, ConfigError> {
        let section = match config.section("rope_parameters")? {
            Some(section) => section.section(layer_type)?.or(Some(section)),
            None => config.section("rope_scaling")?,
        };
        let in_section = match &section {
            Some(s) => s.opt_f32("rope_theta")?,
            None => None,
        };
        let theta = match in_section {
            Some(theta) => theta,
            None => config.opt_f32("rope_theta")?.unwrap_or(default_theta),
        };
        let partial = match &section {
            Some(s) => s.opt_f32("partial_rotary_factor")?,
            None => None,
        };
        let partial = match partial {
            Some(p) => p,
            None => config.opt_f32("partial_rotary_factor")?.unwrap_or(1.0),
        };
        if !(theta.is_finite() && theta > 0.0) {
            return Err(config.unsupported("rope_theta", format!("expected a number > 0, found {theta}")));
        }
        let dims = config.opt_usize("rope_dim")?.unwrap_or((head_dim as f32 * partial) as usize);
        if dims == 0 || dims % 2 == 1 || dims > head_dim {
            let reason = format!("expected an even number of rotated dimensions up to {head_dim}, found {dims}");
            return Err(config.unsupported("rope_theta", reason));
        }
        let scaling = match &section {
            Some(section) => RopeScaling::from_section(section, config)?,
            None => RopeScaling::Default,
        };
        let rope = Rope { theta, dims, pairing: Pairing::Halves, scaling };
        if let RopeScaling::LongRope { short, long, .. } = &rope.scaling
            && (short.len() != dims / 2 || long.len() != dims / 2)
        {
            let found = format!("{} and {}", short.len(), long.len());
            let reason = format!("expected {} short and long factors each, found {found}", dims / 2);
            return Err(config.unsupported("rope_scaling", reason));
        }
        if let Some(section) = &section
            && !rope.is_finite()
        {
            return Err(section.unsupported("rope_type", "expected numbers that give finite frequencies, found others"));
        }
        Ok(rope)
    }

    /// Whether every frequency is a number, within the original context and beyond.
    fn is_finite(&self) -> bool {
        [0, usize::MAX].into_iter().all(|len| {
            let Frequencies { inv_freq, attention_factor } = self.frequencies(len, len);
            attention_factor.is_finite() && inv_freq.iter().all(|f| f.is_finite())
        })
    }

    /// Frequencies for a sequence of `len` tokens of a model loaded with room for `context_length`.
    pub fn frequencies(&self, len: usize, context_length: usize) -> Frequencies {
        let dims = self.dims as f64;
        let geometric = |theta: f64| (0..self.dims / 2).map(move |i| theta.powf(-2.0 * i as f64 / dims));
        let plain: Vec<f64> = geometric(f64::from(self.theta)).collect();
        let mut attention_factor = 1.0;
        let scaled: Vec<f64> = match &self.scaling {
            RopeScaling::Default => plain,
            RopeScaling::Linear { factor } => plain.iter().map(|f| f / f64::from(*factor)).collect(),
            RopeScaling::Dynamic { factor, original } => {
                let stretch = context_length.max(*original) as f64 / *original as f64;
                let growth = f64::from(*factor) * stretch - (f64::from(*factor) - 1.0);
                geometric(f64::from(self.theta) * growth.powf(dims / (dims - 2.0))).collect()
            }
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, attention_factor: given, truncate } => {
                let factor = f64::from(*factor);
                attention_factor = given.map_or(yarn_attention_factor(factor), f64::from);
                let ramp = YarnRamp::new(self, *original, *beta_fast, *beta_slow, *truncate);
                plain.iter().enumerate().map(|(i, f)| f / factor * ramp.at(i) + f * (1.0 - ramp.at(i))).collect()
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
                let (low, high) = (f64::from(*low_freq_factor), f64::from(*high_freq_factor));
                plain.iter().map(|&f| llama3_frequency(f, f64::from(*factor), low, high, *original as f64)).collect()
            }
            RopeScaling::LongRope { short, long, original, attention_factor: given } => {
                attention_factor = f64::from(*given);
                let divisors = if len > *original { long } else { short };
                plain.iter().zip(divisors).map(|(f, d)| f / f64::from(*d)).collect()
            }
        };
        Frequencies {
            inv_freq: scaled.into_iter().map(|f| f as f32).collect(),
            attention_factor: attention_factor as f32,
        }
    }

    /// Length up to which [`frequencies`](Self::frequencies) stay as they are; keys cached within it are stale beyond.
    pub fn switches_beyond(&self) -> Option<usize> {
        match self.scaling {
            RopeScaling::LongRope { original, .. } => Some(original),
            _ => None,
        }
    }
}

impl RopeScaling {
    fn from_section(section: &Config, config: &Config) -> Result<RopeScaling, ConfigError> {
        let kind = match section.opt_str("rope_type")? {
            Some(kind) => Some(kind),
            None => section.opt_str("type")?,
        };
        let opt_positive = |key: &str| match section.opt_f32(key)? {
            Some(v) if !(v.is_finite() && v > 0.0) => {
                Err(section.unsupported(key, format!("expected a number > 0, found {v}")))
            }
            v => Ok(v),
        };
        let positive = |key: &str| match opt_positive(key)? {
            Some(v) => Ok(v),
            None => section.f32(key),
        };
        let original = || match section.opt_usize("original_max_position_embeddings")? {
            Some(n) if n > 0 => Ok(n),
            Some(_) => Err(section.unsupported("original_max_position_embeddings", "expected a number > 0, found 0")),
            None => match config.opt_usize("original_max_position_embeddings")? {
                Some(n) if n > 0 => Ok(n),
                _ => config.usize("max_position_embeddings"),
            },
        };
        match kind.unwrap_or("default") {
            "default" | "none" => Ok(RopeScaling::Default),
            "linear" => Ok(RopeScaling::Linear { factor: positive("factor")? }),
            "dynamic" => Ok(RopeScaling::Dynamic { factor: positive("factor")?, original: original()? }),
            "yarn" => {
                let factor = positive("factor")?;
                // GGUF files give the second alone, of models whose first is 1.
                let mscale = match section.opt_f32("yarn_log_multiplier")? {
                    Some(all_dim) => (Some(1.0), Some(all_dim)),
                    None => (section.opt_f32("mscale")?, section.opt_f32("mscale_all_dim")?),
                };
                let from_mscales = match mscale {
                    (Some(one), Some(all)) if one != 0.0 && all != 0.0 => {
                        Some(yarn_mscale(factor, one) / yarn_mscale(factor, all))
                    }
                    _ => None,
                };
                Ok(RopeScaling::Yarn {
                    factor,
                    original: original()?,
                    beta_fast: opt_positive("beta_fast")?.unwrap_or(32.0),
                    beta_slow: opt_positive("beta_slow")?.unwrap_or(1.0),
                    attention_factor: section.opt_f32("attention_factor")?.or(from_mscales),
                    truncate: section.opt_bool("truncate")?.unwrap_or(true),
                })
            }
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: positive("factor")?,
                low_freq_factor: positive("low_freq_factor")?,
                high_freq_factor: positive("high_freq_factor")?,
                original: original()?,
            }),
            "longrope" | "su" => {
                let original = original()?;
                let factors = |key: &str| match section.opt_f32s(key)? {
                    Some(list) if list.iter().all(|d| d.is_finite() && *d > 0.0) => Ok(list),
                    Some(_) => Err(section.unsupported(key, "expected numbers > 0")),
                    None => Err(section.unsupported(key, "expected a list of numbers, found none")),
                };
                let stretch = match section.opt_f32("factor")? {
                    Some(factor) => factor,
                    None => config.usize("max_position_embeddings")? as f32 / original as f32,
                };
                let derived = if stretch <= 1.0 { 1.0 } else { (1.0 + stretch.ln() / (original as f32).ln()).sqrt() };
                Ok(RopeScaling::LongRope {
                    short: factors("short_factor")?,
                    long: factors("long_factor")?,
                    original,
                    attention_factor: section.opt_f32("attention_factor")?.unwrap_or(derived),
                })
            }
            unknown => Err(section.unsupported(
                "rope_type",
                format!("expected `default`, `linear`, `dynamic`, `yarn`, `llama3` or `longrope`, found `{unknown}`"),
            )),
        }
    }
}

fn yarn_mscale(factor: f32, mscale: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

fn yarn_attention_factor(factor: f64) -> f64 {
    f64::from(yarn_mscale(factor as f32, 1.0))
}

/// How far each dimension is interpolated: 0 keeps the frequency, 1 stretches it fully.
struct YarnRamp {
    from: f64,
    to: f64,
}

impl YarnRamp {
    fn new(rope: &Rope, original: usize, beta_fast: f32, beta_slow: f32, truncate: bool) -> YarnRamp {
        // The dimension whose wave turns `rotations` times over the original context.
        let dimension = |rotations: f64| {
            let turns = original as f64 / (rotations * std::f64::consts::TAU);
            rope.dims as f64 * turns.ln() / (2.0 * f64::from(rope.theta).ln())
        };
        let (mut from, mut to) = (dimension(f64::from(beta_fast)), dimension(f64::from(beta_slow)));
        if truncate {
            (from, to) = (from.floor(), to.ceil());
        }
        (from, to) = (from.max(0.0), to.min(rope.dims as f64 - 1.0));
        // A ramp of no width would divide by zero; transformers widens it by the same amount.
        if from == to {
            to += 0.001;
        }
        YarnRamp { from, to }
    }

    fn at(&self, i: usize) -> f64 {
        ((i as f64 - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

fn llama3_frequency(frequency: f64, factor: f64, low: f64, high: f64, original: f64) -> f64 {
    let wavelength = std::f64::consts::TAU / frequency;
    if wavelength > original / low {
        frequency / factor
    } else if wavelength < original / high {
        frequency
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: RopeScaling) -> Rope {
        Rope { theta: 10_000.0, dims: 16, pairing: Pairing::Halves, scaling }
    }

    #[test]
    fn dynamic_scaling_changes_nothing_within_the_original_context() {
        let dynamic = rope(RopeScaling::Dynamic { factor: 4.0, original: 128 });
        let plain = rope(RopeScaling::Default).frequencies(10, 128);
        assert_eq!(dynamic.frequencies(10, 128), plain);
        assert_ne!(dynamic.frequencies(10, 256), plain);
    }

    #[test]
    fn longrope_switches_beyond_the_original_context() {
        let (short, long) = (vec![1.0; 8], vec![2.0; 8]);
        let scaling = RopeScaling::LongRope { short, long, original: 64, attention_factor: 1.5 };
        let rope = rope(scaling);
        assert_eq!(rope.switches_beyond(), Some(64));
        assert_eq!(rope.frequencies(64, 256).inv_freq[0], 1.0);
        assert_eq!(rope.frequencies(65, 256).inv_freq[0], 0.5);
    }

    #[test]
    fn yarn_keeps_fast_dimensions_and_stretches_slow_ones() {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            original: 64,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            truncate: true,
        };
        let (scaled, plain) = (rope(scaling).frequencies(1, 1), rope(RopeScaling::Default).frequencies(1, 1));
        assert_eq!(scaled.inv_freq[0], plain.inv_freq[0]);
        assert_eq!(scaled.inv_freq[7], plain.inv_freq[7] / 4.0);
        assert!((scaled.attention_factor - (0.1 * 4f32.ln() + 1.0)).abs() < 1e-6);
    }
}
