//! The product of unpacked tiles with quantised tokens.
//!
//! Per row, token and group of 32 columns, in this order and with fused multiply-adds:
//!
//! ```text
//! s = Σ codes · x_codes - offset · Σ x_codes               exact in i32: at most 32 · 255 · 32639 < 2³¹
//! acc += (s · w_scale) · x_scale
//! acc += minimum · (x_scale · Σ x_codes)                   if the scheme has minima
//! ```
//! With scales for halves, `s · w_scale` is `s₁ · w_scale₁ + (s₀ · w_scale₀)`. Every version does the same steps, so all give the same bits.

use super::{
    activations::{GROUP, Group},
    level::Level,
    scheme::{Form, Lanes, Panel, ROWS},
};

/// Tiles that a kernel takes side by side, at most.
pub(super) const TILES: usize = 2;

/// Tokens that a kernel takes side by side, at most.
pub(super) const TOKENS: usize = 6;

/// Sums of one token.
pub(super) type Sums = [Lanes; TILES];

/// Adds the products of `tiles` (1 or 2, of as many groups as the tokens) with the tokens `x` (1 to [`TOKENS`]) to `sums`, one for each token.
///
/// # Panics
/// If there are more tiles, more tokens than sums, or the numbers of groups differ.
pub(super) fn accumulate<const PLANES: usize>(
    level: Level,
    form: Form,
    tiles: &[&[Panel]],
    x: &[&[Group<PLANES>]],
    sums: &mut [Sums],
) {
    let n_groups = tiles.first().map_or(0, |tile| tile.len());
    assert!(tiles.len() <= TILES && tiles.iter().all(|tile| tile.len() == n_groups), "tiles of one length");
    assert!(x.len() <= sums.len() && x.iter().all(|x| x.len() == n_groups), "a sum and as many groups for every token");
    match level {
        Level::Scalar => scalar(form, tiles, x, sums),
        // SAFETY: a level is only made where the processor has its instruction sets.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2::accumulate(form, tiles, x, sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => unsafe { avx_vnni::accumulate(form, tiles, x, sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => unsafe { avx512::accumulate(form, tiles, x, sums) },
    }
}

/// The definition.
fn scalar<const PLANES: usize>(form: Form, tiles: &[&[Panel]], x: &[&[Group<PLANES>]], sums: &mut [Sums]) {
    for (x, sums) in x.iter().zip(sums) {
        for (tile, sums) in tiles.iter().zip(sums) {
            for (panel, x) in tile.iter().zip(*x) {
                group(form, panel, x, sums);
            }
        }
    }
}

fn group<const PLANES: usize>(form: Form, panel: &Panel, x: &Group<PLANES>, sums: &mut Lanes) {
    let offset = i32::from(form.offset());
    let mut products = [[0i32; ROWS]; 2];
    for (k, codes) in panel.codes.iter().enumerate() {
        let products = &mut products[k / 4];
        for (i, code) in codes.iter().enumerate() {
            let x = x.codes.iter().fold(0, |sum, plane| 256 * sum + i32::from(plane[4 * k + i % 4]));
            products[i / 4] += i32::from(*code) * x;
        }
    }
    for (row, sum) in sums.iter_mut().enumerate() {
        let of_half = |half: usize| products[half][row] - offset * x.sums[half];
        let product = if let Form::OffsetOfHalves(_) = form {
            let first = of_half(0) as f32 * panel.scales[0][row];
            (of_half(1) as f32).mul_add(panel.scales[1][row], first)
        } else {
            (of_half(0) + of_half(1)) as f32 * panel.scales[0][row]
        };
        *sum = product.mul_add(x.scale, *sum);
        if form == Form::Minimum {
            *sum = panel.minima[row].mul_add(x.scaled_sum, *sum);
        }
    }
}

/// Four codes of a plane as the processor's 32-bit integer.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn quad(codes: &[i8; GROUP], k: usize) -> i32 {
    // `k` is below 8 wherever this is called, which the compiler sees once loops are unrolled.
    let c = &codes[4 * k..4 * k + 4];
    i32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8])
}

/// Calls `$body::<PLANES, N_TILES, tokens, HALVES, MINIMA>($form, tiles, x, sums)` with as many tokens at a time as there are, the numbers `$n`
/// to choose from.
#[cfg(target_arch = "x86_64")]
macro_rules! for_each_size {
    ($body:ident, $tiles:literal, $form:expr, $of:expr, $x:expr, $sums:expr, $n:tt) => {
        match $form {
            Form::Offset(_) => for_each_size!(@tokens $body, $tiles, false, false, $form, $of, $x, $sums, $n),
            Form::OffsetOfHalves(_) => for_each_size!(@tokens $body, $tiles, true, false, $form, $of, $x, $sums, $n),
            Form::Minimum => for_each_size!(@tokens $body, $tiles, false, true, $form, $of, $x, $sums, $n),
        }
    };
    (@tokens $body:ident, $tiles:literal, $halves:literal, $minima:literal, $form:expr, $of:expr, $x:expr, $sums:expr, [$($n:literal),*]) => {{
        let (mut x, mut sums): (&[&[Group<PLANES>]], &mut [Sums]) = ($x, $sums);
        while !x.is_empty() {
            $(
                if let Some((head, rest)) = x.split_first_chunk::<$n>() {
                    let (out, others) = sums.split_first_chunk_mut::<$n>().expect("a sum for every token");
                    $body::<PLANES, $tiles, $n, $halves, $minima>($form, $of, *head, out);
                    (x, sums) = (rest, others);
                    continue;
                }
            )*
        }
    }};
}

/// Sixteen rows to a register: two tiles by six tokens are twelve integer and twelve f32 sums of the 32 registers.
///
/// There are no closures here and below: they have the instruction set of the function around them, which the functions of the standard
/// library that would call them lack, so each would be a call with its registers spilled to memory.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::needless_range_loop, reason = "one index runs through several arrays of registers")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::*;

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub fn accumulate<const PLANES: usize>(form: Form, tiles: &[&[Panel]], x: &[&[Group<PLANES>]], sums: &mut [Sums]) {
        match tiles {
            [a] => for_each_size!(block, 1, form, [*a], x, sums, [6, 5, 4, 3, 2, 1]),
            [a, b] => for_each_size!(block, 2, form, [*a, *b], x, sums, [6, 5, 4, 3, 2, 1]),
            _ => {}
        }
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
    fn block<const PLANES: usize, const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
        form: Form,
        tiles: [&[Panel]; N],
        x: [&[Group<PLANES>]; T],
        sums: &mut [Sums; T],
    ) {
        let n_groups = tiles[0].len();
        let offset = i32::from(form.offset());
        let mut acc = [[_mm512_setzero_ps(); N]; T];
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = load_f32(&sums[t][n]);
            }
        }
        for g in 0..n_groups {
            let (mut panels, mut xs) = ([&tiles[0][g]; N], [&x[0][g]; T]);
            for n in 1..N {
                panels[n] = &tiles[n][g];
            }
            for t in 1..T {
                xs[t] = &x[t][g];
            }
            let x = xs;
            let mut product = [[_mm512_setzero_ps(); N]; T];
            for part in 0..if HALVES { 2 } else { 1 } {
                let quads = if HALVES { 4 * part..4 * part + 4 } else { 0..8 };
                let mut s = [[_mm512_setzero_si512(); N]; T];
                if T <= 2 {
                    // So few sums would wait for one another's additions: each is four until the end.
                    let mut split = [[[[_mm512_setzero_si512(); N]; T]; 2]; PLANES];
                    for k in quads {
                        for t in 0..T {
                            for plane in 0..PLANES {
                                let x = _mm512_set1_epi32(quad(&x[t].codes[plane], k));
                                for n in 0..N {
                                    let s = &mut split[plane][k % 2][t][n];
                                    *s = _mm512_dpbusd_epi32(*s, load(&panels[n].codes[k]), x);
                                }
                            }
                        }
                    }
                    for t in 0..T {
                        for n in 0..N {
                            for plane in 0..PLANES {
                                let of_plane = _mm512_add_epi32(split[plane][0][t][n], split[plane][1][t][n]);
                                s[t][n] = _mm512_add_epi32(_mm512_slli_epi32::<8>(s[t][n]), of_plane);
                            }
                        }
                    }
                } else {
                    for plane in 0..PLANES {
                        for t in 0..T {
                            for n in 0..N {
                                s[t][n] = _mm512_slli_epi32::<8>(s[t][n]);
                            }
                        }
                        for k in quads.clone() {
                            let mut w = [_mm512_setzero_si512(); N];
                            for n in 0..N {
                                w[n] = load(&panels[n].codes[k]);
                            }
                            for t in 0..T {
                                let x = _mm512_set1_epi32(quad(&x[t].codes[plane], k));
                                for n in 0..N {
                                    s[t][n] = _mm512_dpbusd_epi32(s[t][n], w[n], x);
                                }
                            }
                        }
                    }
                }
                if !MINIMA {
                    for t in 0..T {
                        let sum = if HALVES { x[t].sums[part] } else { x[t].sums[0] + x[t].sums[1] };
                        let sum = _mm512_set1_epi32(offset * sum);
                        for n in 0..N {
                            s[t][n] = _mm512_sub_epi32(s[t][n], sum);
                        }
                    }
                }
                let mut scales = [_mm512_setzero_ps(); N];
                for n in 0..N {
                    scales[n] = load_f32(&panels[n].scales[part]);
                }
                for t in 0..T {
                    for n in 0..N {
                        let s = _mm512_cvtepi32_ps(s[t][n]);
                        product[t][n] = if part == 0 {
                            _mm512_mul_ps(s, scales[n])
                        } else {
                            _mm512_fmadd_ps(s, scales[n], product[t][n])
                        };
                    }
                }
            }
            for t in 0..T {
                let scale = _mm512_set1_ps(x[t].scale);
                for n in 0..N {
                    acc[t][n] = _mm512_fmadd_ps(product[t][n], scale, acc[t][n]);
                }
            }
            if MINIMA {
                let mut minima = [_mm512_setzero_ps(); N];
                for n in 0..N {
                    minima[n] = load_f32(&panels[n].minima);
                }
                for t in 0..T {
                    let sum = _mm512_set1_ps(x[t].scaled_sum);
                    for n in 0..N {
                        acc[t][n] = _mm512_fmadd_ps(minima[n], sum, acc[t][n]);
                    }
                }
            }
        }
        for t in 0..T {
            for n in 0..N {
                // SAFETY: the array is as long as the register.
                unsafe { _mm512_storeu_ps(sums[t][n].as_mut_ptr(), acc[t][n]) };
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(codes: &[u8; 64]) -> __m512i {
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load_f32(lanes: &Lanes) -> __m512 {
        // SAFETY: the array is as long as the register.
        unsafe { _mm512_loadu_ps(lanes.as_ptr()) }
    }
}

/// Defines a version for 256-bit registers, eight rows to each: three tokens by eight rows are three integer and three f32 sums, which
/// leaves enough of 16 registers for the widening of products. `$dot(s, codes, x, signed)` adds to `s` the products of four columns.
#[cfg(target_arch = "x86_64")]
macro_rules! version_of_256_bits {
    ($module:ident, $features:literal, $signed:literal, |$s:ident, $w:ident, $x:ident, $is_signed:ident| $dot:expr) => {
        mod $module {
            use std::arch::x86_64::*;

            use super::*;

            #[target_feature(enable = $features)]
            pub fn accumulate<const PLANES: usize>(
                form: Form,
                tiles: &[&[Panel]],
                x: &[&[Group<PLANES>]],
                sums: &mut [Sums],
            ) {
                for (n, tile) in tiles.iter().enumerate() {
                    for half in 0..2 {
                        for_each_size!(block, 1, form, (*tile, n, half), x, sums, [3, 2, 1]);
                    }
                }
            }

            /// Rows of one half of the `n`-th tile.
            #[target_feature(enable = $features)]
            fn block<const PLANES: usize, const N: usize, const T: usize, const HALVES: bool, const MINIMA: bool>(
                form: Form,
                (tile, n, half): (&[Panel], usize, usize),
                x: [&[Group<PLANES>]; T],
                sums: &mut [Sums; T],
            ) {
                let offset = i32::from(form.offset());
                // Codes of eight bits that this version turns back into signed ones.
                let signed = $signed && offset == 128;
                let mut acc = [_mm256_setzero_ps(); T];
                for t in 0..T {
                    acc[t] = load_f32(&sums[t][n], half);
                }
                for (g, panel) in tile.iter().enumerate() {
                    let mut xs = [&x[0][g]; T];
                    for t in 1..T {
                        xs[t] = &x[t][g];
                    }
                    let x = xs;
                    let mut product = [_mm256_setzero_ps(); T];
                    for part in 0..if HALVES { 2 } else { 1 } {
                        let quads = if HALVES { 4 * part..4 * part + 4 } else { 0..8 };
                        let mut s = [_mm256_setzero_si256(); T];
                        for plane in 0..PLANES {
                            for k in quads.clone() {
                                let w = load(&panel.codes[k], half);
                                for t in 0..T {
                                    let x = _mm256_set1_epi32(quad(&x[t].codes[plane], k));
                                    s[t] = dot(s[t], w, x, signed);
                                }
                            }
                            if plane + 1 < PLANES {
                                for t in 0..T {
                                    s[t] = _mm256_slli_epi32::<8>(s[t]);
                                }
                            }
                        }
                        let scales = load_f32(&panel.scales[part], half);
                        for t in 0..T {
                            if !MINIMA && !signed {
                                let sum = if HALVES { x[t].sums[part] } else { x[t].sums[0] + x[t].sums[1] };
                                s[t] = _mm256_sub_epi32(s[t], _mm256_set1_epi32(offset * sum));
                            }
                            let s = _mm256_cvtepi32_ps(s[t]);
                            product[t] = if part == 0 {
                                _mm256_mul_ps(s, scales)
                            } else {
                                _mm256_fmadd_ps(s, scales, product[t])
                            };
                        }
                    }
                    for t in 0..T {
                        acc[t] = _mm256_fmadd_ps(product[t], _mm256_set1_ps(x[t].scale), acc[t]);
                    }
                    if MINIMA {
                        let minima = load_f32(&panel.minima, half);
                        for t in 0..T {
                            acc[t] = _mm256_fmadd_ps(minima, _mm256_set1_ps(x[t].scaled_sum), acc[t]);
                        }
                    }
                }
                for t in 0..T {
                    let rows = &mut sums[t][n].as_chunks_mut::<8>().0[half];
                    // SAFETY: the array is as long as the register.
                    unsafe { _mm256_storeu_ps(rows.as_mut_ptr(), acc[t]) };
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn dot($s: __m256i, $w: __m256i, $x: __m256i, $is_signed: bool) -> __m256i {
                $dot
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load(codes: &[u8; 64], half: usize) -> __m256i {
                let codes = &codes.as_chunks::<32>().0[half];
                // SAFETY: the array is as long as the register.
                unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load_f32(lanes: &Lanes, half: usize) -> __m256 {
                let rows = &lanes.as_chunks::<8>().0[half];
                // SAFETY: the array is as long as the register.
                unsafe { _mm256_loadu_ps(rows.as_ptr()) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
version_of_256_bits!(avx_vnni, "avx2,fma,avxvnni", false, |s, w, x, _signed| _mm256_dpbusd_avx_epi32(s, w, x));

// Products of two columns are added in 16 bits, where 2 · 63 · 127 fits and 2 · 255 · 127 does not: codes of eight bits become a magnitude, and
// their sign the other factor's, for 2 · 128 · 127 < 2¹⁵.
#[cfg(target_arch = "x86_64")]
version_of_256_bits!(avx2, "avx2,fma", true, |s, w, x, signed| {
    let pairs = if signed {
        let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    } else {
        _mm256_maddubs_epi16(w, x)
    };
    _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same on every run.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as u32
        }

        /// From -1 to 1.
        fn unit(&mut self) -> f32 {
            self.next() as f32 / (1u32 << 30) as f32 - 1.0
        }
    }

    fn panels(noise: &mut Noise, n: usize, largest_code: u32) -> Vec<Panel> {
        let panel = |_| {
            let mut panel = Panel::EMPTY;
            // Now and then all at their largest, where sums are closest to what their integers hold.
            let full = noise.next().is_multiple_of(4);
            let code = |noise: &mut Noise| if full { largest_code } else { noise.next() % (largest_code + 1) };
            panel.codes.as_flattened_mut().iter_mut().for_each(|c| *c = code(noise) as u8);
            panel.scales.as_flattened_mut().iter_mut().for_each(|s| *s = noise.unit());
            panel.minima.iter_mut().for_each(|m| *m = noise.unit());
            panel
        };
        (0..n).map(panel).collect()
    }

    fn tokens<const PLANES: usize>(noise: &mut Noise, n_tokens: usize, n_groups: usize) -> Vec<Vec<Group<PLANES>>> {
        let token = |_| {
            let x: Vec<f32> = (0..n_groups * GROUP)
                .map(|i| match (i / GROUP) % 3 {
                    0 => 1.0,
                    1 => -2.5,
                    _ => noise.unit() * 4.0,
                })
                .collect();
            let mut groups =
                vec![Group { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [[0; GROUP]; PLANES] }; n_groups];
            Group::fill(Level::Scalar, &x, &mut groups);
            groups
        };
        (0..n_tokens).map(token).collect()
    }

    fn check<const PLANES: usize>(
        noise: &mut Noise,
        form: Form,
        bits: u32,
        n_tiles: usize,
        n_tokens: usize,
        n_groups: usize,
    ) {
        let tiles: Vec<Vec<Panel>> = (0..n_tiles).map(|_| panels(noise, n_groups, (1 << bits) - 1)).collect();
        let tiles: Vec<&[Panel]> = tiles.iter().map(Vec::as_slice).collect();
        let x = tokens::<PLANES>(noise, n_tokens, n_groups);
        let x: Vec<&[Group<PLANES>]> = x.iter().map(Vec::as_slice).collect();
        let before: Vec<Sums> = (0..n_tokens).map(|_| [[noise.unit(); ROWS]; TILES]).collect();
        let mut expected = before.clone();
        scalar(form, &tiles, &x, &mut expected);
        for level in Level::available() {
            let mut found = before.clone();
            accumulate(level, form, &tiles, &x, &mut found);
            assert_eq!(found, expected, "{level:?} {form:?}: {n_tiles} tiles, {n_tokens} tokens, {n_groups} groups");
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_definition() {
        let mut noise = Noise(7);
        let forms = [
            (Form::Offset(8), 4),
            (Form::Offset(16), 5),
            (Form::Offset(128), 8),
            (Form::OffsetOfHalves(32), 6),
            (Form::Minimum, 4),
            (Form::Minimum, 5),
        ];
        for (form, bits) in forms {
            for n_tiles in 1..=TILES {
                for (n_tokens, n_groups) in (1..=8).map(|n| (n, 1 + n % 4)).chain([(3, 0), (0, 3), (1, 18), (1000, 2)])
                {
                    check::<1>(&mut noise, form, bits, n_tiles, n_tokens, n_groups);
                    check::<2>(&mut noise, form, bits, n_tiles, n_tokens, n_groups);
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_weights_and_activations_that_the_codes_stand_for() {
        let mut noise = Noise(3);
        for (form, bits) in [(Form::Offset(8), 4), (Form::OffsetOfHalves(32), 6), (Form::Minimum, 5)] {
            let (tile, x) = (panels(&mut noise, 3, (1 << bits) - 1), tokens::<2>(&mut noise, 1, 3));
            let mut sums = [[[0.0; ROWS]; TILES]];
            scalar(form, &[&tile], &[&x[0]], &mut sums);
            for (row, found) in sums[0][0].iter().enumerate() {
                let mut expected = 0.0;
                for (panel, x) in tile.iter().zip(&x[0]) {
                    for column in 0..GROUP {
                        let code = f64::from(panel.codes[column / 4][4 * row + column % 4]);
                        let half = if matches!(form, Form::OffsetOfHalves(_)) { column / 16 } else { 0 };
                        let minimum = if form == Form::Minimum { f64::from(panel.minima[row]) } else { 0.0 };
                        let w = f64::from(panel.scales[half][row]) * (code - f64::from(form.offset())) + minimum;
                        let code = i32::from(x.codes[0][column]) * 256 + i32::from(x.codes[1][column]);
                        expected += w * f64::from(x.scale) * f64::from(code);
                    }
                }
                let found = f64::from(*found);
                assert!(
                    (found - expected).abs() < 1e-3 + expected.abs() * 1e-5,
                    "{form:?} row {row}: {found}, {expected}"
                );
            }
        }
    }
}
