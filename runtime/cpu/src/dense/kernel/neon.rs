//! NEON: half a strip at a time, a column of which is four registers, and with six tokens 24 of the 32 are sums.

use std::arch::{aarch64::*, asm};

use super::*;

pub unsafe fn products<W: Weight>(run: Run, width: usize) {
    // SAFETY: the caller's promises; the instruction set is the target's baseline.
    unsafe {
        match width {
            12 => sweep::<float32x4_t, W, 4, 6, 12>(run),
            8 => sweep::<float32x4_t, W, 4, 4, 8>(run),
            4 => sweep::<float32x4_t, W, 4, 4, 4>(run),
            2 => sweep::<float32x4_t, W, 8, 2, 2>(run),
            _ => sweep::<float32x4_t, W, 8, 1, 1>(run),
        }
    }
}

pub unsafe fn convert<W: Weight>(run: Run, panel: *mut f32) {
    // SAFETY: the caller's promises; the instruction set is the target's baseline.
    unsafe { convert_pairs::<float32x4_t, W>(run, panel) }
}

// SAFETY of every block below: the promises of the trait.
impl Vector for float32x4_t {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { vdupq_n_f32(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { vst1q_f32(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        unsafe { vaddq_f32(self, other) }
    }

    #[inline(always)]
    unsafe fn plus_product(self, w: Self, x: Self) -> Self {
        unsafe { vfmaq_f32(self, w, x) }
    }

    #[inline(always)]
    unsafe fn from_bf16(words: *const u32, high: bool) -> Self {
        unsafe {
            let words = vld1q_u32(words);
            let bits = if high { vandq_u32(words, vdupq_n_u32(0xffff_0000)) } else { vshlq_n_u32::<16>(words) };
            vreinterpretq_f32_u32(bits)
        }
    }

    /// As assembly, since types of 16-bit floats are not stable everywhere the instruction is.
    #[inline(always)]
    unsafe fn from_f16(halves: *const u16) -> Self {
        unsafe {
            let floats: float32x4_t;
            asm!(
                "fcvtl {floats:v}.4s, {halves:v}.4h",
                floats = out(vreg) floats, halves = in(vreg) vld1_u16(halves),
                options(pure, nomem, nostack, preserves_flags),
            );
            floats
        }
    }
}
