//! AMX: a few tokens, straight from a tile: eight tokens by sixteen rows and 32 columns in one instruction of sixteen cycles.
//!
//! ```text
//! C 8 tokens x 2 planes x 16 rows, i32  =  A 8 tokens x 2 planes x 32 columns, i8  ·  B 32 columns x 16 rows, u8
//! ```
//! The sums of a group go through memory to the vector registers, where the steps in f32 are those of the definition. The matrix unit takes
//! as long to store a register as to multiply, and does both at once only where what it stores was finished before: four C take turns,
//! and each is stored two products after its own. It has the results 52 cycles after it has started.
//!
//! What bounds all this is the two ports that vector operations share, of which storing a register takes one for 16 cycles too: 16 + 40 to 72
//! operations for the sums of eight tokens, and those that unpack.
//!
//! The instructions are written as assembly, since their intrinsics are not stable.

#![expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]

mod block;

use std::{
    arch::{asm, x86_64::*},
    marker::PhantomData,
};

pub use block::Block;

use super::{
    super::scheme::{FAR_BYTES, Header, Scaling, Scheme, prefetch_part},
    avx512::{Conversions, load, load_f32},
    straight::avx512::vector,
    *,
};
use crate::amx::{Shapes, configure, is_available, release};

/// Tokens of a matrix register.
pub const TOKENS: usize = 8;

/// Blocks of tokens that are multiplied with a tile in one pass over it, at most.
const BLOCKS: usize = 2;

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

    /// Adds the products of two `tiles`, one behind the other in memory or twice the same, with the tokens of `x`, `[n_tokens / 8, groups]`, to
    /// `sums`, one for each token.
    ///
    /// # Panics
    /// If the numbers of groups or tokens differ.
    pub fn accumulate<S: Scheme>(&mut self, tiles: [&[u8]; TILES], x: &[Block], sums: &mut [Sums]) {
        let n_groups = tiles[0].len() / S::TILE_BYTES * (S::BLOCK_LEN / GROUP);
        assert!(tiles[0].len() == tiles[1].len() && sums.len() == self.n_tokens, "a sum for every token");
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
                    multiply_tiles::<S, 1, BLOCKS, TOKENS>([tiles[0]], [first, second], sums, 0, &mut self.pipeline);
                    multiply_tiles::<S, 1, BLOCKS, TOKENS>([tiles[1]], [first, second], sums, 1, &mut self.pipeline);
                } else if self.n_tokens > TOKENS / 2 {
                    multiply_tiles::<S, TILES, 1, TOKENS>(tiles, [first], sums, 0, &mut self.pipeline);
                } else {
                    multiply_tiles::<S, TILES, 1, { TOKENS / 2 }>(tiles, [first], sums, 0, &mut self.pipeline);
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

/// What is on its way between memory, the unit and the vector registers: as little as can be, since tokens and weights pass through the
/// first-level cache beside it.
#[repr(C, align(64))]
struct Pipeline {
    /// By group and tile: unpacked while the group before is multiplied.
    codes: [[Codes; TILES]; 2],
    /// By part, and tile or block of tokens: the group that is stored and the one before it.
    products: [[Products; SIDES]; 4],
}

/// As in [`Panel::codes`], 16 times as large where codes have four bits.
type Codes = [[u8; 64]; 8];

/// Sums of a part, which is a group's columns or half of them.
type Products = [[[i32; ROWS]; PLANES]; TOKENS];

/// Products side by side: of two tiles with a block, or of a tile with two blocks.
const SIDES: usize = 2;

impl Pipeline {
    const EMPTY: Pipeline =
        Pipeline { codes: [[[[0; 64]; 8]; TILES]; 2], products: [[[[[0; ROWS]; PLANES]; TOKENS]; SIDES]; 4] };

    fn products<S: Scheme>(&mut self, part: usize, side: usize) -> &mut Products {
        &mut self.products[part % (2 * parts::<S>())][side]
    }
}

/// Two tiles with a block of tokens, or a tile, of which the sums are those at `column`, with two blocks. `T` is what the registers are set
/// up for; there may be fewer `sums`, and the tokens beyond them are zero.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_tiles<S: Scheme, const N_TILES: usize, const N_BLOCKS: usize, const T: usize>(
    tiles: [&[u8]; N_TILES],
    x: [&[Block]; N_BLOCKS],
    sums: &mut [Sums],
    column: usize,
    pipeline: &mut Pipeline,
) {
    let mut acc = [[_mm512_setzero_ps(); T]; SIDES];
    for tile in 0..N_TILES {
        for block in 0..N_BLOCKS {
            for t in 0..T {
                if let Some(sums) = sums.get(block * T + t) {
                    acc[tile + block][t] = load_f32(&sums[column + tile]);
                }
            }
        }
    }
    let n_groups = x[0].len();
    let n_parts = n_groups * parts::<S>();
    // SAFETY: this function has the instruction set.
    let read = unsafe { Conversions::new() };
    let mut fields = [S::Header::fields(tiles[0], read), S::Header::fields(tiles[N_TILES - 1], read)];
    for tile in 0..N_TILES {
        // SAFETY: they are this function's.
        unsafe { unpack::<S>(tiles[tile], 0, &mut pipeline.codes[0][tile]) };
    }
    let [first, second] = &mut acc;
    let [first_fields, second_fields] = &mut fields;
    for i in (0..n_parts + TAKEN).step_by(2) {
        // SAFETY: they are this function's.
        unsafe {
            step::<S, N_TILES, N_BLOCKS, T, 0, 0, 0>(i, tiles, first_fields, x, pipeline, first);
            if N_TILES > 1 {
                step::<S, N_TILES, N_BLOCKS, T, 0, 1, 0>(i, tiles, second_fields, x, pipeline, second);
            } else if N_BLOCKS > 1 {
                step::<S, N_TILES, N_BLOCKS, T, 0, 0, 1>(i, tiles, first_fields, x, pipeline, second);
            }
            step::<S, N_TILES, N_BLOCKS, T, 1, 0, 0>(i + 1, tiles, first_fields, x, pipeline, first);
            if N_TILES > 1 {
                step::<S, N_TILES, N_BLOCKS, T, 1, 1, 0>(i + 1, tiles, second_fields, x, pipeline, second);
            } else if N_BLOCKS > 1 {
                step::<S, N_TILES, N_BLOCKS, T, 1, 0, 1>(i + 1, tiles, first_fields, x, pipeline, second);
            }
        }
    }
    for tile in 0..N_TILES {
        for block in 0..N_BLOCKS {
            for t in 0..T {
                if let Some(sums) = sums.get_mut(block * T + t) {
                    // SAFETY: the array is as long as the register.
                    unsafe { _mm512_storeu_ps(sums[column + tile].as_mut_ptr(), acc[tile + block][t]) };
                }
            }
        }
    }
}

/// Of part `i`, which is `ODD` or not, and those before it that are on their way, what is due for a tile and a block.
///
/// As a call it would have all sums spilled, and only what has no instruction set of its own can be told to be none.
///
/// # Safety
/// The processor must have the instruction sets of `multiply_tiles`.
#[inline(always)]
unsafe fn step<
    S: Scheme,
    const N_TILES: usize,
    const N_BLOCKS: usize,
    const T: usize,
    const ODD: usize,
    const TILE: usize,
    const BLOCK: usize,
>(
    i: usize,
    tiles: [&[u8]; N_TILES],
    fields: &mut <S::Header as Header>::Fields,
    x: [&[Block]; N_BLOCKS],
    pipeline: &mut Pipeline,
    acc: &mut [__m512; T],
) {
    let side = TILE + BLOCK;
    let tile = tiles[TILE];
    let n_groups = x[0].len();
    let of_group = parts::<S>();
    let part = ODD % of_group;
    // SAFETY: the caller answers for the instruction sets.
    unsafe {
        // What is stored makes room for this product's C. Sums are taken and the next codes unpacked while the unit is busy.
        if (STORED..n_groups * of_group + STORED).contains(&i) {
            store(SIDES * ODD + side, pipeline.products::<S>(i - STORED, side));
        }
        if (ODD + TAKEN + 1).is_multiple_of(of_group) && (TAKEN..n_groups * of_group + TAKEN).contains(&i) {
            let g = (i - TAKEN) / of_group;
            take::<S, N_TILES, T>(g, tile, fields, side, &x[BLOCK][g], pipeline, acc);
        }
        let g = i / of_group;
        if g < n_groups {
            // What both sides share is loaded once for them, in turns into one register and the other.
            let (a, b) = if N_TILES > 1 { (ODD, TILE) } else { (BLOCK, ODD) };
            if TILE == 0 {
                load_a(a, &x[BLOCK][g], part);
            }
            if BLOCK == 0 {
                let codes = if is_whole::<S>() { stored::<S>(tile, g) } else { &pipeline.codes[g % 2][TILE] };
                load_b::<S>(b, codes, part);
            }
            multiply::<S, N_TILES>(ODD, side);
            if BLOCK == 0 && part == 0 && g + 1 < n_groups {
                unpack::<S>(tile, g + 1, &mut pipeline.codes[(g + 1) % 2][TILE]);
            }
        }
    }
}

/// Into how many parts a group's columns fall, each with a scale.
const fn parts<S: Scheme>() -> usize {
    if matches!(S::FORM, Form::OffsetOfHalves(_)) { 2 } else { 1 }
}

/// Whether codes are bytes that the unit reads from the tile, with their offset.
const fn is_whole<S: Scheme>() -> bool {
    S::BITS == 8
}

/// Whether the codes that the unit reads have no sign.
const fn is_unsigned<S: Scheme>() -> bool {
    is_whole::<S>() || matches!(S::FORM, Form::Minimum)
}

/// The stored codes of group `g`.
#[inline(always)]
fn stored<S: Scheme>(tile: &[u8], g: usize) -> &[[u8; 64]] {
    let of_block = S::BLOCK_LEN / GROUP;
    let block = &tile[g / of_block * S::TILE_BYTES..][..S::TILE_BYTES];
    block[S::Header::BYTES + g % of_block * S::GROUP_BYTES..][..S::GROUP_BYTES].as_chunks().0
}

/// Unpacks group `g`, its codes less their offset.
///
/// # Safety
/// As for [`step`].
#[inline(always)]
unsafe fn unpack<S: Scheme>(tile: &[u8], g: usize, codes: &mut Codes) {
    let stored = stored::<S>(tile, g);
    if is_whole::<S>() {
        return;
    }
    // SAFETY: the caller answers for the instruction sets, and the arrays are as long as the register.
    unsafe {
        let mut put = |k: usize, w| _mm512_storeu_si512(codes[k].as_mut_ptr().cast(), w);
        if S::BITS == 4 {
            // In the upper half of a byte a code less 8 is the code with its first bit turned.
            let (first, upper) = (_mm512_set1_epi8((16 * S::FORM.offset()) as i8), _mm512_set1_epi8(0xf0u8 as i8));
            for k in 0..4 {
                let w = load(&stored[k]);
                put(k, _mm512_and_si512(_mm512_xor_si512(_mm512_slli_epi16::<4>(w), first), upper));
                put(k + 4, _mm512_and_si512(_mm512_xor_si512(w, first), upper));
            }
        } else {
            let offset = _mm512_set1_epi8(S::FORM.offset() as i8);
            for k in 0..8 {
                put(k, _mm512_sub_epi8(vector::<S>(stored, k), offset));
            }
        }
    }
}

/// Adds group `g`'s products of one of `N_TILES` with a block of tokens, which are on one `side`, to their sums, and asks for weights further on.
///
/// # Safety
/// As for [`step`].
#[inline(always)]
unsafe fn take<S: Scheme, const N_TILES: usize, const T: usize>(
    g: usize,
    tile: &[u8],
    fields: &mut <S::Header as Header>::Fields,
    side: usize,
    x: &Block,
    pipeline: &mut Pipeline,
    acc: &mut [__m512; T],
) {
    let of_block = S::BLOCK_LEN / GROUP;
    let block = &tile[g / of_block * S::TILE_BYTES..][..S::TILE_BYTES];
    // SAFETY: the caller answers for the instruction sets.
    let read = unsafe { Conversions::new() };
    if g.is_multiple_of(of_block) {
        *fields = S::Header::fields(block, read);
    }
    let stored = stored::<S>(tile, g);
    // Behind the end of this tile comes one that is under way too.
    let far_bytes = FAR_BYTES / N_TILES;
    let is_behind = (g + 1) * S::BYTES_PER_GROUP + far_bytes > tile.len();
    let ahead = far_bytes + if is_behind { (N_TILES - 1) * tile.len() } else { 0 };
    let mut scaling = Scaling::NONE;
    S::Header::unpack(block, fields, g % of_block, &mut scaling, read);
    // SAFETY: the caller answers for the instruction sets.
    unsafe {
        let minima = load_f32(&scaling.minima);
        let mut scales = [load_f32(&scaling.scales[0]), load_f32(&scaling.scales[1])];
        if S::BITS == 4 {
            // A power of two, so that each product has the bits that it would have.
            scales[0] = _mm512_mul_ps(scales[0], _mm512_set1_ps(1.0 / 16.0));
        }
        for t in 0..T {
            let mut product;
            if let Form::OffsetOfHalves(_) = S::FORM {
                product = _mm512_mul_ps(_mm512_cvtepi32_ps(sum(pipeline.products::<S>(2 * g, side), t)), scales[0]);
                let second = _mm512_cvtepi32_ps(sum(pipeline.products::<S>(2 * g + 1, side), t));
                product = _mm512_fmadd_ps(second, scales[1], product);
            } else {
                let mut s = sum(pipeline.products::<S>(g, side), t);
                if is_whole::<S>() {
                    s = _mm512_sub_epi32(s, _mm512_set1_epi32(x.excess[t]));
                }
                product = _mm512_mul_ps(_mm512_cvtepi32_ps(s), scales[0]);
            }
            acc[t] = _mm512_fmadd_ps(product, _mm512_set1_ps(x.scales[t]), acc[t]);
            prefetch_part(stored.as_flattened(), S::BYTES_PER_GROUP, ahead, t, T);
            if let Form::Minimum = S::FORM {
                acc[t] = _mm512_fmadd_ps(minima, _mm512_set1_ps(x.scaled_sums[t]), acc[t]);
            }
        }
    }
}

/// `256 · first plane + second` of a token.
#[inline]
#[target_feature(enable = "avx512f")]
fn sum(products: &Products, t: usize) -> __m512i {
    // SAFETY: the arrays are as long as the register.
    let [first, second] = unsafe {
        [_mm512_loadu_si512(products[t][0].as_ptr().cast()), _mm512_loadu_si512(products[t][1].as_ptr().cast())]
    };
    _mm512_add_epi32(_mm512_slli_epi32::<8>(first), second)
}

/// Runs `$macro!` with the name of register `$first + $n`, for `$n` of 0 and 1.
macro_rules! with_register {
    ($n:expr, $first:literal, $second:literal, $macro:ident) => {
        if $n == 0 { $macro!($first) } else { $macro!($second) }
    };
}

/// Loads a group of a block of tokens, or the half `part` of it, into one of the two A.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_a(a: usize, x: &Block, part: usize) {
    let x: *const i8 = &raw const x.codes[0][0][GROUP / 2 * part];
    macro_rules! load {
        ($a:literal) => {
            asm!(
                concat!("tileloadd ", $a, ", [{x} + {row}]"),
                x = in(reg) x,
                row = in(reg) GROUP,
                options(nostack, preserves_flags, readonly),
            )
        };
    }
    // SAFETY: the registers have the shapes that `Unit::set_up` gave them. A's rows are the 32 bytes of each plane of each token, or 16 of them
    // from `16 * part` on. The compiler has no values that it would keep in these registers, so they last from one of these blocks of
    // assembly to the next.
    unsafe { with_register!(a, "tmm4", "tmm5", load) }
}

/// Loads a group of a tile, or the half `part` of it, into one of the two B.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_b<S: Scheme>(b: usize, codes: &[[u8; 64]], part: usize) {
    let codes = &raw const codes[4 * part..][..8 / parts::<S>()];
    macro_rules! load {
        ($b:literal) => {
            asm!(
                concat!("tileloadd ", $b, ", [{codes} + {row}]"),
                codes = in(reg) codes.cast::<u8>(),
                row = in(reg) 64usize,
                options(nostack, preserves_flags, readonly),
            )
        };
    }
    // SAFETY: as in `load_a`. B's rows are the 64 bytes of each of the `codes`, all eight or four from `4 * part` on.
    unsafe { with_register!(b, "tmm6", "tmm7", load) }
}

/// Starts the product of a part that is `odd` or not into the C of a `side`, from the A and B that `multiply_tiles` has loaded for them.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply<S: Scheme, const N_TILES: usize>(odd: usize, side: usize) {
    macro_rules! multiply {
        ($instruction:literal, $c:literal, $a:literal, $b:literal) => {
            asm!(
                concat!("tilezero ", $c),
                concat!($instruction, " ", $c, ", ", $a, ", ", $b),
                options(nostack, preserves_flags, nomem),
            )
        };
        ($c:literal, $a:literal, $b:literal) => {
            if is_unsigned::<S>() { multiply!("tdpbsud", $c, $a, $b) } else { multiply!("tdpbssd", $c, $a, $b) }
        };
    }
    // SAFETY: as in `load_a`.
    unsafe {
        match (N_TILES, odd, side) {
            (1, 0, 0) => multiply!("tmm0", "tmm4", "tmm6"),
            (1, 0, _) => multiply!("tmm1", "tmm5", "tmm6"),
            (1, _, 0) => multiply!("tmm2", "tmm4", "tmm7"),
            (1, _, _) => multiply!("tmm3", "tmm5", "tmm7"),
            (_, 0, 0) => multiply!("tmm0", "tmm4", "tmm6"),
            (_, 0, _) => multiply!("tmm1", "tmm4", "tmm7"),
            (_, _, 0) => multiply!("tmm2", "tmm5", "tmm6"),
            (_, _, _) => multiply!("tmm3", "tmm5", "tmm7"),
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
    // SAFETY: as in `load_a`. C's rows are the 64 bytes of `products`' innermost arrays, of which there are as many as C may have rows.
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
            header::Portable,
            q_k::{Q4K, Q5K},
            q4::{Q4_0, Q4_1},
            q5::{Q5_0, Q5_1},
            q6_k::Q6K,
            q8::Q8_0,
            tiles::Unpacked,
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

    fn activations(token: usize, n_groups: usize) -> Vec<f32> {
        let value = |i: usize| match (i / GROUP + token) % 3 {
            0 => 1.0,
            1 => -2.5,
            _ => ((i * 7 + token) as f32 * 0.37).sin(),
        };
        (0..n_groups * GROUP).map(value).collect()
    }

    fn tokens(n_tokens: usize, n_groups: usize) -> Vec<Vec<Group>> {
        let token = |token| {
            let mut groups =
                vec![Group { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [[0; GROUP]; 2] }; n_groups];
            Group::fill(Level::Scalar, &activations(token, n_groups), &mut groups);
            groups
        };
        (0..n_tokens).map(token).collect()
    }

    fn check<S: Scheme>() {
        let mut state = 5;
        for (n_blocks, n_tokens) in (1..=3).flat_map(|n_blocks| (1..=33).map(move |n_tokens| (n_blocks, n_tokens))) {
            let Some(mut unit) = Unit::new(n_tokens) else { return };
            let tiles = [(); TILES].map(|()| tile::<S>(n_blocks, &mut state));
            let of_block = S::BLOCK_LEN / GROUP;
            let n_groups = n_blocks * of_block;
            let panels = tiles.each_ref().map(|tile| {
                let mut panels = vec![Panel::EMPTY; n_groups];
                for (block, panels) in tile.chunks_exact(S::TILE_BYTES).zip(panels.chunks_exact_mut(of_block)) {
                    let fields = S::Header::fields(block, Portable);
                    panels.iter_mut().enumerate().for_each(|(g, panel)| panel.unpack::<S>(block, &fields, g));
                }
                panels
            });
            let x = tokens(n_tokens, n_groups);
            let slices: Vec<&[Group]> = x.iter().map(Vec::as_slice).collect();
            let before = vec![[[0.25; ROWS], [-0.75; ROWS]]; n_tokens];
            let mut expected = before.clone();
            scalar::accumulate(S::FORM, &panels.each_ref().map(Vec::as_slice), &slices, &mut expected);
            let x: Vec<f32> = (0..n_tokens).flat_map(|token| activations(token, n_groups)).collect();
            let mut blocks = vec![Block::EMPTY; n_tokens.div_ceil(TOKENS) * n_groups];
            Block::quantize(&mut blocks, 0, &x, n_groups * GROUP);
            let mut found = before;
            unit.accumulate::<S>(tiles.each_ref().map(Vec::as_slice), &blocks, &mut found);
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
