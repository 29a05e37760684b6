//! Plain Rust: the definition, and what a processor without any of the instruction sets runs.

use super::*;
use crate::f16::f16_to_f32;

/// Four lanes that the compiler makes a register of where there is one. `FMA` rounds once, as the definition does; without an instruction for
/// it that is a slow call of the library, so where the target has none a product is rounded, and then the sum.
#[derive(Clone, Copy)]
struct Lanes<const FMA: bool>([f32; 4]);

/// Whether products are rounded only once.
pub const FUSED: bool = cfg!(target_feature = "fma") || cfg!(target_arch = "aarch64");

pub unsafe fn products<W: Weight>(run: Run, width: usize) {
    // SAFETY: the caller's promises; plain Rust needs no instruction set.
    unsafe { sized::<W, FUSED>(run, width) }
}

/// The definition.
#[cfg(test)]
pub unsafe fn fused_products<W: Weight>(run: Run, width: usize) {
    // SAFETY: as above.
    unsafe { sized::<W, true>(run, width) }
}

unsafe fn sized<W: Weight, const FMA: bool>(run: Run, width: usize) {
    // SAFETY: the caller's promises.
    unsafe {
        match width {
            12 => sweep::<Lanes<FMA>, W, 2, 4, 12>(run),
            8 => sweep::<Lanes<FMA>, W, 2, 4, 8>(run),
            4 => sweep::<Lanes<FMA>, W, 2, 4, 4>(run),
            2 => sweep::<Lanes<FMA>, W, 4, 2, 2>(run),
            _ => sweep::<Lanes<FMA>, W, 8, 1, 1>(run),
        }
    }
}

pub unsafe fn convert<W: Weight>(run: Run, panel: *mut f32) {
    // SAFETY: the caller's promises; plain Rust needs no instruction set.
    unsafe { convert_pairs::<Lanes<false>, W>(run, panel) }
}

// SAFETY of every block below: the promises of the trait; numbers may lie anywhere in a line.
impl<const FMA: bool> Vector for Lanes<FMA> {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Lanes([x; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Lanes(unsafe { from.cast::<[f32; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { to.cast::<[f32; 4]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn plus(mut self, other: Self) -> Self {
        for lane in 0..4 {
            self.0[lane] += other.0[lane];
        }
        self
    }

    #[inline(always)]
    unsafe fn plus_product(mut self, w: Self, x: Self) -> Self {
        for lane in 0..4 {
            let (w, x, sum) = (w.0[lane], x.0[lane], self.0[lane]);
            self.0[lane] = if FMA { w.mul_add(x, sum) } else { w * x + sum };
        }
        self
    }

    #[inline(always)]
    unsafe fn from_bf16(words: *const u32, high: bool) -> Self {
        let words = unsafe { words.cast::<[u32; 4]>().read() };
        let mut lanes = [0.0; 4];
        for lane in 0..4 {
            lanes[lane] = f32::from_bits(if high { words[lane] & 0xffff_0000 } else { words[lane] << 16 });
        }
        Lanes(lanes)
    }

    #[inline(always)]
    unsafe fn from_f16(halves: *const u16) -> Self {
        let halves = unsafe { halves.cast::<[u16; 4]>().read() };
        let mut lanes = [0.0; 4];
        for lane in 0..4 {
            lanes[lane] = f16_to_f32(halves[lane]);
        }
        Lanes(lanes)
    }
}
