//! The product of spans.

use std::{
    arch::{asm, x86_64::*},
    mem::MaybeUninit,
    ops::Range,
};

use super::{
    super::{
        scheme::{Lanes, ROWS},
        tiles::copy,
    },
    Block, PLANES, STEP, TOKENS, Weights,
};
use crate::{
    activation::Gating,
    amx::{Registers, is_available},
    columns::Columns,
};

/// Tiles of sixteen rows that are multiplied side by side.
pub(super) const STRIP: usize = 2;

/// The matrix unit, set up on this thread until dropped.
pub(super) struct Unit {
    registers: Registers,
}

impl Unit {
    /// `None` where there is no such unit.
    pub fn new() -> Option<Unit> {
        is_available().then(|| Unit { registers: Registers::set_up() })
    }

    /// Adds the products of one span's weights, in its first `n_steps` steps, with each block's tokens.
    ///
    /// # Safety
    /// Nothing else may hold these rows of the output.
    ///
    /// # Panics
    /// If there are not as many sums, or more steps than a span has.
    pub unsafe fn accumulate(&self, weights: &[Weights; STRIP], x: Tokens<'_>, n_steps: usize, to: Target<'_>) {
        assert_eq!(to.sums.len(), x.n_blocks() * TOKENS, "a sum for every token");
        // SAFETY: there is a unit, so the processor has the instruction sets.
        unsafe { multiply(&self.registers, weights, x, n_steps, to) }
    }
}

/// A span of blocks of tokens.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    /// `[blocks, spans]`
    pub blocks: &'a [Block],
    pub n_spans: usize,
    pub span: usize,
}

impl Tokens<'_> {
    fn n_blocks(&self) -> usize {
        self.blocks.len() / self.n_spans
    }

    #[inline(always)]
    fn block(&self, i: usize) -> &Block {
        &self.blocks[i * self.n_spans + self.span]
    }
}

/// A token's sums of a strip's rows.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Sums(pub [Lanes; STRIP]);

impl Sums {
    pub const ZERO: Sums = Sums([[0.0; ROWS]; STRIP]);
}

/// Where a strip's sums come from and go to.
pub(super) struct Target<'a> {
    /// What they start from in the strip's first span; in others, from `sums`.
    pub start: Option<&'a Sums>,
    /// Sixteen for each block of tokens.
    pub sums: &'a mut [Sums],
    /// Where they go in the last span; in others, back to `sums`.
    pub out: Option<Out<'a>>,
}

/// A place in the output.
pub(super) struct Out<'a> {
    pub columns: &'a Columns<'a>,
    pub tokens: Range<usize>,
    pub rows: Range<usize>,
    /// What goes there of a strip whose first tile is of a gate and whose second of what it opens for, rows as of one tile.
    pub gating: Option<Gating>,
}

/// Sums of a span of sixteen tokens: `[tile][high · high, the mixed ones][token][row]`.
#[repr(C, align(64))]
struct Products([[[[i32; ROWS]; TOKENS]; 2]; STRIP]);

/// While the unit computes one block, the sums of the one before, which it has stored, are added up.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
unsafe fn multiply(
    registers: &Registers,
    weights: &[Weights; STRIP],
    x: Tokens<'_>,
    n_steps: usize,
    Target { start, sums, out }: Target<'_>,
) {
    let mut stored = [const { MaybeUninit::<Products>::uninit() }; 2];
    let steps = [load(&weights[0].steps), load(&weights[1].steps)];
    let n_blocks = x.n_blocks();
    for i in 0..=n_blocks {
        if i < n_blocks {
            registers.clear_four();
        }
        for step in 0..n_steps {
            if i < n_blocks {
                multiply_step(weights, x.block(i), step);
            }
            let Some(previous) = i.checked_sub(1) else { continue };
            for t in TOKENS * step / n_steps..TOKENS * (step + 1) / n_steps {
                let token = previous * TOKENS + t;
                let products = Stored { products: &stored[previous % 2], x: x.block(previous), t };
                let before = start.unwrap_or(&sums[token]);
                let sum = [products.sum(0, steps[0], before), products.sum(1, steps[1], before)];
                match &out {
                    None => put(sum, sums[token].0.as_flattened_mut()),
                    Some(Out { columns, tokens, rows, gating }) if token < tokens.len() => {
                        // SAFETY: the caller has these rows to itself.
                        let to = unsafe { columns.part(tokens.start + token, rows.clone()) };
                        match gating {
                            None => put(sum, to),
                            Some(gating) => to.copy_from_slice(&gating.of_lanes(lanes(sum[0]), &lanes(sum[1]))),
                        }
                    }
                    Some(_) => {}
                }
            }
        }
        if i < n_blocks {
            store(&mut stored[i % 2]);
        }
    }
}

/// A token's products, as the unit has stored them.
struct Stored<'a> {
    products: &'a MaybeUninit<Products>,
    x: &'a Block,
    t: usize,
}

impl Stored<'_> {
    /// The sums of `before` and of a tile's products, whose weights count in `steps`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sum(&self, tile: usize, steps: __m512, before: &Sums) -> __m512 {
        let products = self.products.as_ptr();
        // SAFETY: the arrays are as long as the register, and the unit has stored all of them.
        let [first, second] = unsafe {
            [
                _mm512_loadu_si512((&raw const (*products).0[tile][0][self.t]).cast()),
                _mm512_loadu_si512((&raw const (*products).0[tile][1][self.t]).cast()),
            ]
        };
        let (first, second) = (_mm512_cvtepi32_ps(first), _mm512_cvtepi32_ps(second));
        let product = _mm512_fmadd_ps(first, _mm512_set1_ps(256.0), second);
        let steps = _mm512_mul_ps(steps, _mm512_set1_ps(256.0 * self.x.steps[self.t]));
        _mm512_fmadd_ps(product, steps, load(&before.0[tile]))
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes(x: __m512) -> Lanes {
    let mut lanes = [0.0; ROWS];
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), x) };
    lanes
}

/// Puts a strip's sums to as many rows as there are.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(sums: [__m512; STRIP], rows: &mut [f32]) {
    let mut all = [0.0; STRIP * ROWS];
    let whole = rows.first_chunk_mut();
    let is_whole = whole.is_some();
    let to: &mut [f32; STRIP * ROWS] = whole.unwrap_or(&mut all);
    // SAFETY: the array is as long as two registers.
    unsafe {
        _mm512_storeu_ps(to.as_mut_ptr(), sums[0]);
        _mm512_storeu_ps(to[ROWS..].as_mut_ptr(), sums[1]);
    }
    if !is_whole {
        copy(&all, rows);
    }
}

/// Adds a step's products to registers 0 to 3: high · high and the mixed ones of the first tile, and of the second.
///
/// Three products lie between two that add to one register, which takes 52 cycles where a product takes 16.
#[inline]
fn multiply_step(weights: &[Weights; STRIP], x: &Block, step: usize) {
    let x = &raw const x.codes[step];
    let [first, second] = [&raw const weights[0].codes[step], &raw const weights[1].codes[step]];
    // SAFETY: all registers have 16 rows of 64 bytes, and so have the planes of tokens and of weights, one behind the other.
    unsafe {
        asm!(
            "tileloadd tmm6, [{w} + {row}]",
            "tileloadd tmm5, [{x} + {row} + {plane}]",
            "tdpbssd tmm1, tmm5, tmm6",
            "tileloadd tmm4, [{x} + {row}]",
            "tdpbssd tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{v} + {row}]",
            "tdpbssd tmm3, tmm5, tmm7",
            "tileloadd tmm6, [{w} + {row} + {plane}]",
            "tdpbssd tmm1, tmm4, tmm6",
            "tdpbssd tmm2, tmm4, tmm7",
            "tileloadd tmm7, [{v} + {row} + {plane}]",
            "tdpbssd tmm3, tmm4, tmm7",
            x = in(reg) x,
            w = in(reg) first,
            v = in(reg) second,
            row = in(reg) 64usize,
            plane = const size_of::<[[i8; STEP]; TOKENS]>(),
            options(readonly, nostack, preserves_flags),
        )
    }
}

/// Stores registers 0 to 3.
#[inline]
fn store(products: &mut MaybeUninit<Products>) {
    const { assert!(STRIP * PLANES == 4, "a register for each sum") };
    // SAFETY: as in `multiply_step`; the products are four times the 16 rows of 64 bytes of a register.
    unsafe {
        asm!(
            "tilestored [{c} + {row}], tmm0",
            "tilestored [{c} + {row} + {tile}], tmm1",
            "tilestored [{c} + {row} + 2 * {tile}], tmm2",
            "tilestored [{c} + {row} + 3 * {tile}], tmm3",
            c = in(reg) products.as_mut_ptr(),
            row = in(reg) 64usize,
            tile = const size_of::<[[i32; ROWS]; TOKENS]>(),
            options(nostack, preserves_flags),
        )
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(lanes: &Lanes) -> __m512 {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same on every run.
    fn noise(state: &mut u32) -> u32 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *state >> 8
    }

    /// The definition, in the order of the sums.
    fn expected(weights: &[Weights; STRIP], x: &Block, n_steps: usize, t: usize, row: usize, before: f32) -> f32 {
        let weights = &weights[row / ROWS];
        let row = row % ROWS;
        let (mut first, mut second) = (0i32, 0i32);
        for step in 0..n_steps {
            for column in 0..STEP {
                let w = |plane: usize| i32::from(weights.codes[step][plane][column / 4][4 * row + column % 4]);
                let x = |plane: usize| i32::from(x.codes[step][plane][t][column]);
                first += w(0) * x(0);
                second += w(0) * x(1) + w(1) * x(0);
            }
        }
        let product = (first as f32).mul_add(256.0, second as f32);
        product.mul_add(weights.steps[row] * (256.0 * x.steps[t]), before)
    }

    #[test]
    fn the_unit_gives_the_bits_of_the_definition() {
        let Some(unit) = Unit::new() else { return };
        let state = &mut 5;
        for (n_blocks, n_steps, n_tokens, n_rows) in [(1, 1, 16, 32), (2, 3, 19, 32), (3, 4, 48, 17), (5, 2, 70, 1)] {
            let mut weights = [Weights::EMPTY, Weights::EMPTY];
            for weights in &mut weights {
                for code in weights.codes.as_flattened_mut().as_flattened_mut().as_flattened_mut() {
                    // Now and then at their largest, where sums are closest to what integers hold.
                    *code = if noise(state).is_multiple_of(3) { -128 } else { noise(state) as i8 };
                }
                weights.steps = std::array::from_fn(|_| noise(state) as f32 * 1e-9);
            }
            let mut x = vec![Block::EMPTY; n_blocks];
            for block in &mut x {
                for code in block.codes.as_flattened_mut().as_flattened_mut().as_flattened_mut() {
                    *code = if noise(state).is_multiple_of(3) { -128 } else { noise(state) as i8 };
                }
                block.steps = std::array::from_fn(|_| noise(state) as f32 * 1e-9);
            }
            let before = Sums([[1.5; ROWS], [-0.25; ROWS]]);
            let check = |found: &[f32], token: usize| {
                for (row, found) in found.iter().enumerate() {
                    let (x, t) = (&x[token / TOKENS], token % TOKENS);
                    let expected = expected(&weights, x, n_steps, t, row, before.0[row / ROWS][0]);
                    assert_eq!(*found, expected, "{n_blocks} blocks of {n_steps} steps, token {token}, row {row}");
                }
            };
            let tokens = Tokens { blocks: &x, n_spans: 1, span: 0 };
            let mut sums = vec![Sums::ZERO; n_blocks * TOKENS];
            // SAFETY: there is no output.
            unsafe {
                unit.accumulate(&weights, tokens, n_steps, Target { start: Some(&before), sums: &mut sums, out: None })
            };
            sums.iter().enumerate().for_each(|(token, sums)| check(sums.0.as_flattened(), token));
            sums.fill(before);
            // SAFETY: as above.
            unsafe { unit.accumulate(&weights, tokens, n_steps, Target { start: None, sums: &mut sums, out: None }) };
            sums.iter().enumerate().for_each(|(token, sums)| check(sums.0.as_flattened(), token));
            sums.fill(before);
            let mut out = vec![f32::NAN; (n_tokens + 2) * n_rows];
            let (columns, places) = (Columns::new(&mut out, n_rows), 1..n_tokens + 1);
            // SAFETY: nothing else holds the output.
            unsafe {
                let out = Some(Out { columns: &columns, tokens: places.clone(), rows: 0..n_rows, gating: None });
                unit.accumulate(&weights, tokens, n_steps, Target { start: None, sums: &mut sums, out });
            }
            for (token, found) in out.chunks(n_rows).enumerate() {
                if places.contains(&token) {
                    check(found, token - 1);
                } else {
                    assert!(found.iter().all(|sum| sum.is_nan()), "token {token} is not among those of the output");
                }
            }
        }
    }
}
