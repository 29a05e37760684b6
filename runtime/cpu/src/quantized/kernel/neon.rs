//! NEON: with products of eight bits widened, with dot products of four columns, and with matrices of two rows by eight columns.
//!
//! A vector of a panel is four registers of four rows by four columns. Two tokens by sixteen rows and two planes are sixteen integer sums of
//! the 32 registers. Codes of eight bits are turned back into signed ones. The instructions beyond the baseline are written as assembly,
//! since their intrinsics are not stable.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

use std::arch::{aarch64::*, asm};

use super::*;

/// Registers of a tile's rows.
const REGISTERS: usize = 4;

/// Both planes' sums of sixteen rows.
type Products = [[int32x4_t; REGISTERS]; PLANES];

/// Defines a version. `$multiply(products, codes of four registers for quads k and k + 1, x of both, signed)` adds to each token's products
/// those of eight columns.
macro_rules! version {
    ($module:ident, $features:literal, |$s:ident, $w:ident, $x:ident, $k:ident| $multiply:block, |$raw:ident| $by_row:block) => {
        pub mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            pub fn accumulate(form: Form, tiles: &[&[Panel]], x: &[&[Group]], sums: &mut [Sums]) {
                for (n, tile) in tiles.iter().enumerate() {
                    for_each_size!(block, 1, form, (form, *tile, n), x, sums, [2, 1]);
                }
            }

            #[target_feature(enable = $features)]
            fn block<const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
                (form, tile, n): (Form, &[Panel], usize),
                x: [&[Group]; T],
                sums: &mut [Sums; T],
            ) {
                let offset = i32::from(form.offset());
                let signed = offset == 128;
                let flip = vdupq_n_u8(if signed { 128 } else { 0 });
                let mut acc = [[vdupq_n_f32(0.0); REGISTERS]; T];
                for t in 0..T {
                    acc[t] = load_f32(&sums[t][n]);
                }
                for (g, panel) in tile.iter().enumerate() {
                    let mut product = [[vdupq_n_f32(0.0); REGISTERS]; T];
                    for part in 0..if HALVES { 2 } else { 1 } {
                        let quads = if HALVES { 4 * part..4 * part + 4 } else { 0..8 };
                        let mut raw = [[[vdupq_n_s32(0); REGISTERS]; PLANES]; T];
                        for k in quads.step_by(2) {
                            let w = [load(&panel.codes[k], flip), load(&panel.codes[k + 1], flip)];
                            for t in 0..T {
                                multiply(&mut raw[t], w, &x[t][g], k);
                            }
                        }
                        let scales = load_f32(&panel.scaling.scales[part]);
                        for t in 0..T {
                            let x = &x[t][g];
                            let sum = if HALVES { x.sums[part] } else { x.sums[0] + x.sums[1] };
                            let off = vdupq_n_s32(if MINIMA || signed { 0 } else { offset * sum });
                            let [first, second] = by_row(raw[t]);
                            for r in 0..REGISTERS {
                                let s = vaddq_s32(vshlq_n_s32::<8>(first[r]), second[r]);
                                let s = vcvtq_f32_s32(vsubq_s32(s, off));
                                product[t][r] = if part == 0 {
                                    vmulq_f32(s, scales[r])
                                } else {
                                    vfmaq_f32(product[t][r], s, scales[r])
                                };
                            }
                        }
                    }
                    let minima = load_f32(&panel.scaling.minima);
                    for t in 0..T {
                        let x = &x[t][g];
                        for r in 0..REGISTERS {
                            acc[t][r] = vfmaq_f32(acc[t][r], product[t][r], vdupq_n_f32(x.scale));
                            if MINIMA {
                                acc[t][r] = vfmaq_f32(acc[t][r], minima[r], vdupq_n_f32(x.scaled_sum));
                            }
                        }
                    }
                }
                for t in 0..T {
                    for (rows, acc) in sums[t][n].as_chunks_mut::<4>().0.iter_mut().zip(acc[t]) {
                        // SAFETY: the array is as long as the register.
                        unsafe { vst1q_f32(rows.as_mut_ptr(), acc) };
                    }
                }
            }

            /// Adds the products of quads `k` and `k + 1`.
            #[inline]
            #[target_feature(enable = $features)]
            fn multiply($s: &mut Products, $w: [[int8x16_t; REGISTERS]; 2], $x: &Group, $k: usize) {
                $multiply
            }

            /// Each plane's sums row by row.
            #[inline]
            #[target_feature(enable = $features)]
            fn by_row($raw: Products) -> Products {
                $by_row
            }
        }
    };
}

version!(
    baseline,
    "neon",
    |s, w, x, k| {
        for i in 0..2 {
            for plane in 0..PLANES {
                let x = vreinterpretq_s8_s32(vdupq_n_s32(quad(&x.codes[plane], k + i)));
                for r in 0..REGISTERS {
                    // At most 128 · 127 each, so that two fit into 16 bits with their sign.
                    let low = vpaddlq_s16(vmull_s8(vget_low_s8(w[i][r]), vget_low_s8(x)));
                    let high = vpaddlq_s16(vmull_high_s8(w[i][r], x));
                    s[plane][r] = vaddq_s32(s[plane][r], vpaddq_s32(low, high));
                }
            }
        }
    },
    |raw| { raw }
);

version!(
    dotprod,
    "neon,dotprod",
    |s, w, x, k| {
        for i in 0..2 {
            for plane in 0..PLANES {
                let x = vreinterpretq_s8_s32(vdupq_n_s32(quad(&x.codes[plane], k + i)));
                for r in 0..REGISTERS {
                    // SAFETY: the instruction is this function's and only touches its registers.
                    unsafe {
                        asm!(
                            "sdot {s:v}.4s, {w:v}.16b, {x:v}.16b",
                            s = inout(vreg) s[plane][r], w = in(vreg) w[i][r], x = in(vreg) x,
                            options(pure, nomem, nostack, preserves_flags),
                        );
                    }
                }
            }
        }
    },
    |raw| { raw }
);

// The matrix of a token is its two planes by eight columns; that of weights two rows by eight. A register holds two rows, each plane of them.
version!(
    i8mm,
    "neon,dotprod,i8mm",
    |s, w, x, k| {
        let planes = vcombine_s8(octet(&x.codes[0], k), octet(&x.codes[1], k));
        for r in 0..REGISTERS {
            let quads = [vreinterpretq_s32_s8(w[0][r]), vreinterpretq_s32_s8(w[1][r])];
            let rows = [vzip1q_s32(quads[0], quads[1]), vzip2q_s32(quads[0], quads[1])];
            for pair in 0..2 {
                // SAFETY: the instruction is this function's and only touches its registers.
                unsafe {
                    asm!(
                        "smmla {s:v}.4s, {w:v}.16b, {x:v}.16b",
                        s = inout(vreg) s[pair][r], w = in(vreg) vreinterpretq_s8_s32(rows[pair]), x = in(vreg) planes,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
            }
        }
    },
    |raw| {
        let mut planes = raw;
        for r in 0..REGISTERS {
            planes[0][r] = vuzp1q_s32(raw[0][r], raw[1][r]);
            planes[1][r] = vuzp2q_s32(raw[0][r], raw[1][r]);
        }
        planes
    }
);

/// Codes of eight columns from quad `k` on.
#[inline]
#[target_feature(enable = "neon")]
fn octet(codes: &[i8; GROUP], k: usize) -> int8x8_t {
    let codes: &[i8] = &codes[4 * k..4 * k + 8];
    // SAFETY: the slice is as long as the register.
    unsafe { vld1_s8(codes.as_ptr()) }
}

/// Four columns of all rows, with the bits of `flip` turned.
#[inline]
#[target_feature(enable = "neon")]
fn load(codes: &[u8; 64], flip: uint8x16_t) -> [int8x16_t; REGISTERS] {
    let mut registers = [vdupq_n_s8(0); REGISTERS];
    for (register, codes) in registers.iter_mut().zip(codes.as_chunks::<16>().0) {
        // SAFETY: the array is as long as the register.
        *register = vreinterpretq_s8_u8(veorq_u8(unsafe { vld1q_u8(codes.as_ptr()) }, flip));
    }
    registers
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(lanes: &Lanes) -> [float32x4_t; REGISTERS] {
    let mut registers = [vdupq_n_f32(0.0); REGISTERS];
    for (register, rows) in registers.iter_mut().zip(lanes.as_chunks::<4>().0) {
        // SAFETY: the array is as long as the register.
        *register = unsafe { vld1q_f32(rows.as_ptr()) };
    }
    registers
}
