//! Weights in spans.

use std::arch::x86_64::*;

use super::{
    super::{
        activations::GROUP,
        scheme::{Form, Lanes, Panel, ROWS},
    },
    LARGEST, PLANES, SPAN_GROUPS, STEP, STEP_GROUPS, STEPS,
};

/// A span of sixteen rows, as the unit reads it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Weights {
    /// `[step][plane]`, and of each plane, as of a [`Panel`], byte `4 r + c` of vector `k` is row `r`, column `4 k + c`.
    pub(super) codes: [[[[i8; 64]; STEP / 4]; PLANES]; STEPS],
    /// What a code of one is worth.
    pub(super) steps: Lanes,
}

/// Per group, what a weight's code times 2¹⁵ is worth in steps, for each half of the columns, and what is added.
struct Factors {
    codes: [__m512i; 2],
    added: __m512i,
}

impl Weights {
    pub const EMPTY: Weights = Weights { codes: [[[[0; 64]; STEP / 4]; PLANES]; STEPS], steps: [0.0; ROWS] };

    /// Makes these the weights of `panels`, of codes of `bits` bits; groups that are missing of a step are zero.
    ///
    /// # Panics
    /// If there are more panels than a span has groups.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl")]
    pub fn fold(&mut self, form: Form, bits: usize, panels: &[Panel]) {
        assert!(panels.len() <= SPAN_GROUPS, "the groups of a span");
        let mut largest = _mm512_setzero_ps();
        for panel in panels {
            largest = larger(largest, largest_weight(form, bits, panel));
        }
        // Rows whose scales are no numbers have none as their step, which is what counts.
        store(&mut self.steps, _mm512_mul_ps(largest, _mm512_set1_ps(1.0 / LARGEST)));
        let is_tiny = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(largest, _mm512_set1_ps(1e-30));
        let inverse = _mm512_mask_mov_ps(_mm512_div_ps(_mm512_set1_ps(LARGEST), largest), is_tiny, _mm512_setzero_ps());
        for (g, panel) in panels.iter().enumerate() {
            let factors = Factors::of(form, bits, panel, inverse);
            let [high, low] = &mut self.codes[g / STEP_GROUPS];
            let at = g % STEP_GROUPS * GROUP / 4;
            let [high, low] = [&mut high[at..at + GROUP / 4], &mut low[at..at + GROUP / 4]];
            match (form, bits) {
                (Form::Minimum, 4) => fold_codes::<4, true>(panel, &factors, high, low),
                (Form::Minimum, _) => fold_codes::<5, true>(panel, &factors, high, low),
                (_, 4) => fold_codes::<4, false>(panel, &factors, high, low),
                (_, 5) => fold_codes::<5, false>(panel, &factors, high, low),
                (_, 6) => fold_codes::<6, false>(panel, &factors, high, low),
                _ => fold_codes::<8, false>(panel, &factors, high, low),
            }
        }
        if !panels.len().is_multiple_of(STEP_GROUPS) {
            let step = &mut self.codes[panels.len() / STEP_GROUPS];
            step.iter_mut().for_each(|plane| plane[GROUP / 4..].as_flattened_mut().fill(0));
        }
    }
}

/// Weights are `scale · (code - half) + centre`, codes of `bits` bits less their half being of both signs: `scale · half` and `centre`.
#[inline]
#[target_feature(enable = "avx512f")]
fn range(form: Form, bits: usize, panel: &Panel) -> ([__m512; 2], __m512) {
    let half = _mm512_set1_ps((1 << (bits - 1)) as f32);
    let first = _mm512_mul_ps(load(&panel.scaling.scales[0]), half);
    match form {
        Form::Offset(_) => ([first, first], _mm512_setzero_ps()),
        Form::OffsetOfHalves(_) => ([first, _mm512_mul_ps(load(&panel.scaling.scales[1]), half)], _mm512_setzero_ps()),
        Form::Minimum => ([first, first], _mm512_add_ps(load(&panel.scaling.minima), first)),
    }
}

/// No less than any weight of each row, and than what the factors are made of.
#[inline]
#[target_feature(enable = "avx512f")]
fn largest_weight(form: Form, bits: usize, panel: &Panel) -> __m512 {
    let ([first, second], centre) = range(form, bits, panel);
    let largest = larger(_mm512_abs_ps(first), _mm512_abs_ps(second));
    if let Form::Minimum = form {
        let lower = _mm512_abs_ps(_mm512_sub_ps(centre, first));
        let upper = _mm512_abs_ps(_mm512_add_ps(centre, first));
        larger(larger(lower, upper), largest)
    } else {
        largest
    }
}

/// Of numbers that are not negative. One that is no number is larger than all.
#[inline]
#[target_feature(enable = "avx512f")]
fn larger(a: __m512, b: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)))
}

impl Factors {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn of(form: Form, bits: usize, panel: &Panel, inverse: __m512) -> Factors {
        let ([first, second], centre) = range(form, bits, panel);
        let codes = [in_both_halves(_mm512_mul_ps(first, inverse)), in_both_halves(_mm512_mul_ps(second, inverse))];
        Factors { codes, added: in_both_halves(_mm512_mul_ps(centre, inverse)) }
    }
}

/// Each number, rounded to 16 bits, twice.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn in_both_halves(x: __m512) -> __m512i {
    let x = _mm512_cvtps_epi32(x);
    // low half of x | x << 16
    _mm512_mask_mov_epi16(x, 0xaaaa_aaaa, _mm512_slli_epi32::<16>(x))
}

/// The two planes of a group's weights, `code · factor + added` in steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn fold_codes<const BITS: usize, const MINIMA: bool>(
    panel: &Panel,
    factors: &Factors,
    high: &mut [[i8; 64]],
    low: &mut [[i8; 64]],
) {
    // The top bits of a code less its half are the code's own, but for the first.
    let half = _mm512_set1_epi8(1i8.wrapping_shl(BITS as u32 - 1));
    let shift_of_even = _mm_cvtsi32_si128(16 - BITS as i32);
    let shift_of_odd = _mm_cvtsi32_si128(8 - BITS as i32);
    let top = _mm512_set1_epi16((0xffff_u16 << (16 - BITS)) as i16);
    let upper = _mm512_set1_epi16(0xff00_u16 as i16);
    // What rounds the high byte.
    let added = if MINIMA { _mm512_adds_epi16(factors.added, _mm512_set1_epi16(128)) } else { _mm512_set1_epi16(128) };
    for k in 0..GROUP / 4 {
        let factor = factors.codes[k / (GROUP / 8)];
        let codes = _mm512_xor_si512(load_codes(&panel.codes[k]), half);
        let even = _mm512_sll_epi16(codes, shift_of_even);
        let odd = _mm512_and_si512(_mm512_sll_epi16(codes, shift_of_odd), top);
        let even = _mm512_adds_epi16(_mm512_mulhrs_epi16(even, factor), added);
        let odd = _mm512_adds_epi16(_mm512_mulhrs_epi16(odd, factor), added);
        // upper byte of each odd one, else of each even one; likewise of the lower bytes, whose first bit the rounding has turned.
        let highs = _mm512_ternarylogic_epi32::<0xca>(upper, odd, _mm512_srli_epi16::<8>(even));
        let lows = _mm512_ternarylogic_epi32::<0xca>(upper, _mm512_slli_epi16::<8>(odd), even);
        store_codes(&mut high[k], highs);
        store_codes(&mut low[k], _mm512_xor_si512(lows, _mm512_set1_epi8(-128)));
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(lanes: &Lanes) -> __m512 {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(lanes: &mut Lanes, x: __m512) {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), x) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_codes(codes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_codes(codes: &mut [i8; 64], x: __m512i) {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_storeu_si512(codes.as_mut_ptr().cast(), x) }
}
