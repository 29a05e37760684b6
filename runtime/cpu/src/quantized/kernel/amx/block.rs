//! Eight tokens' activations as the matrix unit reads them.

use std::arch::x86_64::*;

use super::{
    super::{
        super::activations::{LARGEST_CODE, ROUND},
        GROUP, PLANES,
    },
    TOKENS,
};
use crate::amx::is_available;

/// A group of eight tokens.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Block {
    /// `[token][plane][column]`
    pub(super) codes: [[[i8; GROUP]; PLANES]; TOKENS],
    pub(super) scales: [f32; TOKENS],
    pub(super) scaled_sums: [f32; TOKENS],
    /// `128 · Σ codes`, by which products with [whole bytes](super::is_whole) are too large.
    pub(super) excess: [i32; TOKENS],
}

impl Block {
    /// Of tokens that are zero.
    pub const EMPTY: Block = Block {
        codes: [[[0; GROUP]; PLANES]; TOKENS],
        scales: [0.0; TOKENS],
        scaled_sums: [0.0; TOKENS],
        excess: [0; TOKENS],
    };

    /// Quantises `x`, `[tokens, n_cols]`, into the run of `[blocks of tokens, groups]` that starts with number `first` and is as long as `blocks`:
    /// the bits of [`Group`](super::super::Group). Tokens that the last block lacks become zero.
    ///
    /// # Panics
    /// If there is no matrix unit, or `x` has fewer tokens than the blocks before the last.
    pub fn quantize(blocks: &mut [Block], first: usize, x: &[f32], n_cols: usize) {
        assert!(is_available(), "a matrix unit");
        let n_groups = n_cols / GROUP;
        for (i, block) in (first..).zip(blocks) {
            let (row, group) = (i / n_groups * TOKENS, i % n_groups);
            let rows = x[row * n_cols..].chunks_exact(n_cols).take(TOKENS);
            let n_rows = rows.len();
            for (t, row) in rows.enumerate() {
                // SAFETY: processors with a matrix unit have AVX-512.
                unsafe { block.put(t, &row.as_chunks().0[group]) };
            }
            (n_rows..TOKENS).for_each(|t| block.clear(t));
        }
    }

    fn clear(&mut self, t: usize) {
        self.codes[t] = Block::EMPTY.codes[t];
        (self.scales[t], self.scaled_sums[t], self.excess[t]) = (0.0, 0.0, 0);
    }

    /// Makes `x` the group of token `t`, in the steps of [`Group`](super::super::Group).
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
    fn put(&mut self, t: usize, x: &[f32; GROUP]) {
        // SAFETY: the array is as long as both registers.
        let x = unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16))] };
        let [a, b] = [_mm512_castps_si512(_mm512_abs_ps(x[0])), _mm512_castps_si512(_mm512_abs_ps(x[1]))];
        // Without its sign a float orders like its bits, NaN above all.
        let largest = f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)) as u32);
        let (scale, kept) = if largest < f32::INFINITY { (largest / LARGEST_CODE, !0) } else { (f32::NAN, 0) };
        let inverse = _mm512_set1_ps(if largest > 1e-30 { LARGEST_CODE / largest } else { 0.0 });
        let (round, kept) = (_mm512_set1_ps(ROUND), _mm512_set1_epi32(kept));
        let mut sums = _mm512_setzero_si512();
        let mut planes = [[_mm512_setzero_si512(); 2]; PLANES];
        for half in 0..2 {
            let rounded = _mm512_castps_si512(_mm512_add_ps(_mm512_mul_ps(x[half], inverse), round));
            let whole = _mm512_and_si512(_mm512_sub_epi32(rounded, _mm512_castps_si512(round)), kept);
            let high = _mm512_srai_epi32::<8>(_mm512_add_epi32(whole, _mm512_set1_epi32(128)));
            let of_high = _mm512_slli_epi32::<8>(high);
            let low = _mm512_max_epi32(_mm512_sub_epi32(whole, of_high), _mm512_set1_epi32(-127));
            sums = _mm512_add_epi32(sums, _mm512_add_epi32(of_high, low));
            (planes[0][half], planes[1][half]) = (high, low);
        }
        // Packing works in lanes of sixteen bytes, each of which then has four columns of each half of each plane.
        let [high, low] = [planes[0], planes[1]];
        let codes = _mm512_packs_epi16(_mm512_packs_epi32(high[0], high[1]), _mm512_packs_epi32(low[0], low[1]));
        let in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        // SAFETY: both planes of a token are as long as the register.
        unsafe { _mm512_storeu_si512(self.codes[t].as_mut_ptr().cast(), _mm512_permutexvar_epi32(in_order, codes)) };
        let sum = _mm512_reduce_add_epi32(sums);
        (self.scales[t], self.scaled_sums[t], self.excess[t]) = (scale, scale * sum as f32, 128 * sum);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::Group, *};
    use crate::level::Level;

    /// Where there is a matrix unit: elsewhere there are no blocks.
    #[test]
    fn blocks_hold_the_groups_of_their_tokens() {
        if !is_available() {
            return;
        }
        let n_groups = 5;
        let n_cols = n_groups * GROUP;
        let value = |i: usize| match i / GROUP {
            3 => 0.0,
            4 => 1e-35,
            6 if i % GROUP == 9 => f32::NAN,
            7 if i % GROUP == 1 => f32::NEG_INFINITY,
            8 => 0.5,
            _ => ((i * i) as f32 * 0.7).sin() * (i % 11) as f32,
        };
        for n_tokens in [1, 4, 8, 9, 23] {
            let x: Vec<f32> = (0..n_tokens * n_cols).map(value).collect();
            let n_blocks = n_tokens.div_ceil(TOKENS) * n_groups;
            let filled = || Block { scales: [7.0; TOKENS], excess: [1; TOKENS], ..Block::EMPTY };
            let mut blocks = vec![filled(); n_blocks];
            let (start, end) = blocks.split_at_mut(n_blocks / 3);
            Block::quantize(start, 0, &x, n_cols);
            Block::quantize(end, n_blocks / 3, &x, n_cols);
            let none = Group { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [[0; GROUP]; PLANES] };
            let mut groups = vec![none; n_tokens * n_groups];
            Group::fill(Level::Scalar, &x, &mut groups);
            groups.resize(n_tokens.next_multiple_of(TOKENS) * n_groups, none);
            for (i, block) in blocks.iter().enumerate() {
                for t in 0..TOKENS {
                    let group = &groups[(i / n_groups * TOKENS + t) * n_groups + i % n_groups];
                    assert_eq!(block.codes[t], group.codes, "block {i}, token {t}");
                    let found = [block.scales[t], block.scaled_sums[t]];
                    let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
                    assert!(
                        found.iter().zip(&[group.scale, group.scaled_sum]).all(same),
                        "block {i}, token {t}: {found:?}"
                    );
                    assert_eq!(block.excess[t], 128 * (group.sums[0] + group.sums[1]));
                }
            }
        }
    }
}
