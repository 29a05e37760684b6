//! AMX: a few tokens, straight from a tile: eight tokens by sixteen rows and 32 columns in one instruction of sixteen cycles.
//!
//! ```text
//! C 8 tokens x 2 planes x 16 rows, i32  =  A 8 tokens x 2 planes x 32 columns, i8  ·  B 32 columns x 16 rows, u8
//! ```
//! The sums of a group go through memory to the vector registers, where the steps in f32 are those of the definition. The matrix unit takes
//! as long to store a register as to multiply, and does both at once only where what it stores was finished before: four C take turns,
//! and each is stored two products after its own. It has the results 52 cycles after it has started.
//!
//! The instructions are written as assembly, since their intrinsics are not stable.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

use std::{
    arch::{asm, x86_64::*},
    marker::PhantomData,
};

use super::{
    super::scheme::{Header, Scheme, prefetch},
    avx512::load_f32,
    straight::vector,
    *,
};
use crate::amx::{Shapes, configure, is_available, release};

/// Tokens of a matrix register.
pub const TOKENS: usize = 8;

/// Blocks of tokens that are multiplied with a tile in one pass over it, at most.
const BLOCKS: usize = 2;

/// A group of eight tokens, as the unit reads it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Block {
    /// `[token][plane][column]`
    codes: [[[i8; GROUP]; PLANES]; TOKENS],
    scales: [f32; TOKENS],
    scaled_sums: [f32; TOKENS],
}

impl Block {
    /// Of tokens that are zero.
    pub const EMPTY: Block =
        Block { codes: [[[0; GROUP]; PLANES]; TOKENS], scales: [0.0; TOKENS], scaled_sums: [0.0; TOKENS] };

    /// Makes `group` that of token `t`.
    pub fn put(&mut self, t: usize, group: &Group) {
        self.codes[t] = group.codes;
        (self.scales[t], self.scaled_sums[t]) = (group.scale, group.scaled_sum);
    }
}

/// The matrix unit, this thread's until dropped.
pub struct Unit {
    n_tokens: usize,
    /// What its registers are set up for: columns of a product, 0 to begin with.
    n_cols: usize,
    pipeline: Pipeline,
    /// Registers are a thread's own.
    of_this_thread: PhantomData<*const ()>,
}

impl Unit {
    /// For products with `n_tokens`; `None` where there is no such unit.
    pub fn new(n_tokens: usize) -> Option<Unit> {
        is_available().then_some(Unit { n_tokens, n_cols: 0, pipeline: Pipeline::EMPTY, of_this_thread: PhantomData })
    }

    /// Gives the registers their shapes for products of `n_cols`.
    fn set_up(&mut self, n_cols: usize) {
        if self.n_cols != n_cols {
            let rows = PLANES * if self.n_tokens <= TOKENS / 2 { TOKENS / 2 } else { TOKENS };
            // 0 to 3 are C, 4 and 5 are A, 6 and 7 are B.
            let [a, b, c] = [(rows, n_cols), (n_cols / 4, 64), (rows, 64)];
            configure(&Shapes::new([c, c, c, c, a, a, b, b]));
            self.n_cols = n_cols;
        }
    }

    /// Adds the products of a `tile` with the tokens of `x`, `[n_tokens / 8, groups]`, to `sums`, one for each token.
    ///
    /// # Panics
    /// If the numbers of groups or tokens differ.
    pub fn accumulate<S: Scheme>(&mut self, tile: &[u8], x: &[Block], sums: &mut [Lanes]) {
        let n_groups = tile.len() / S::TILE_BYTES * (S::BLOCK_LEN / GROUP);
        assert!(sums.len() == self.n_tokens, "a sum for every token");
        assert!(x.len() == n_groups * self.n_tokens.div_ceil(TOKENS), "as many groups for every block of tokens");
        if n_groups == 0 {
            return;
        }
        self.set_up(GROUP / parts::<S>());
        for (x, sums) in x.chunks(BLOCKS * n_groups).zip(sums.chunks_mut(BLOCKS * TOKENS)) {
            let (first, second) = x.split_at(n_groups);
            // SAFETY: there is a unit, so the processor has the instruction sets.
            unsafe {
                if !second.is_empty() {
                    multiply_tile::<S, 2, TOKENS>(tile, [first, second], sums, &mut self.pipeline);
                } else if self.n_tokens > TOKENS / 2 {
                    multiply_tile::<S, 1, TOKENS>(tile, [first], sums, &mut self.pipeline);
                } else {
                    multiply_tile::<S, 1, { TOKENS / 2 }>(tile, [first], sums, &mut self.pipeline);
                }
            }
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        release();
    }
}

/// Parts between the one that the unit computes and the ones that it stores and that the vector registers take.
const STORED: usize = 2;
const TAKEN: usize = 3;

/// What is on its way between memory, the unit and the vector registers.
#[repr(C, align(64))]
struct Pipeline {
    /// A group is unpacked while the one before it is multiplied, and its scales are kept until its products are taken.
    panels: [Panel; 8],
    /// By part and block of tokens.
    products: [[Products; BLOCKS]; 4],
}

/// Sums of a part, which is a group's columns or half of them.
type Products = [[[i32; ROWS]; PLANES]; TOKENS];

impl Pipeline {
    const EMPTY: Pipeline =
        Pipeline { panels: [const { Panel::EMPTY }; 8], products: [[[[[0; ROWS]; PLANES]; TOKENS]; BLOCKS]; 4] };

    fn panel(&mut self, group: usize) -> &mut Panel {
        &mut self.panels[group % 8]
    }

    fn products(&mut self, part: usize, block: usize) -> &mut Products {
        &mut self.products[part % 4][block]
    }
}

/// `T` is what the registers are set up for; there may be fewer `sums`, and the tokens beyond them are zero.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_tile<S: Scheme, const N: usize, const T: usize>(
    tile: &[u8],
    x: [&[Block]; N],
    sums: &mut [Lanes],
    pipeline: &mut Pipeline,
) {
    let mut acc = [[_mm512_setzero_ps(); T]; N];
    for n in 0..N {
        for t in 0..T {
            if let Some(sums) = sums.get(n * T + t) {
                acc[n][t] = load_f32(sums);
            }
        }
    }
    let n_groups = x[0].len();
    let of_group = parts::<S>();
    let n_parts = n_groups * of_group;
    let mut fields = S::Header::fields(tile);
    for i in 0..n_parts + of_group + TAKEN {
        if i % of_group == 0 && i / of_group < n_groups {
            let g = i / of_group;
            unpack::<S>(tile, g, &mut fields, pipeline.panel(g));
        }
        let Some(i) = i.checked_sub(of_group) else { continue };
        for n in 0..N {
            // Of two blocks, the one takes the register that the other has left.
            if (STORED..n_parts + STORED).contains(&i) {
                store(register::<N>(i - STORED, n), pipeline.products(i - STORED, n));
            }
            if i < n_parts {
                let (g, part) = (i / of_group, i % of_group);
                multiply(register::<N>(i, n), n == 0, i % 2, pipeline.panel(g), &x[n][g], part);
            }
        }
        if i >= TAKEN && (i - TAKEN) % of_group == of_group - 1 {
            let g = (i - TAKEN) / of_group;
            for n in 0..N {
                take::<S, T>(g, n, &x[n][g], pipeline, &mut acc[n]);
            }
        }
    }
    for n in 0..N {
        for t in 0..T {
            if let Some(sums) = sums.get_mut(n * T + t) {
                // SAFETY: the array is as long as the register.
                unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), acc[n][t]) };
            }
        }
    }
}

/// Into how many parts a group's columns fall, each with a scale.
const fn parts<S: Scheme>() -> usize {
    if matches!(S::FORM, Form::OffsetOfHalves(_)) { 2 } else { 1 }
}

/// Which C holds the sums of part `i` and a block, of `N`.
const fn register<const N: usize>(i: usize, block: usize) -> usize {
    if N == 1 { i % 4 } else { 2 * (i % 2) + block }
}

/// Unpacks group `g`, its codes less their offset.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn unpack<S: Scheme>(tile: &[u8], g: usize, fields: &mut <S::Header as Header>::Fields, panel: &mut Panel) {
    let of_block = S::BLOCK_LEN / GROUP;
    let block = &tile[g / of_block * S::TILE_BYTES..][..S::TILE_BYTES];
    if g.is_multiple_of(of_block) {
        *fields = S::Header::fields(block);
    }
    let codes = &block[S::Header::BYTES + g % of_block * S::GROUP_BYTES..][..S::GROUP_BYTES];
    prefetch(codes, S::TILE_BYTES / of_block);
    S::Header::unpack(block, fields, g % of_block, panel);
    let offset = _mm512_set1_epi8(S::FORM.offset() as i8);
    for k in 0..8 {
        let w = _mm512_sub_epi8(vector::<S>(codes.as_chunks().0, k), offset);
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_storeu_si512(panel.codes[k].as_mut_ptr().cast(), w) };
    }
}

/// Adds group `g`'s products with a block of tokens to their sums.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn take<S: Scheme, const T: usize>(g: usize, block: usize, x: &Block, pipeline: &mut Pipeline, acc: &mut [__m512; T]) {
    let panel = pipeline.panel(g);
    let scales = [load_f32(&panel.scales[0]), load_f32(&panel.scales[1])];
    let minima = load_f32(&panel.minima);
    for t in 0..T {
        let mut product;
        if let Form::OffsetOfHalves(_) = S::FORM {
            product = _mm512_mul_ps(sum(pipeline.products(2 * g, block), t), scales[0]);
            product = _mm512_fmadd_ps(sum(pipeline.products(2 * g + 1, block), t), scales[1], product);
        } else {
            product = _mm512_mul_ps(sum(pipeline.products(g, block), t), scales[0]);
        }
        acc[t] = _mm512_fmadd_ps(product, _mm512_set1_ps(x.scales[t]), acc[t]);
        if let Form::Minimum = S::FORM {
            acc[t] = _mm512_fmadd_ps(minima, _mm512_set1_ps(x.scaled_sums[t]), acc[t]);
        }
    }
}

/// `256 · first plane + second` of a token.
#[inline]
#[target_feature(enable = "avx512f")]
fn sum(products: &Products, t: usize) -> __m512 {
    // SAFETY: the arrays are as long as the register.
    let [first, second] = unsafe {
        [_mm512_loadu_si512(products[t][0].as_ptr().cast()), _mm512_loadu_si512(products[t][1].as_ptr().cast())]
    };
    _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32::<8>(first), second))
}

/// Starts the product of a group's columns, or of the half `part` of them, with a block of tokens into C number `c`. B is one of two, `b`,
/// and is loaded `with_b` and else is there already.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply(c: usize, with_b: bool, b: usize, panel: &Panel, x: &Block, part: usize) {
    let x: *const i8 = &raw const x.codes[0][0][GROUP / 2 * part];
    let panel = &raw const panel.codes[4 * part];
    macro_rules! multiply {
        ($c:literal, $a:literal, $b:literal) => {{
            if with_b {
                asm!(
                    concat!("tileloadd ", $b, ", [{b} + {row}]"),
                    b = in(reg) panel,
                    row = in(reg) 64usize,
                    options(nostack, preserves_flags),
                );
            }
            asm!(
                concat!("tilezero ", $c),
                concat!("tileloadd ", $a, ", [{x} + {row}]"),
                concat!("tdpbssd ", $c, ", ", $a, ", ", $b),
                x = in(reg) x,
                row = in(reg) GROUP,
                options(nostack, preserves_flags),
            );
        }};
    }
    // SAFETY: the registers have the shapes that `Unit::set_up` gave them. A's rows are the 32 bytes of each plane of each token, or 16 of them
    // from `16 * part` on. B's rows are the 64 bytes of the panel's vectors, all eight or four from `4 * part` on. The compiler has no
    // values that it would keep in these registers, so they last from one of these blocks to the next.
    unsafe {
        match (c, b) {
            (0, 0) => multiply!("tmm0", "tmm4", "tmm6"),
            (1, 0) => multiply!("tmm1", "tmm5", "tmm6"),
            (2, 0) => multiply!("tmm2", "tmm4", "tmm6"),
            (3, 0) => multiply!("tmm3", "tmm5", "tmm6"),
            (0, _) => multiply!("tmm0", "tmm4", "tmm7"),
            (1, _) => multiply!("tmm1", "tmm5", "tmm7"),
            (2, _) => multiply!("tmm2", "tmm4", "tmm7"),
            _ => multiply!("tmm3", "tmm5", "tmm7"),
        }
    }
}

/// Stores C number `c`.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(c: usize, products: &mut Products) {
    macro_rules! store {
        ($c:literal) => {
            asm!(
                concat!("tilestored [{c} + {row}], ", $c),
                c = in(reg) products,
                row = in(reg) 64usize,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: as in `multiply`. C's rows are the 64 bytes of `products`' innermost arrays, of which there are as many as C may have rows.
    unsafe {
        match c {
            0 => store!("tmm0"),
            1 => store!("tmm1"),
            2 => store!("tmm2"),
            _ => store!("tmm3"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{
            q_k::{Q4K, Q5K},
            q4::{Q4_0, Q4_1},
            q5::{Q5_0, Q5_1},
            q6_k::Q6K,
            q8::Q8_0,
            scheme,
        },
        *,
    };

    /// A tile of numbers that look random, its halves far from infinity, some of its groups full of the largest code.
    fn tile<S: Scheme>(n_blocks: usize, state: &mut u32) -> Vec<u8> {
        let mut next = || {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (*state >> 24) as u8
        };
        let mut tile: Vec<u8> = (0..n_blocks * S::TILE_BYTES).map(|_| next()).collect();
        for block in tile.chunks_exact_mut(S::TILE_BYTES) {
            let (header, codes) = block.split_at_mut(S::Header::BYTES);
            header.iter_mut().take(4 * ROWS).skip(1).step_by(2).for_each(|byte| *byte = *byte & 0x83 | 0x28);
            for codes in codes.chunks_exact_mut(S::GROUP_BYTES) {
                if next().is_multiple_of(4) {
                    codes.fill(0xff);
                }
            }
        }
        tile
    }

    fn tokens(n_tokens: usize, n_groups: usize) -> Vec<Vec<Group>> {
        let value = |token: usize, i: usize| match (i / GROUP + token) % 3 {
            0 => 1.0,
            1 => -2.5,
            _ => ((i * 7 + token) as f32 * 0.37).sin(),
        };
        let token = |token| {
            let x: Vec<f32> = (0..n_groups * GROUP).map(|i| value(token, i)).collect();
            let mut groups =
                vec![Group { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [[0; GROUP]; 2] }; n_groups];
            Group::fill(Level::Scalar, &x, &mut groups);
            groups
        };
        (0..n_tokens).map(token).collect()
    }

    fn check<S: Scheme>() {
        let mut state = 5;
        for (n_blocks, n_tokens) in (1..=3).flat_map(|n_blocks| (1..=33).map(move |n_tokens| (n_blocks, n_tokens))) {
            let Some(mut unit) = Unit::new(n_tokens) else { return };
            let (tile, of_block) = (tile::<S>(n_blocks, &mut state), S::BLOCK_LEN / GROUP);
            let n_groups = n_blocks * of_block;
            let mut panels = vec![Panel::EMPTY; n_groups];
            for (block, panels) in tile.chunks_exact(S::TILE_BYTES).zip(panels.chunks_exact_mut(of_block)) {
                let fields = S::Header::fields(block);
                panels.iter_mut().enumerate().for_each(|(g, panel)| scheme::unpack::<S>(block, &fields, g, panel));
            }
            let x = tokens(n_tokens, n_groups);
            let slices: Vec<&[Group]> = x.iter().map(Vec::as_slice).collect();
            let mut expected = vec![[[0.25; ROWS], [0.0; ROWS]]; n_tokens];
            scalar::accumulate(S::FORM, &[&panels], &slices, &mut expected);
            let mut blocks = vec![Block::EMPTY; n_tokens.div_ceil(TOKENS) * n_groups];
            for (t, x) in x.iter().enumerate() {
                let blocks = &mut blocks[t / TOKENS * n_groups..];
                blocks.iter_mut().zip(x).for_each(|(block, group)| block.put(t % TOKENS, group));
            }
            let mut found = vec![[0.25; ROWS]; n_tokens];
            unit.accumulate::<S>(&tile, &blocks, &mut found);
            let expected: Vec<Lanes> = expected.iter().map(|sums| sums[0]).collect();
            assert_eq!(found, expected, "{:?} of {} bits, {n_tokens} tokens, {n_groups} groups", S::FORM, S::BITS);
        }
    }

    /// Where there is a matrix unit: elsewhere these kernels are never called.
    #[test]
    fn sums_have_the_bits_of_the_definition() {
        check::<Q4_0>();
        check::<Q4_1>();
        check::<Q5_0>();
        check::<Q5_1>();
        check::<Q8_0>();
        check::<Q4K>();
        check::<Q5K>();
        check::<Q6K>();
    }
}
