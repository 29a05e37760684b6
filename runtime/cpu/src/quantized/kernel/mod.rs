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

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod bytes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
pub(super) mod straight;
#[cfg(target_arch = "x86_64")]
pub(super) mod words;

use super::{
    activations::{GROUP, Group, PLANES},
    scheme::{Form, Lanes, Panel, ROWS},
};
use crate::level::Level;

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
pub(super) fn accumulate(level: Level, form: Form, tiles: &[&[Panel]], x: &[&[Group]], sums: &mut [Sums]) {
    assert_fit(tiles, x, sums);
    match level {
        // SAFETY: a level is only made where the processor has its instruction sets.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { neon::baseline::accumulate(form, tiles, x, sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonDotprod => unsafe { neon::dotprod::accumulate(form, tiles, x, sums) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Level::NeonI8mm => unsafe { neon::i8mm::accumulate(form, tiles, x, sums) },
        // The definition, where a level has no version of this kind.
        _ => scalar::accumulate(form, tiles, x, sums),
    }
}

/// # Panics
/// As [`accumulate`].
fn assert_fit<P, T>(tiles: &[&[P]], x: &[&[T]], sums: &[Sums]) {
    let n_groups = tiles.first().map_or(0, |tile| tile.len());
    assert!(tiles.len() <= TILES && tiles.iter().all(|tile| tile.len() == n_groups), "tiles of one length");
    assert!(x.len() <= sums.len() && x.iter().all(|x| x.len() == n_groups), "a sum and as many groups for every token");
}

/// Four codes of a plane as the processor's 32-bit integer.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn quad(codes: &[i8; GROUP], k: usize) -> i32 {
    // `k` is below 8 wherever this is called, which the compiler sees once loops are unrolled.
    let c = &codes[4 * k..4 * k + 4];
    i32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8])
}

/// Calls `$body::<N_TILES, tokens, HALVES, MINIMA>($of, x, sums)` with as many tokens at a time as there are, the numbers `$n`
/// to choose from.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! for_each_size {
    ($body:ident, $tiles:literal, $form:expr, $of:expr, $x:expr, $sums:expr, $n:tt) => {
        match $form {
            Form::Offset(_) => for_each_size!(@tokens $body, $tiles, false, false, $of, $x, $sums, $n),
            Form::OffsetOfHalves(_) => for_each_size!(@tokens $body, $tiles, true, false, $of, $x, $sums, $n),
            Form::Minimum => for_each_size!(@tokens $body, $tiles, false, true, $of, $x, $sums, $n),
        }
    };
    (@tokens $body:ident, $tiles:literal, $halves:literal, $minima:literal, $of:expr, $x:expr, $sums:expr, [$($n:literal),*]) => {{
        let (mut x, mut sums): (&[&[_]], &mut [Sums]) = ($x, $sums);
        while !x.is_empty() {
            $(
                if let Some((head, rest)) = x.split_first_chunk::<$n>() {
                    let (out, others) = sums.split_first_chunk_mut::<$n>().expect("a sum for every token");
                    $body::<$tiles, $n, $halves, $minima>($of, *head, out);
                    (x, sums) = (rest, others);
                    continue;
                }
            )*
        }
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use for_each_size;

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
            panel.scaling.scales.as_flattened_mut().iter_mut().for_each(|s| *s = noise.unit());
            panel.scaling.minima.iter_mut().for_each(|m| *m = noise.unit());
            panel
        };
        (0..n).map(panel).collect()
    }

    /// `[tokens][columns]`
    fn tokens(noise: &mut Noise, n_tokens: usize, n_groups: usize) -> Vec<Vec<f32>> {
        let mut x = |i: usize| match (i / GROUP) % 3 {
            0 => 1.0,
            1 => -2.5,
            _ => noise.unit() * 4.0,
        };
        (0..n_tokens).map(|_| (0..n_groups * GROUP).map(&mut x).collect()).collect()
    }

    fn groups(x: &[f32]) -> Vec<Group> {
        let mut groups = vec![Group::NONE; x.len() / GROUP];
        Group::fill(Level::Scalar, x, &mut groups);
        groups
    }

    /// With what the level multiplies.
    fn accumulate_at(level: Level, form: Form, tiles: &[&[Panel]], x: &[Vec<f32>], sums: &mut [Sums]) {
        #[cfg(target_arch = "x86_64")]
        if words::is_for(level) {
            return words::tests::accumulate_unpacked(level, form, tiles, x, sums);
        }
        let x: Vec<_> = x.iter().map(|x| groups(x)).collect();
        let x: Vec<&[Group]> = x.iter().map(Vec::as_slice).collect();
        accumulate(level, form, tiles, &x, sums);
    }

    fn check(noise: &mut Noise, form: Form, bits: u32, n_tiles: usize, n_tokens: usize, n_groups: usize) {
        let tiles: Vec<Vec<Panel>> = (0..n_tiles).map(|_| panels(noise, n_groups, (1 << bits) - 1)).collect();
        let tiles: Vec<&[Panel]> = tiles.iter().map(Vec::as_slice).collect();
        let x = tokens(noise, n_tokens, n_groups);
        let before: Vec<Sums> = (0..n_tokens).map(|_| [[noise.unit(); ROWS]; TILES]).collect();
        let mut expected = before.clone();
        accumulate_at(Level::Scalar, form, &tiles, &x, &mut expected);
        for level in Level::available() {
            let mut found = before.clone();
            accumulate_at(level, form, &tiles, &x, &mut found);
            assert_eq!(found, expected, "{level:?} {form:?}: {n_tiles} tiles, {n_tokens} tokens, {n_groups} groups");
        }
    }

    const FORMS: [(Form, u32); 6] = [
        (Form::Offset(8), 4),
        (Form::Offset(16), 5),
        (Form::Offset(128), 8),
        (Form::OffsetOfHalves(32), 6),
        (Form::Minimum, 4),
        (Form::Minimum, 5),
    ];

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_instruction_set_gives_the_bits_of_the_definition_for_bytes() {
        use crate::quantized::activations::Bytes;
        let mut noise = Noise(5);
        for (form, bits) in FORMS {
            for n_tiles in 1..=TILES {
                for (n_tokens, n_groups) in (1..=8).map(|n| (n, 1 + n % 4)).chain([(3, 0), (0, 3), (7, 16), (1000, 9)])
                {
                    let tiles: Vec<Vec<Panel>> =
                        (0..n_tiles).map(|_| panels(&mut noise, n_groups, (1 << bits) - 1)).collect();
                    let tiles: Vec<&[Panel]> = tiles.iter().map(Vec::as_slice).collect();
                    let quantised = |x: Vec<f32>| {
                        let mut bytes = vec![Bytes::NONE; Bytes::len(n_groups)];
                        Bytes::fill(Level::Scalar, &x, &mut bytes);
                        bytes
                    };
                    let x: Vec<Vec<Bytes>> =
                        tokens(&mut noise, n_tokens, n_groups).into_iter().map(quantised).collect();
                    let x: Vec<&[Bytes]> = x.iter().map(Vec::as_slice).collect();
                    let before: Vec<Sums> = (0..n_tokens).map(|_| [[noise.unit(); ROWS]; TILES]).collect();
                    let of = |level| {
                        let mut sums = before.clone();
                        bytes::accumulate(level, form, &tiles, &x, &mut sums);
                        sums
                    };
                    let levels = Level::available().into_iter().filter(|level| bytes::is_for(*level, 1000));
                    for level in levels {
                        assert_eq!(
                            of(level),
                            of(Level::Scalar),
                            "{level:?} {form:?}: {n_tiles}, {n_tokens}, {n_groups}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_definition() {
        let mut noise = Noise(7);
        for (form, bits) in FORMS {
            for n_tiles in 1..=TILES {
                for (n_tokens, n_groups) in (1..=8).map(|n| (n, 1 + n % 4)).chain([(3, 0), (0, 3), (1, 18), (1000, 2)])
                {
                    check(&mut noise, form, bits, n_tiles, n_tokens, n_groups);
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_weights_and_activations_that_the_codes_stand_for() {
        let mut noise = Noise(3);
        for (form, bits) in [(Form::Offset(8), 4), (Form::OffsetOfHalves(32), 6), (Form::Minimum, 5)] {
            let (tile, x) = (panels(&mut noise, 3, (1 << bits) - 1), groups(&tokens(&mut noise, 1, 3)[0]));
            let mut sums = [[[0.0; ROWS]; TILES]];
            scalar::accumulate(form, &[&tile], &[&x], &mut sums);
            for (row, found) in sums[0][0].iter().enumerate() {
                let mut expected = 0.0;
                for (panel, x) in tile.iter().zip(&x) {
                    for column in 0..GROUP {
                        let code = f64::from(panel.codes[column / 4][4 * row + column % 4]);
                        let half = if matches!(form, Form::OffsetOfHalves(_)) { column / 16 } else { 0 };
                        let minimum = if form == Form::Minimum { f64::from(panel.scaling.minima[row]) } else { 0.0 };
                        let w =
                            f64::from(panel.scaling.scales[half][row]) * (code - f64::from(form.offset())) + minimum;
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
