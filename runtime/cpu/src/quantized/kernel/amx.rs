//! AMX: sixteen tokens by sixteen rows and 32 columns in one instruction of sixteen cycles.
//!
//! ```text
//! C[plane] 16 tokens x 16 rows, i32  =  A[plane] 16 tokens x 32 columns, i8  ·  B 32 columns x 16 rows, i8
//! ```
//! A panel's codes are B as they are, but for their offset, which is taken off before (see [`Panel::subtract`]). The sums go through
//! memory to the vector registers, where the steps in f32 are those of the definition. The matrix unit takes 16 cycles for a product and for a
//! store of a register alike, and does not seem to rename its registers: two pairs of C take turns, so that one is stored while the other is
//! computed.
//!
//! The instructions are written as assembly, since their intrinsics are not stable.

use std::{
    arch::{asm, x86_64::*},
    marker::PhantomData,
    mem::MaybeUninit,
};

use super::{avx512::load_f32, *};
use crate::amx::{Shapes, configure, is_available, release};

/// Tokens of a matrix register.
pub const TOKENS: usize = 16;

/// A group of sixteen tokens, as the unit reads it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Block {
    /// `[plane][token][column]`
    codes: [[[i8; GROUP]; TOKENS]; PLANES],
    scales: [f32; TOKENS],
    scaled_sums: [f32; TOKENS],
}

impl Block {
    /// Of tokens that are zero.
    pub const EMPTY: Block =
        Block { codes: [[[0; GROUP]; TOKENS]; PLANES], scales: [0.0; TOKENS], scaled_sums: [0.0; TOKENS] };

    /// Makes `group` that of token `t`.
    pub fn put(&mut self, t: usize, group: &Group) {
        for (plane, codes) in self.codes.iter_mut().zip(&group.codes) {
            plane[t] = *codes;
        }
        (self.scales[t], self.scaled_sums[t]) = (group.scale, group.scaled_sum);
    }
}

/// The matrix unit, set up for products of one form on this thread until dropped.
pub struct Unit {
    form: Form,
    /// Whether registers are of eight tokens and not of sixteen.
    narrow: bool,
    /// Registers are a thread's own.
    of_this_thread: PhantomData<*const ()>,
}

impl Unit {
    /// For `form` and up to `n_tokens` at a time; `None` where there is no such unit.
    pub fn new(form: Form, n_tokens: usize) -> Option<Unit> {
        if !is_available() {
            return None;
        }
        let narrow = n_tokens <= TOKENS / 2;
        let rows = if narrow { TOKENS / 2 } else { TOKENS };
        let columns = if matches!(form, Form::OffsetOfHalves(_)) { GROUP / 2 } else { GROUP };
        // 0 to 3 are C, 4 and 5 are A, 6 is B.
        let [a, b, c] = [(rows, columns), (columns / 4, 64), (rows, 64)];
        configure(&Shapes::new([c, c, c, c, a, a, b, (0, 0)]));
        Some(Unit { form, narrow, of_this_thread: PhantomData })
    }

    /// Adds the products of `tiles` (of as many groups as there are blocks), whose codes are less their offset, with the tokens of `x` to
    /// `sums`, one for each token of the block.
    ///
    /// # Panics
    /// If there are more tiles than sums, or the numbers of groups differ.
    pub fn accumulate(&self, tiles: &[&[Panel]], x: &[Block], sums: &mut [Sums; TOKENS]) {
        assert!(tiles.len() <= TILES && tiles.iter().all(|tile| tile.len() == x.len()), "tiles of one length");
        for (n, tile) in tiles.iter().enumerate() {
            // SAFETY: there is a unit, so the processor has the instruction sets.
            unsafe {
                match (self.form, self.narrow) {
                    (Form::Offset(_), false) => multiply_tile::<16, false, false>(tile, x, sums, n),
                    (Form::Offset(_), true) => multiply_tile::<8, false, false>(tile, x, sums, n),
                    (Form::OffsetOfHalves(_), false) => multiply_tile::<16, true, false>(tile, x, sums, n),
                    (Form::OffsetOfHalves(_), true) => multiply_tile::<8, true, false>(tile, x, sums, n),
                    (Form::Minimum, false) => multiply_tile::<16, false, true>(tile, x, sums, n),
                    (Form::Minimum, true) => multiply_tile::<8, false, true>(tile, x, sums, n),
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

/// Sums of a group's columns, or of half of them: `[plane][token][row]`.
#[repr(C, align(64))]
struct Products([[[i32; ROWS]; TOKENS]; PLANES]);

/// Groups between the one the unit computes and the one the vector registers take: memory takes a while to hand back what the unit stores.
const DELAY: usize = 2;

/// Sums on their way through memory.
struct Ring([MaybeUninit<Products>; 4]);

impl Ring {
    #[inline(always)]
    fn new() -> Ring {
        Ring([const { MaybeUninit::uninit() }; 4])
    }

    #[inline(always)]
    fn part(&mut self, i: usize) -> *mut Products {
        self.0[i % 4].as_mut_ptr()
    }

    /// `256 · first plane + second` of part `i`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sum(&self, i: usize, t: usize) -> __m512 {
        let p = self.0[i % 4].as_ptr();
        // SAFETY: the arrays are as long as the register, and the unit has stored part `i` with as many tokens as its registers have.
        let [first, second] = unsafe {
            [_mm512_loadu_si512((&raw const (*p).0[0][t]).cast()), _mm512_loadu_si512((&raw const (*p).0[1][t]).cast())]
        };
        _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32::<8>(first), second))
    }
}

/// Runs `$body` with `$t` from 0 to `$T`, written out: the compiler would keep a loop of sixteen, and so its sums in memory.
macro_rules! for_each_token {
    ($T:ident, $t:ident => $body:block) => {
        for_each_token!(@ $T, $t, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $T:ident, $t:ident, $body:block, $($n:literal)*) => {
        $(if $n < $T {
            let $t: usize = $n;
            $body
        })*
    };
}

/// Adds to the `n`-th tile of `sums`. `T` is what the registers are set up for.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_tile<const T: usize, const HALVES: bool, const MINIMA: bool>(
    tile: &[Panel],
    x: &[Block],
    sums: &mut [Sums; TOKENS],
    n: usize,
) {
    let mut acc = [_mm512_setzero_ps(); T];
    for_each_token!(T, t => { acc[t] = load_f32(&sums[t][n]) });
    // The unit computes one part of columns and stores the one before. Of halves both are stored before they are taken.
    let mut stored = Ring::new();
    let (n_parts, delay) = if HALVES { (2, 1) } else { (1, DELAY) };
    let n_groups = tile.len();
    for g in 0..n_groups + delay {
        for part in 0..n_parts {
            let i = n_parts * g + part;
            if g < n_groups {
                multiply(&tile[g], &x[g], part, i % 2 == 1, stored.part(i.wrapping_sub(1)));
            } else if i == n_parts * n_groups {
                store(i % 2 == 0, stored.part(i.wrapping_sub(1)));
            }
        }
        let Some(g) = g.checked_sub(delay) else { continue };
        let (panel, x) = (&tile[g], &x[g]);
        let scales = [load_f32(&panel.scales[0]), load_f32(&panel.scales[1])];
        let minima = load_f32(&panel.minima);
        for_each_token!(T, t => {
            let mut product = _mm512_mul_ps(stored.sum(n_parts * g, t), scales[0]);
            if HALVES {
                product = _mm512_fmadd_ps(stored.sum(n_parts * g + 1, t), scales[1], product);
            }
            acc[t] = _mm512_fmadd_ps(product, _mm512_set1_ps(x.scales[t]), acc[t]);
            if MINIMA {
                acc[t] = _mm512_fmadd_ps(minima, _mm512_set1_ps(x.scaled_sums[t]), acc[t]);
            }
        });
    }
    for_each_token!(T, t => {
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_storeu_ps(sums[t][n].as_mut_ptr(), acc[t]) }
    });
}

/// Starts a product into one pair of C, and stores the other.
macro_rules! multiply_into {
    ($a:literal, $b:literal, stored: $c:literal, $d:literal, $panel:ident, $x:ident, $products:ident) => {
        asm!(
            concat!("tilezero ", $a),
            concat!("tilezero ", $b),
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm4, [{x} + {columns}]",
            concat!("tdpbssd ", $a, ", tmm4, tmm6"),
            concat!("tilestored [{c} + {row}], ", $c),
            "tileloadd tmm5, [{x} + {columns} + {plane}]",
            concat!("tdpbssd ", $b, ", tmm5, tmm6"),
            concat!("tilestored [{c} + {row} + {tile}], ", $d),
            x = in(reg) $x,
            columns = in(reg) GROUP,
            b = in(reg) $panel,
            c = in(reg) $products,
            row = in(reg) 64usize,
            plane = const size_of::<[[i8; GROUP]; TOKENS]>(),
            tile = const size_of::<[[i32; ROWS]; TOKENS]>(),
            options(nostack, preserves_flags),
        )
    };
}

/// Starts the product of a group's columns, or of the half `part` of them, into the `odd` pair of registers or the other, and stores the other pair's sums.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply(panel: &Panel, x: &Block, part: usize, odd: bool, products: *mut Products) {
    let x: *const i8 = &raw const x.codes[0][0][GROUP / 2 * part];
    let panel = &raw const panel.codes[4 * part];
    // SAFETY: the registers have the shapes that `Unit::new` gave them. A's rows are the 32 bytes of each token in the block's two planes, or 16 of
    // them from `16 * part` on. B's rows are the 64 bytes of the panel's vectors, all eight or four from `4 * part` on. C's rows are the 64
    // bytes of `products`' innermost arrays, of which there are as many as A may have rows. The compiler has no values that it would keep in
    // these registers, so they last from one of these blocks to the next.
    unsafe {
        if odd {
            multiply_into!("tmm2", "tmm3", stored: "tmm0", "tmm1", panel, x, products);
        } else {
            multiply_into!("tmm0", "tmm1", stored: "tmm2", "tmm3", panel, x, products);
        }
    }
}

/// Stores the sums of the `odd` pair or of the other.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(odd: bool, products: *mut Products) {
    macro_rules! store {
        ($a:literal, $b:literal) => {
            asm!(
                concat!("tilestored [{c} + {row}], ", $a),
                concat!("tilestored [{c} + {row} + {tile}], ", $b),
                c = in(reg) products,
                row = in(reg) 64usize,
                tile = const size_of::<[[i32; ROWS]; TOKENS]>(),
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: as in `multiply`.
    unsafe {
        if odd {
            store!("tmm2", "tmm3");
        } else {
            store!("tmm0", "tmm1");
        }
    }
}
