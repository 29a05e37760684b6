//! The product of a strip of 32 rows with a block of tokens.
//!
//! One body, [`sweep`], for every instruction set: each is a [`Vector`] and a choice of how many rows and tokens have their sums in registers.
//! A strip holds its columns in pairs:
//!
//! ```text
//! BF16   words of the 32 rows, the first column in the low half and the second in the high one    128 bytes
//! F16    the first column of the 32 rows | the second                                         2 x  64 bytes
//! F32    the first column of the 32 rows | the second                                         2 x 128 bytes
//! ```
//! A strip of fewer rows, a matrix's last, has fewer in each column and no gaps: it is multiplied as the f32 strip it is converted to.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(super) mod matrix;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::slice;

use crate::{
    level::Level,
    prefetch::{LINE, second_level},
};

/// Rows of a strip.
pub(super) const ROWS: usize = 32;

/// Sums of one token.
pub(super) type Sums = [f32; ROWS];

/// 64 bytes of a strip, so that no register is loaded from two lines of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

impl Line {
    pub const ZERO: Line = Line([0; 64]);

    /// All the bytes.
    pub fn bytes(lines: &[Line]) -> &[u8] {
        // SAFETY: lines are arrays of bytes one after the other.
        unsafe { slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
    }

    /// As pairs of columns of a strip in f32.
    pub fn pairs(lines: &[Line]) -> &[[[f32; ROWS]; 2]] {
        // SAFETY: lines are aligned for f32, of which every bit may be anything.
        unsafe { slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines) / Stored::F32.pair_bytes(ROWS)) }
    }
}

#[cfg(test)]
impl Line {
    /// All the bytes.
    pub fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
        // SAFETY: lines are arrays of bytes one after the other.
        unsafe { slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
    }
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Bf16,
    F16,
    F32,
}

impl Stored {
    /// Bytes of a weight.
    pub const fn size(self) -> usize {
        match self {
            Stored::Bf16 | Stored::F16 => 2,
            Stored::F32 => 4,
        }
    }

    /// Bytes of a pair of columns of `n_rows`.
    pub const fn pair_bytes(self, n_rows: usize) -> usize {
        2 * self.size() * n_rows
    }
}

/// Some pairs of columns of a strip.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    pub stored: Stored,
    /// Of the strip, at most [`ROWS`].
    pub n_rows: usize,
    pub n_pairs: usize,
    /// The pairs, and at least as much behind them as a pair of [`ROWS`] has more than one of `n_rows`.
    pub bytes: &'a [u8],
}

impl Pairs<'_> {
    /// What `n_pairs` take, with what is read behind them.
    pub const fn readable_bytes(stored: Stored, n_rows: usize, n_pairs: usize) -> usize {
        match n_pairs {
            0 => 0,
            _ => (n_pairs - 1) * stored.pair_bytes(n_rows) + stored.pair_bytes(ROWS),
        }
    }

    fn check(&self) {
        assert!(self.n_rows <= ROWS, "a strip");
        assert!(self.bytes.len() >= Self::readable_bytes(self.stored, self.n_rows, self.n_pairs), "pairs of columns");
        assert!(self.bytes.as_ptr().cast::<f32>().is_aligned(), "weights where they can be read");
    }
}

/// Adds the products of `weights`, of [`ROWS`], with as many columns of `sums.len()` tokens, `x`, to `sums`.
///
/// # Panics
/// If there are fewer rows, that is no number of tokens that blocks have, or the numbers of columns differ.
pub(super) fn accumulate(level: Level, weights: Pairs<'_>, x: &[f32], sums: &mut [Sums]) {
    weights.check();
    assert_eq!(weights.n_rows, ROWS, "a whole strip");
    assert!(x.len() == 2 * weights.n_pairs * sums.len(), "as many columns");
    assert!(super::tokens::WIDTHS.contains(&sums.len()), "a block of tokens");
    let run = Run::new(weights, x, sums);
    // SAFETY: a level is only made where the processor has its instruction sets, and the pointers are to what `Run` says.
    unsafe { for_stored!(weights.stored, W => by_level!(level, products::<W>(run, sums.len()))) }
}

/// Converts `weights` to f32 in `panel`, as a strip of [`ROWS`] would be stored if it were; rows that are not there become anything.
///
/// # Panics
/// If there is not room for as many columns.
pub(super) fn convert(level: Level, weights: Pairs<'_>, panel: &mut [Line]) {
    weights.check();
    assert!(size_of_val(panel) >= weights.n_pairs * Stored::F32.pair_bytes(ROWS), "room for every column");
    let run = Run::new(weights, &[], &mut []);
    let panel = panel.as_mut_ptr().cast();
    // SAFETY: a level is only made where the processor has its instruction sets, and there are as many pairs in both.
    unsafe { for_stored!(weights.stored, W => by_level!(level, convert::<W>(run, panel))) }
}

macro_rules! for_stored {
    ($stored:expr, $W:ident => $body:expr) => {
        match $stored {
            Stored::Bf16 => {
                type $W = Bf16;
                $body
            }
            Stored::F16 => {
                type $W = F16;
                $body
            }
            Stored::F32 => {
                type $W = F32;
                $body
            }
        }
    };
}
use for_stored;

macro_rules! by_level {
    ($level:expr, $name:ident::<$W:ident>($($arg:expr),*)) => {
        match $level {
            Level::Scalar => portable::$name::<$W>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => avx2::$name::<$W>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni | Level::Amx => avx512::$name::<$W>($($arg),*),
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::NeonDotprod | Level::NeonI8mm => neon::$name::<$W>($($arg),*),
        }
    };
}
use by_level;

/// What a product works on.
#[derive(Clone, Copy)]
struct Run {
    /// As in [`Pairs`].
    weights: *const u8,
    n_rows: usize,
    n_pairs: usize,
    /// `[2 * n_pairs, width]`
    x: *const f32,
    /// `[width, ROWS]`
    sums: *mut f32,
}

impl Run {
    fn new(weights: Pairs<'_>, x: &[f32], sums: &mut [Sums]) -> Run {
        let Pairs { n_rows, n_pairs, bytes, .. } = weights;
        Run { weights: bytes.as_ptr(), n_rows, n_pairs, x: x.as_ptr(), sums: sums.as_mut_ptr().cast() }
    }
}

/// A vector register of f32.
///
/// # Safety
/// All methods need a processor with the instruction set. Pointers are to as many numbers as the register takes.
trait Vector: Copy {
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn plus(self, other: Self) -> Self;
    /// `self + w * x`
    unsafe fn plus_product(self, w: Self, x: Self) -> Self;
    /// What the low or the high halves of words are as BF16.
    unsafe fn from_bf16(words: *const u32, high: bool) -> Self;
    unsafe fn from_f16(halves: *const u16) -> Self;
}

/// A type of stored weights.
trait Weight {
    const STORED: Stored;
    /// Some rows from `row` on of the first or the second column of a pair of `n_rows`.
    ///
    /// # Safety
    /// As of [`Vector`]'s methods; `pair` is a pair of columns of a strip, and what follows as [`Pairs`] has it.
    unsafe fn load<V: Vector>(pair: *const u8, n_rows: usize, row: usize, second: bool) -> V;
}

struct Bf16;
struct F16;
struct F32;

impl Weight for Bf16 {
    const STORED: Stored = Stored::Bf16;

    #[inline(always)]
    unsafe fn load<V: Vector>(pair: *const u8, _n_rows: usize, row: usize, second: bool) -> V {
        // SAFETY: the caller's promises.
        unsafe { V::from_bf16(pair.cast::<u32>().add(row), second) }
    }
}

impl Weight for F16 {
    const STORED: Stored = Stored::F16;

    #[inline(always)]
    unsafe fn load<V: Vector>(pair: *const u8, n_rows: usize, row: usize, second: bool) -> V {
        // SAFETY: the caller's promises.
        unsafe { V::from_f16(pair.cast::<u16>().add(n_rows * usize::from(second) + row)) }
    }
}

impl Weight for F32 {
    const STORED: Stored = Stored::F32;

    #[inline(always)]
    unsafe fn load<V: Vector>(pair: *const u8, n_rows: usize, row: usize, second: bool) -> V {
        // SAFETY: the caller's promises.
        unsafe { V::load(pair.cast::<f32>().add(n_rows * usize::from(second) + row)) }
    }
}

/// Adds the products of all [`ROWS`] of a strip with the `WIDTH` tokens of a block to their sums: those of `R` registers of rows and `T` tokens at a
/// time in registers, where `R * V::LANES` divides the rows and `T` the tokens.
///
/// # Safety
/// As of [`Vector`]'s methods; `run` has pointers to what it says, of `WIDTH` tokens.
#[inline(always)]
unsafe fn sweep<V: Vector, W: Weight, const R: usize, const T: usize, const WIDTH: usize>(run: Run) {
    for row in (0..ROWS).step_by(R * V::LANES) {
        for token in (0..WIDTH).step_by(T) {
            // SAFETY: the caller's promises; the rows and tokens are within the strip and the block.
            unsafe { block::<V, W, R, T, WIDTH>(run, row, token) };
        }
    }
}

#[expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]
#[inline(always)]
unsafe fn block<V: Vector, W: Weight, const R: usize, const T: usize, const WIDTH: usize>(
    run: Run,
    row: usize,
    token: usize,
) {
    // SAFETY: the caller's promises: pairs of columns, columns of x and sums are all there.
    unsafe {
        let mut acc = [[V::splat(0.0); R]; T];
        for p in 0..run.n_pairs {
            let n_bytes = W::STORED.pair_bytes(ROWS);
            let pair = run.weights.add(p * n_bytes);
            for second in 0..2 {
                let x = run.x.add((2 * p + second) * WIDTH + token);
                let mut w = [V::splat(0.0); R];
                for r in 0..R {
                    w[r] = W::load(pair, ROWS, row + r * V::LANES, second == 1);
                }
                for t in 0..T {
                    let x = V::splat(*x.add(t));
                    for r in 0..R {
                        acc[t][r] = acc[t][r].plus_product(w[r], x);
                    }
                    // Panels of f32, which more tokens share, are in the cache. Few lines at a time, between multiplications: a burst takes every buffer
                    // for lines on their way, and what is loaded next waits.
                    if t == T / 2 && (WIDTH <= WIDTH_OF_STREAMS || W::STORED != Stored::F32) {
                        prefetch(pair.add(second * n_bytes / 2), n_bytes / 2);
                    }
                }
            }
        }
        for t in 0..T {
            for r in 0..R {
                let sums = run.sums.add((token + t) * ROWS + row + r * V::LANES);
                V::load(sums).plus(acc[t][r]).store(sums);
            }
        }
    }
}

/// # Safety
/// As of [`Vector`]'s methods; `run` has pointers to the weights it says, and `panel` to room for as many pairs of [`ROWS`].
#[inline(always)]
unsafe fn convert_pairs<V: Vector, W: Weight>(run: Run, panel: *mut f32) {
    for p in 0..run.n_pairs {
        let pair = run.weights.wrapping_add(p * W::STORED.pair_bytes(run.n_rows));
        prefetch(pair, W::STORED.pair_bytes(run.n_rows));
        for second in 0..2 {
            for row in (0..ROWS).step_by(V::LANES) {
                // SAFETY: the caller's promises.
                unsafe {
                    let w: V = W::load(pair, run.n_rows, row, second == 1);
                    w.store(panel.add((2 * p + second) * ROWS + row));
                }
            }
        }
    }
}

/// Up to so many tokens weights in f32, as they come from memory, are what takes the time.
const WIDTH_OF_STREAMS: usize = 8;

/// How far ahead memory is asked for.
const AHEAD_BYTES: usize = 16 * 1024;

/// Asks for the `n` bytes that lie [`AHEAD_BYTES`] behind `at`, in the second-level cache, which can wait for more lines at once than the first.
/// Strips follow one another in the order in which they are read.
#[inline(always)]
fn prefetch(at: *const u8, n: usize) {
    for line in (0..n).step_by(LINE) {
        second_level(at.wrapping_add(AHEAD_BYTES + line));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tokens::WIDTHS, *};

    /// Lines of `n_pairs` columns with every bit in play but for exponents beyond what weights have.
    fn lines(stored: Stored, n_pairs: usize) -> Vec<Line> {
        let mut state = 7u32;
        let mut lines = vec![Line::ZERO; n_pairs * stored.pair_bytes(ROWS) / size_of::<Line>()];
        let exponent = match stored {
            Stored::F16 => 0x28,
            Stored::Bf16 | Stored::F32 => 0x3c,
        };
        for (i, byte) in Line::bytes_mut(&mut lines).iter_mut().enumerate() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
            if i % stored.size() == stored.size() - 1 {
                *byte = *byte & 0x83 | exponent;
            }
        }
        lines
    }

    fn activations(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.713).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    /// As [`accumulate`] by the definition, which rounds once.
    fn defined(weights: Pairs<'_>, x: &[f32], sums: &mut [Sums]) {
        let run = Run::new(weights, x, sums);
        // SAFETY: plain Rust, and pointers to what was just counted.
        unsafe { for_stored!(weights.stored, W => portable::fused_products::<W>(run, sums.len())) }
    }

    const ALL: [Stored; 3] = [Stored::Bf16, Stored::F16, Stored::F32];

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_definition() {
        for stored in ALL {
            for (width, n_pairs) in WIDTHS.into_iter().flat_map(|width| [0, 1, 2, 7, 64].map(|n| (width, n))) {
                let (lines, x) = (lines(stored, n_pairs), activations(2 * n_pairs * width));
                let weights = Pairs { stored, n_rows: ROWS, n_pairs, bytes: Line::bytes(&lines) };
                let before: Vec<Sums> = activations(width * ROWS).as_chunks().0.to_vec();
                let mut expected = before.clone();
                defined(weights, &x, &mut expected);
                for level in Level::available() {
                    let mut found = before.clone();
                    accumulate(level, weights, &x, &mut found);
                    let case = format!("{level:?} {stored:?}: {n_pairs} pairs, {width} tokens");
                    if level != Level::Scalar || portable::FUSED {
                        assert_eq!(found, expected, "{case}");
                    }
                    for (found, expected) in found.as_flattened().iter().zip(expected.as_flattened()) {
                        assert!((found - expected).abs() < 1e-4, "{case}: {found}, {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_strip_of_fewer_rows_becomes_one_of_all() {
        for (stored, n_rows) in ALL.into_iter().flat_map(|stored| [1, 7, 16, 31].map(|n_rows| (stored, n_rows))) {
            let lines = lines(stored, 8);
            let bytes = Line::bytes(&lines);
            for level in Level::available() {
                let mut panel = vec![Line::ZERO; 8 * 4];
                convert(level, Pairs { stored, n_rows, n_pairs: 8, bytes }, &mut panel);
                let found = Line::bytes(&panel).as_chunks::<4>().0;
                for (i, found) in found.iter().enumerate().filter(|(i, _)| i % ROWS < n_rows) {
                    let (pair, second, row) = (i / (2 * ROWS), i / ROWS % 2, i % ROWS);
                    let pair = &bytes[pair * stored.pair_bytes(n_rows)..];
                    let two = |at: usize| [pair[at], pair[at + 1]];
                    let expected = match stored {
                        Stored::Bf16 => half::bf16::from_le_bytes(two(4 * row + 2 * second)).to_f32(),
                        Stored::F16 => half::f16::from_le_bytes(two(2 * (n_rows * second + row))).to_f32(),
                        Stored::F32 => {
                            let at = 4 * (n_rows * second + row);
                            f32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]])
                        }
                    };
                    assert_eq!(f32::from_le_bytes(*found), expected, "{level:?} {stored:?}, {n_rows} rows");
                }
            }
        }
    }

    #[test]
    fn every_stored_value_becomes_the_same_f32_at_every_level() {
        let expected = |stored, bits: u16| match stored {
            Stored::Bf16 => half::bf16::from_bits(bits).to_f32(),
            _ => half::f16::from_bits(bits).to_f32(),
        };
        for stored in [Stored::Bf16, Stored::F16] {
            let mut lines = vec![Line::ZERO; 1 << 11];
            for (i, bytes) in Line::bytes_mut(&mut lines).as_chunks_mut().0.iter_mut().enumerate() {
                *bytes = (i as u16).to_le_bytes();
            }
            for level in Level::available() {
                let mut panel = vec![Line::ZERO; 1 << 12];
                let weights = Pairs { stored, n_rows: ROWS, n_pairs: 1 << 10, bytes: Line::bytes(&lines) };
                convert(level, weights, &mut panel);
                for (i, found) in Line::bytes(&panel).as_chunks().0.iter().enumerate() {
                    let found = f32::from_le_bytes(*found);
                    // Of a pair of BF16 columns the first is in the low halves of words, of F16 before the second.
                    let (pair, second, row) = (i / 64, i / 32 % 2, i % 32);
                    let at = if stored == Stored::Bf16 { 2 * row + second } else { 32 * second + row };
                    let expected = expected(stored, (64 * pair + at) as u16);
                    assert!(found == expected || found.is_nan() && expected.is_nan(), "{level:?}: {found}, {expected}");
                }
            }
        }
    }
}
