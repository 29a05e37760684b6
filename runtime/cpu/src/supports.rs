//! Which blocks this executor has.

use kinfolk_decoder::{Attention, Decoder, Ffn, GatedMlp, Layer, Mask, Mixer, Norm, NormKind, Refusal, Wiring};

use crate::{activation::Gating, rotary::Rotation};

/// Checks every block of a description.
///
/// # Errors
/// [`Refusal`] naming the first block this executor lacks, and its layer.
pub(crate) fn supports(decoder: &Decoder) -> Result<(), Refusal> {
    norm(&decoder.final_norm).map_err(|block| refusal(format!("{block} is not implemented")))?;
    decoder
        .layers
        .iter()
        .enumerate()
        .try_for_each(|(i, l)| layer(l).map_err(|block| refusal(format!("layer {i}: {block} is not implemented"))))
}

pub(crate) fn refusal(reason: impl Into<String>) -> Refusal {
    Refusal { executor: "cpu", reason: reason.into() }
}

/// The result's error names the block that is missing.
type Known = Result<(), String>;

fn layer(layer: &Layer) -> Known {
    match &layer.wiring {
        Wiring::Sequential { pre_mixer, post_mixer, pre_ffn, post_ffn } => {
            [pre_mixer, post_mixer, pre_ffn, post_ffn].into_iter().flatten().try_for_each(norm)?;
        }
        other => return Err(format!("wiring {other:?}")),
    }
    match &layer.mixer {
        Mixer::Attention(a) => attention(a)?,
        other => return Err(format!("mixer {other:?}")),
    }
    match &layer.ffn {
        Ffn::Gated(mlp) => gated(mlp),
        Ffn::Moe(moe) => {
            gated(&moe.expert)?;
            moe.shared.iter().try_for_each(|s| gated(&s.expert))
        }
        other => Err(format!("feed-forward {other:?}")),
    }
}

fn norm(norm: &Norm) -> Known {
    match norm.kind {
        NormKind::Rms => Ok(()),
        other => Err(format!("norm {other:?}")),
    }
}

fn attention(a: &Attention) -> Known {
    a.qk_norm.iter().try_for_each(norm)?;
    match a.mask {
        Mask::Causal | Mask::Window(_) => {}
        other => return Err(format!("mask {other:?}")),
    }
    match &a.rope {
        Some(rope) if !Rotation::supports(rope.pairing) => Err(format!("rotary pairing {:?}", rope.pairing)),
        _ => Ok(()),
    }
}

fn gated(mlp: &GatedMlp) -> Known {
    Gating::of(mlp.activation).map(drop).ok_or_else(|| format!("activation {:?}", mlp.activation))
}
