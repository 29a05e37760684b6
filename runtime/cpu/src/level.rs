//! Instruction sets.

use std::sync::OnceLock;

use thiserror::Error;

#[cfg(target_arch = "x86_64")]
use crate::amx;

/// From so many tokens at a time on, of a pass or in attention of a sequence, a matrix unit may multiply in a coarser way: results are then no
/// longer the bits of smaller passes.
pub(crate) const MANY_TOKENS: usize = 32;

/// The level of this process, once it is used or chosen.
static CURRENT: OnceLock<Level> = OnceLock::new();

/// Why a process does not get the instruction set that it asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LevelError {
    /// This processor does not have it, or nobody knows it.
    #[error("instruction set: expected one of {expected}, found {found:?}")]
    Unknown {
        /// What [`levels`] are.
        expected: String,
        /// What was asked.
        found: String,
    },
    /// Another is in use, and what was computed with it would not fit.
    #[error("instruction set: {current} is in use already, found {found:?}")]
    InUse {
        /// The one in use.
        current: &'static str,
        /// What was asked.
        found: String,
    },
}

/// The instruction sets that kernels have a version for on this processor, the best last.
pub fn levels() -> Vec<&'static str> {
    Level::available().into_iter().map(Level::name).collect()
}

/// Has this process compute with one of [`levels`] in place of the best, to measure the others or to find out whether one is at fault.
///
/// # Errors
/// If the processor lacks it, or a model has been loaded, or another was chosen before.
pub fn use_level(name: &str) -> Result<(), LevelError> {
    let found = || name.to_owned();
    let level = Level::available().into_iter().find(|level| level.name() == name);
    let level = level.ok_or_else(|| LevelError::Unknown { expected: levels().join(", "), found: found() })?;
    match *CURRENT.get_or_init(|| level) {
        current if current == level => Ok(()),
        current => Err(LevelError::InUse { current: current.name(), found: found() }),
    }
}

/// An instruction set the kernels have a version for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain Rust for the baseline of the target. Defines what the others compute.
    Scalar,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX2, FMA, F16C and AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 F, BW, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// AMX for bytes, beside those of AVX-512. From 32 tokens on also for BF16 where the processor has it, as all so far: products with weights
    /// of 16 bits are then those of a sum of two BF16 for each activation.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// NEON as every processor of the target has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// NEON with dot products of bytes.
    #[cfg(target_arch = "aarch64")]
    NeonDotprod,
    /// NEON with dot products and products of matrices of bytes.
    #[cfg(target_arch = "aarch64")]
    NeonI8mm,
}

impl Level {
    /// Every level this processor has, the best last.
    #[cfg(target_arch = "x86_64")]
    pub fn available() -> Vec<Level> {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        let levels = [
            (Level::Scalar, true),
            (Level::Avx2, avx2),
            (Level::AvxVnni, avx2 && is_x86_feature_detected!("avxvnni")),
            (Level::Avx512Vnni, avx2 && avx512),
            (Level::Amx, avx2 && avx512 && amx::is_available()),
        ];
        levels.into_iter().filter(|(_, has)| *has).map(|(level, _)| level).collect()
    }

    /// Every level this processor has, the best last.
    #[cfg(target_arch = "aarch64")]
    pub fn available() -> Vec<Level> {
        use std::arch::is_aarch64_feature_detected;
        let dotprod = is_aarch64_feature_detected!("dotprod");
        let levels = [
            (Level::Scalar, true),
            (Level::Neon, true),
            (Level::NeonDotprod, dotprod),
            (Level::NeonI8mm, dotprod && is_aarch64_feature_detected!("i8mm")),
        ];
        levels.into_iter().filter(|(_, has)| *has).map(|(level, _)| level).collect()
    }

    /// Every level this processor has, the best last.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn available() -> Vec<Level> {
        vec![Level::Scalar]
    }

    /// As users say it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => "avx512-vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::NeonDotprod => "neon-dotprod",
            #[cfg(target_arch = "aarch64")]
            Level::NeonI8mm => "neon-i8mm",
        }
    }

    /// The level of this process: the best of its processor, unless [`use_level`] said another.
    pub fn current() -> Level {
        *CURRENT.get_or_init(|| Self::available().last().copied().unwrap_or(Level::Scalar))
    }

    /// The level to multiply `n_tokens` with: one has nothing to share with others.
    pub fn for_tokens(self, n_tokens: usize) -> Level {
        #[cfg(target_arch = "x86_64")]
        if self == Level::Amx && n_tokens < 2 {
            return Level::Avx512Vnni;
        }
        let _ = n_tokens;
        self
    }
}

/// Defines `name(level, arguments)`, which runs the plain Rust function `body` compiled for the level's instruction set.
macro_rules! compiled_per_level {
    ($visibility:vis $name:ident = $body:ident [$($generic:ident: $bound:ident),*] ($($arg:ident: $type:ty),*)) => {
        $visibility fn $name<$($generic: $bound),*>(level: $crate::level::Level, $($arg: $type),*) {
            use $crate::level::Level;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($generic: $bound),*>($($arg: $type),*) {
                $body::<$($generic),*>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
            fn avx512<$($generic: $bound),*>($($arg: $type),*) {
                $body::<$($generic),*>($($arg),*)
            }
            match level {
                Level::Scalar => $body::<$($generic),*>($($arg),*),
                // SAFETY: a level is only made where the processor has its instruction sets.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::AvxVnni => unsafe { avx2::<$($generic),*>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512Vnni | Level::Amx => unsafe { avx512::<$($generic),*>($($arg),*) },
                // Whose baseline has what plain Rust needs.
                #[cfg(target_arch = "aarch64")]
                Level::Neon | Level::NeonDotprod | Level::NeonI8mm => $body::<$($generic),*>($($arg),*),
            }
        }
    };
}
pub(crate) use compiled_per_level;
