//! Scores to weights.
//!
//! ```text
//! weight = 2ˢ⁻ʳ    s: score, in units of ln 2    r: a row's reference
//! ```
//! The reference is the largest score of the block that a row meets first, and goes up only to a score that is far above it: weights are right
//! whatever it is, as long as no sum overflows. So a block of scores is passed over once, and mixtures are hardly ever scaled.
//! What happens to a row depends on its own scores alone.

use std::arch::x86_64::*;

use super::{
    panel::{load, put, split},
    unit::{HALF, Panel, SIDE},
};
use crate::{
    cache::{BLOCK, LANES},
    prefetch::{self, LINE},
};

/// Scores of 32 queries with a block of keys.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Block(pub [[f32; BLOCK]; SIDE]);

/// Which places of a block each query sees.
pub(super) type Visible = [u64; SIDE];

/// How far a score may be above its row's reference: weights up to 2²⁰.
const HIGHEST: f32 = 20.0;

/// What is known of 32 rows of weights.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Rows {
    /// Sums of each row's weights, by lane; one of the two, the other being written.
    sums: [[[f32; LANES]; SIDE]; 2],
    current: usize,
    references: [f32; SIDE],
    /// Whether any block has been met.
    started: bool,
}

impl Rows {
    /// Of no keys at all.
    pub const EMPTY: Rows =
        Rows { sums: [[[0.0; LANES]; SIDE]; 2], current: 0, references: [f32::MIN; SIDE], started: false };

    /// Whether no block has been met.
    pub fn are_new(&self) -> bool {
        !self.started
    }

    /// The sum of row `r`'s weights.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn sum(&self, r: usize) -> f32 {
        _mm512_reduce_add_ps(load(&self.sums[self.current][r]))
    }

    /// Turns the scores with a block into weights, none where a key is not `visible`, and adds these to the rows' sums. Asks for the memory of
    /// what is `next`. Returns what the mixtures of the blocks before are to be multiplied by, if by anything.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    pub fn weigh(
        &mut self,
        scores: &Block,
        visible: Option<&Visible>,
        weights: &mut [Panel; 2],
        next: &[Panel],
    ) -> Option<[f32; SIDE]> {
        let highest = match (self.started, visible) {
            (true, None) => self.weigh_rows::<false, false>(scores, &[0; SIDE], weights, next),
            (true, Some(visible)) => self.weigh_rows::<false, true>(scores, visible, weights, next),
            (false, None) => self.weigh_rows::<true, false>(scores, &[0; SIDE], weights, next),
            (false, Some(visible)) => self.weigh_rows::<true, true>(scores, visible, weights, next),
        };
        let mut factors = None;
        if highest > HIGHEST {
            let visible = visible.unwrap_or(&[u64::MAX; SIDE]);
            factors = Some(self.raise(scores, visible));
            self.weigh_rows::<false, true>(scores, visible, weights, next);
        }
        self.current = 1 - self.current;
        self.started = true;
        factors
    }

    /// Writes weights and the sums with them. Returns the largest score, each less its row's reference.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    fn weigh_rows<const FIRST: bool, const EDGE: bool>(
        &mut self,
        scores: &Block,
        visible: &Visible,
        weights: &mut [Panel; 2],
        next: &[Panel],
    ) -> f32 {
        let lines_per_row = size_of_val(next) / LINE / SIDE;
        let [a, b] = &mut self.sums;
        let (before, after) = if self.current == 0 { (&*a, b) } else { (&*b, a) };
        let mut highest = [_mm512_set1_ps(f32::NEG_INFINITY); 2];
        for r in 0..SIDE {
            let scores = row::<EDGE>(scores, visible, r);
            if FIRST {
                self.references[r] = largest(scores).max(f32::MIN);
            }
            for line in r * lines_per_row..(r + 1) * lines_per_row {
                prefetch::first_level(next.as_ptr().wrapping_byte_add(line * LINE));
            }
            let reference = _mm512_set1_ps(self.references[r]);
            let mut sum = load(&before[r]);
            for i in 0..2 {
                let lower = _mm512_sub_ps(scores[2 * i], reference);
                let upper = _mm512_sub_ps(scores[2 * i + 1], reference);
                // The second operand is what comes out where the first is no number.
                highest = [_mm512_max_ps(lower, highest[0]), _mm512_max_ps(upper, highest[1])];
                let (lower, upper) = (power_of_2(lower), power_of_2(upper));
                sum = _mm512_add_ps(sum, _mm512_add_ps(lower, upper));
                put(&mut weights[i], r / HALF, r % HALF, split(lower, upper));
            }
            store(&mut after[r], sum);
        }
        _mm512_reduce_max_ps(_mm512_max_ps(highest[0], highest[1]))
    }

    /// Sets the references of rows with a score far above them to that, and returns what their weights so far are to be multiplied by. Scales
    /// their sums.
    #[cold]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    fn raise(&mut self, scores: &Block, visible: &Visible) -> [f32; SIDE] {
        let mut factors = [1.0; SIDE];
        for (r, factor) in factors.iter_mut().enumerate() {
            let highest = largest(row::<true>(scores, visible, r));
            let reference = &mut self.references[r];
            if highest - *reference > HIGHEST {
                *factor = (*reference - highest).exp2();
                *reference = highest;
                for sum in &mut self.sums[self.current][r] {
                    *sum *= *factor;
                }
            }
        }
        factors
    }
}

/// A row of scores, negative infinity where a key is not visible.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn row<const EDGE: bool>(scores: &Block, visible: &Visible, r: usize) -> [__m512; BLOCK / LANES] {
    let nothing = _mm512_set1_ps(f32::NEG_INFINITY);
    let mut row = [nothing; BLOCK / LANES];
    for (i, scores) in scores.0[r].as_chunks::<LANES>().0.iter().enumerate() {
        row[i] = load(scores);
        if EDGE {
            row[i] = _mm512_mask_mov_ps(nothing, (visible[r] >> (LANES * i)) as __mmask16, row[i]);
        }
    }
    row
}

/// The largest of a row's numbers, of those that are numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn largest(row: [__m512; BLOCK / LANES]) -> f32 {
    let mut largest = _mm512_set1_ps(f32::NEG_INFINITY);
    for scores in row {
        largest = _mm512_max_ps(scores, largest);
    }
    _mm512_reduce_max_ps(largest)
}

/// 2ˣ = 2ⁿ · 2ᶠ with n the integer below x. 2ᶠ is the polynomial whose largest relative error over 0 ≤ f ≤ 1 is the smallest, 7·10⁻⁸, found by Remez'
/// exchange algorithm. Nothing for negative infinity.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn power_of_2(x: __m512) -> __m512 {
    const DOWN: i32 = 1;
    let f = _mm512_reduce_ps::<DOWN>(x);
    let p = _mm512_set1_ps(0.001_877_576_7);
    let p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.008_989_34));
    let p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.055_826_318));
    let p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240_153_61));
    let p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693_153_1));
    let p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.999_999_94));
    _mm512_scalef_ps(p, x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [f32; LANES], numbers: __m512) {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), numbers) }
}
