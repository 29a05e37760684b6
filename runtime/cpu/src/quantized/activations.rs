//! Activations as integers.
//!
//! A group of 32 is `scale · code`, symmetric, with a scale of its own, so that one outlier costs its 31 neighbours their digits and
//! nobody else.
//!
//! ```text
//! scale 4 | scale · Σ codes 4 | Σ of each half's codes 4 x 2 | codes 32 per plane
//! ```
//! One plane holds codes of 8 bits. Two planes hold codes of 16 bits as `256 · first + second`.

use std::cell::OnceCell;

use super::level::{Level, compiled_per_level};
use crate::team::Team;

/// Columns that share a scale.
pub(super) const GROUP: usize = 32;

/// Planes of codes. The second costs half as much time again in products with many tokens and nothing in those with one, and makes the
/// difference from f32 a hundred times smaller: `PERFORMANCE.md` has the numbers.
pub(super) const PLANES: usize = 2;

/// The inputs of one or several projections, quantised once when first asked for.
pub(crate) struct Activations<'a> {
    /// `[tokens, n_cols]`
    pub x: &'a [f32],
    groups: OnceCell<Vec<Group<PLANES>>>,
}

/// 32 quantised activations.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Group<const PLANES: usize> {
    pub scale: f32,
    /// `scale · Σ codes`
    pub scaled_sum: f32,
    /// `Σ codes` of the first and the second 16.
    pub sums: [i32; 2],
    pub codes: [[i8; GROUP]; PLANES],
}

impl<'a> Activations<'a> {
    pub fn new(x: &'a [f32]) -> Activations<'a> {
        Activations { x, groups: OnceCell::new() }
    }

    /// `[tokens, groups]`
    pub(super) fn groups(&self, team: &Team) -> &[Group<PLANES>] {
        self.groups.get_or_init(|| quantize(team, self.x))
    }
}

/// Groups quantised at a time by one thread: less is not worth waking another for.
const CHUNK: usize = 64;

fn quantize(team: &Team, x: &[f32]) -> Vec<Group<PLANES>> {
    let level = Level::best();
    let mut groups = vec![Group::NONE; x.len() / GROUP];
    team.for_each_chunk(&mut groups, CHUNK, |chunk, groups| {
        let x = &x[chunk * CHUNK * GROUP..][..groups.len() * GROUP];
        Group::fill(level, x, groups);
    });
    groups
}

impl<const PLANES: usize> Group<PLANES> {
    const NONE: Group<PLANES> = Group { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [[0; GROUP]; PLANES] };

    /// Quantises `x` into as many `groups` as it fills.
    pub fn fill(level: Level, x: &[f32], groups: &mut [Group<PLANES>]) {
        // The macro's functions take types, so the number of planes is told by a type.
        run(level, x, groups);
        compiled_per_level!(run = each [G: Quantize] (x: &[f32], groups: &mut [G]));
    }
}

/// What [`compiled_per_level`] can be generic over.
trait Quantize: Sized {
    fn quantized(x: &[f32; GROUP]) -> Self;
}

#[inline(always)]
fn each<G: Quantize>(x: &[f32], groups: &mut [G]) {
    for (x, group) in x.as_chunks().0.iter().zip(groups) {
        *group = G::quantized(x);
    }
}

impl<const PLANES: usize> Quantize for Group<PLANES> {
    /// NaN and infinity make the whole group NaN.
    #[inline(always)]
    fn quantized(x: &[f32; GROUP]) -> Self {
        let largest_code: f32 = if PLANES == 2 { 127.0 * 256.0 } else { 127.0 };
        // Without its sign a float orders like its bits, NaN above all.
        let largest = x.iter().fold(0, |max, v| max.max(v.to_bits() & 0x7fff_ffff));
        let largest = f32::from_bits(largest);
        let scale = largest / largest_code;
        // Below this, the reciprocal of a scale overflows; such a group is as good as zero.
        let inverse = if largest > 1e-30 { largest_code / largest } else { 0.0 };
        let mut codes = [[0i8; GROUP]; PLANES];
        let mut sums = [0; 2];
        for (i, v) in x.iter().enumerate() {
            let mut code = (v * inverse).round_ties_even() as i32;
            if PLANES == 2 {
                let high = (code + 128) >> 8;
                // Not -128, whose opposite is no i8, which kernels may need. The step that this loses is the finer one.
                let low = (code - (high << 8)).max(-127);
                (codes[0][i], codes[1][i]) = (high as i8, low as i8);
                code = (high << 8) + low;
            } else {
                codes[0][i] = code as i8;
            }
            sums[i / (GROUP / 2)] += code;
        }
        Group { scale, scaled_sum: scale * (sums[0] + sums[1]) as f32, sums, codes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes<const PLANES: usize>(x: &[f32; GROUP]) -> Vec<i32> {
        let groups: Vec<Group<PLANES>> = Level::available()
            .into_iter()
            .map(|level| {
                let mut group = [Group::NONE];
                Group::fill(level, x, &mut group);
                group[0]
            })
            .collect();
        let of = |g: &Group<PLANES>| -> Vec<i32> {
            let code = |i: usize| g.codes.iter().fold(0, |sum, plane| 256 * sum + i32::from(plane[i]));
            (0..GROUP).map(code).collect()
        };
        for group in &groups {
            assert_eq!(group.scale.to_bits(), groups[0].scale.to_bits());
            assert_eq!(of(group), of(&groups[0]), "levels agree");
        }
        let (group, found) = (&groups[0], of(&groups[0]));
        assert_eq!(group.sums, [found[..16].iter().sum::<i32>(), found[16..].iter().sum()]);
        found
    }

    #[test]
    fn a_group_is_within_half_a_step_of_what_it_was() {
        let x: [f32; GROUP] = std::array::from_fn(|i| ((i * i) as f32 * 0.7).sin() * 3.0);
        let largest = x.iter().fold(0f32, |max, v| max.max(v.abs()));
        for (codes, steps) in [(codes::<1>(&x), 127.0), (codes::<2>(&x), 127.0 * 256.0)] {
            let step = largest / steps;
            for (code, x) in codes.iter().zip(x) {
                assert!(
                    (*code as f32 * step - x).abs() <= step * if *code as u8 == 129 { 1.501 } else { 0.501 },
                    "{code} for {x}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_none() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; GROUP];
            x[7] = bad;
            let mut group = [Group::<1>::NONE];
            Group::fill(Level::Scalar, &x, &mut group);
            assert!(!group[0].scale.is_finite() && group[0].scaled_sum.is_nan(), "{:?}", group[0]);
        }
    }

    #[test]
    fn nothing_and_next_to_nothing_are_zero() {
        for tiny in [0.0, -0.0, 1e-38, f32::MIN_POSITIVE] {
            assert_eq!(codes::<1>(&[tiny; GROUP]), [0; GROUP]);
            assert_eq!(codes::<2>(&[tiny; GROUP]), [0; GROUP]);
        }
    }
}
