//! Activations as integers.
//!
//! A group of 32 is `scale · code`, symmetric, with a scale of its own, so that one outlier costs its 31 neighbours their digits and
//! nobody else.
//!
//! ```text
//! scale 4 | scale · Σ codes 4 | Σ of each half's codes 4 x 2 | codes 32 x 2 planes
//! ```
//! The two planes of bytes are a code of 16 bits, `256 · first + second`.

use std::cell::OnceCell;
#[cfg(target_arch = "x86_64")]
use std::{array, ops::Range};

#[cfg(target_arch = "x86_64")]
use super::{kernel::amx, spans};
#[cfg(target_arch = "x86_64")]
use crate::team::share;
use crate::{
    buffers::{Buffer, Buffers},
    level::{Level, compiled_per_level},
    team::Team,
};

/// Columns that share a scale.
pub(super) const GROUP: usize = 32;

/// Groups of which, where bytes are multiplied, a part [keeps its rests](Bytes): at most so many, in runs of nearly equal length.
pub(super) const RUN: usize = 16;

/// Planes of codes. One alone would be no faster in products with one token; with many tokens a host may choose [most of it](Bytes), which is a hundred
/// times further from f32: `PERFORMANCE.md` has the numbers.
pub(super) const PLANES: usize = 2;

/// The codes of a projection's inputs, made when first asked for.
#[derive(Default)]
pub(crate) struct Codes<'t> {
    groups: OnceCell<Buffer<'t, Group>>,
    #[cfg(target_arch = "x86_64")]
    words: OnceCell<Buffer<'t, Words>>,
    #[cfg(target_arch = "x86_64")]
    bytes: OnceCell<Buffer<'t, Bytes>>,
    #[cfg(target_arch = "x86_64")]
    blocks: OnceCell<Buffer<'t, amx::Block>>,
    #[cfg(target_arch = "x86_64")]
    spans: OnceCell<Buffer<'t, spans::Block>>,
}

/// Memory for what is quantised.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    groups: Buffers<Group>,
    #[cfg(target_arch = "x86_64")]
    words: Buffers<Words>,
    #[cfg(target_arch = "x86_64")]
    bytes: Buffers<Bytes>,
    #[cfg(target_arch = "x86_64")]
    blocks: Buffers<amx::Block>,
    #[cfg(target_arch = "x86_64")]
    spans: Buffers<spans::Block>,
}

/// Where the distance between two f32 is 1.
pub(super) const ROUND: f32 = 1.5 * (1 << 23) as f32;

/// The upper byte of the largest code is 127.
pub(super) const LARGEST_CODE: f32 = 127.0 * 256.0;

/// 32 quantised activations.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Group {
    pub scale: f32,
    /// `scale · Σ codes`
    pub scaled_sum: f32,
    /// `Σ codes` of the first and the second 16.
    pub sums: [i32; 2],
    pub codes: [[i8; GROUP]; PLANES],
}

/// The same as words.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Words {
    pub scale: f32,
    /// `scale · Σ codes`
    pub scaled_sum: f32,
    /// `Σ codes` of the first and the second 16.
    pub sums: [i32; 2],
    /// Of four columns at a time the first and third, then the second and fourth.
    codes: [i16; GROUP],
}

/// 32 activations as bytes, or what bytes leave of them.
///
/// A token has, for each run of groups, all of them and then the rests of those whose scales are largest, one in eight: they are what rounding to bytes
/// costs most in.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Bytes {
    pub scale: f32,
    /// `scale · Σ codes`, and that of its rest, which has none.
    pub scaled_sum: f32,
    /// What sums start with: [`ROUND`]'s bits, less `offset · Σ codes` for each of [`OFFSETS`].
    pub starts: [i32; N_STARTS],
    /// Of a rest, its group in the run.
    pub group: u32,
    pub codes: [i8; GROUP],
}

/// Offsets that schemes have; those of the first and the second 16 columns for the one that has scales for both.
#[cfg(target_arch = "x86_64")]
pub(super) const OFFSETS: [u8; N_STARTS] = [8, 16, 128, 32, 32];
#[cfg(target_arch = "x86_64")]
pub(super) const N_STARTS: usize = 5;

impl<'t> Codes<'t> {
    /// `[tokens, groups]` of `x`, which is the same in every call.
    pub(super) fn groups(&self, team: &'t Team, x: &[f32]) -> &[Group] {
        self.groups.get_or_init(|| quantize(team, &team.quantized.groups, Group::NONE, x, Group::fill))
    }

    /// As [`groups`](Self::groups).
    #[cfg(target_arch = "x86_64")]
    pub(super) fn words(&self, team: &'t Team, x: &[f32]) -> &[Words] {
        self.words.get_or_init(|| quantize(team, &team.quantized.words, Words::NONE, x, Words::fill))
    }

    /// `[tokens, groups and rests]` of `x`, rows of `n_cols`, which is the same in every call.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn bytes(&self, team: &'t Team, x: &[f32], n_cols: usize) -> &[Bytes] {
        self.bytes.get_or_init(|| quantize_bytes(team, x, n_cols))
    }

    /// `[blocks of 8 tokens, groups]` of `x`, rows of `n_cols`, which is the same in every call. The last block is filled up with zeros.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn blocks(&self, team: &'t Team, x: &[f32], n_cols: usize) -> &[amx::Block] {
        self.blocks.get_or_init(|| quantize_blocks(team, x, n_cols))
    }

    /// `[blocks of 16 tokens, spans]` of `x`, rows of `n_cols`, which is the same in every call.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn spans(&self, team: &'t Team, x: &[f32], n_cols: usize) -> &[spans::Block] {
        self.spans.get_or_init(|| spans::quantize(team, &team.quantized.spans, x, n_cols))
    }
}

/// Groups quantised at a time by one thread: less is not worth waking another for.
const CHUNK: usize = 64;

fn quantize<'t, T: Copy + Send + Sync>(
    team: &'t Team,
    buffers: &'t Buffers<T>,
    none: T,
    x: &[f32],
    fill: fn(Level, &[f32], &mut [T]),
) -> Buffer<'t, T> {
    let mut groups = buffers.take(x.len() / GROUP, none);
    team.for_each_chunk(&mut groups, CHUNK, |chunk, groups| {
        fill(Level::current(), &x[chunk * CHUNK * GROUP..][..groups.len() * GROUP], groups);
    });
    groups
}

#[cfg(target_arch = "x86_64")]
fn quantize_blocks<'t>(team: &'t Team, x: &[f32], n_cols: usize) -> Buffer<'t, amx::Block> {
    let n_blocks = (x.len() / n_cols).div_ceil(amx::TOKENS) * (n_cols / GROUP);
    let mut blocks = team.quantized.blocks.take(n_blocks, amx::Block::EMPTY);
    let of_thread = n_blocks.div_ceil(team.n_threads());
    team.for_each_chunk(&mut blocks, of_thread, |thread, blocks| {
        amx::Block::quantize(blocks, thread * of_thread, x, n_cols);
    });
    blocks
}

#[cfg(target_arch = "x86_64")]
fn quantize_bytes<'t>(team: &'t Team, x: &[f32], n_cols: usize) -> Buffer<'t, Bytes> {
    let (n_tokens, of_token) = (x.len() / n_cols, Bytes::len(n_cols / GROUP));
    let mut bytes = team.quantized.bytes.take(n_tokens * of_token, Bytes::NONE);
    let of_thread = n_tokens.div_ceil(team.n_threads());
    team.for_each_chunk(&mut bytes, of_thread * of_token, |thread, bytes| {
        let x = x[thread * of_thread * n_cols..].chunks_exact(n_cols);
        x.zip(bytes.chunks_exact_mut(of_token)).for_each(|(x, bytes)| Bytes::fill(Level::current(), x, bytes));
    });
    bytes
}

impl Group {
    pub const NONE: Group = Group { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [[0; GROUP]; PLANES] };

    /// Quantises `x` into as many `groups` as it fills.
    pub fn fill(level: Level, x: &[f32], groups: &mut [Group]) {
        run(level, x, groups);
        compiled_per_level!(run = each [] (x: &[f32], groups: &mut [Group]));
    }
}

#[inline(always)]
fn each(x: &[f32], groups: &mut [Group]) {
    for (x, group) in x.as_chunks().0.iter().zip(groups) {
        let (scale, codes) = codes(x);
        let mut planes = [[0i8; GROUP]; PLANES];
        for i in 0..GROUP {
            let high = (codes[i] + 128) >> 8;
            (planes[0][i], planes[1][i]) = (high as i8, (codes[i] - (high << 8)) as i8);
        }
        let sums = sums(&codes);
        *group = Group { scale, scaled_sum: scale * (sums[0] + sums[1]) as f32, sums, codes: planes };
    }
}

#[cfg(target_arch = "x86_64")]
impl Words {
    pub const NONE: Words = Words { scale: 0.0, scaled_sum: 0.0, sums: [0; 2], codes: [0; GROUP] };

    /// Quantises `x` into as many `groups` as it fills.
    pub fn fill(level: Level, x: &[f32], groups: &mut [Words]) {
        run(level, x, groups);
        compiled_per_level!(run = each_of_words [] (x: &[f32], groups: &mut [Words]));
    }

    /// The `k`-th pair of codes as the processor's 32-bit integer.
    #[inline(always)]
    pub fn pair(&self, k: usize) -> i32 {
        let [first, second] = self.codes.as_chunks::<2>().0[k];
        i32::from(first as u16) | i32::from(second) << 16
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn each_of_words(x: &[f32], groups: &mut [Words]) {
    for (x, group) in x.as_chunks().0.iter().zip(groups) {
        let (scale, codes) = codes(x);
        let words = codes.map(|code| code as i16);
        let words = array::from_fn(|i| words[i & !3 | [0, 2, 1, 3][i & 3]]);
        let sums = sums(&codes);
        *group = Words { scale, scaled_sum: scale * (sums[0] + sums[1]) as f32, sums, codes: words };
    }
}

#[cfg(target_arch = "x86_64")]
impl Bytes {
    pub const NONE: Bytes = Bytes { scale: 0.0, scaled_sum: 0.0, starts: [0; N_STARTS], group: 0, codes: [0; GROUP] };

    /// Runs that a token's `n_groups` fall into.
    pub fn n_runs(n_groups: usize) -> usize {
        n_groups.div_ceil(RUN)
    }

    /// How many there are of a token of `n_groups`.
    pub fn len(n_groups: usize) -> usize {
        Self::place(n_groups, n_groups).end
    }

    /// Where in a token of `n_groups` the run that starts with group `first` is, or the token ends.
    pub fn place(n_groups: usize, first: usize) -> Range<usize> {
        let n_runs = Self::n_runs(n_groups);
        let lens =
            (0..n_runs).map(|run| share(n_groups, run, n_runs)).map(|run| (run.start, run.len() + n_rests(run.len())));
        let start = lens.clone().take_while(|(start, _)| *start < first).map(|(_, len)| len).sum();
        let len = lens.clone().find(|(start, _)| *start == first).map_or(0, |(_, len)| len);
        start..start + len
    }

    /// Quantises the token `x` into `bytes`, which has as many as [`len`](Self::len) says.
    pub fn fill(level: Level, x: &[f32], bytes: &mut [Bytes]) {
        run(level, x, bytes);
        compiled_per_level!(run = each_of_bytes [] (x: &[f32], bytes: &mut [Bytes]));
    }

    #[inline(always)]
    fn new(scale: f32, codes: [i8; GROUP]) -> Bytes {
        let halves: &[[i8; GROUP / 2]] = codes.as_chunks().0;
        let [first, second] = [halves[0], halves[1]].map(|half| half.iter().map(|code| i32::from(*code)).sum::<i32>());
        let of_both = first + second;
        let sums = [of_both, of_both, of_both, first, second];
        let starts = array::from_fn(|i| ROUND.to_bits() as i32 - i32::from(OFFSETS[i]) * sums[i]);
        Bytes { scale, scaled_sum: scale * of_both as f32, starts, group: 0, codes }
    }
}

/// Rests that a run of `n_groups` keeps.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn n_rests(n_groups: usize) -> usize {
    n_groups.div_ceil(8)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn each_of_bytes(x: &[f32], bytes: &mut [Bytes]) {
    let groups = x.as_chunks().0;
    let n_runs = Bytes::n_runs(groups.len());
    let mut bytes = bytes;
    for run in 0..n_runs {
        let groups = &groups[share(groups.len(), run, n_runs)];
        let (of_groups, others) = bytes.split_at_mut(groups.len());
        let (rests, others) = others.split_at_mut(n_rests(groups.len()));
        bytes = others;
        let mut low = [[0i8; GROUP]; RUN];
        let mut scales = [0.0; RUN];
        // Without their signs floats are ordered like their bits, NaN above all. The last bits are a group's place, so that no two are equal.
        let mut keys = [0u32; RUN];
        for (i, (x, group)) in groups.iter().zip(&mut *of_groups).enumerate() {
            let (scale, codes) = codes(x);
            let mut high = [0i8; GROUP];
            for c in 0..GROUP {
                let of_high = (codes[c] + 128) >> 8;
                (high[c], low[i][c]) = (of_high as i8, (codes[c] - (of_high << 8)) as i8);
            }
            *group = Bytes::new(scale * 256.0, high);
            (scales[i], keys[i]) = (scale, scale.to_bits() & !(RUN as u32 - 1) | i as u32);
        }
        let mut n_larger = [0u32; RUN];
        for key in keys {
            for (n_larger, other) in n_larger.iter_mut().zip(&keys) {
                *n_larger += u32::from(key > *other);
            }
        }
        let n_rests = rests.len() as u32;
        for (i, rest) in (0..groups.len()).filter(|i| n_larger[*i] < n_rests).zip(rests) {
            let low = Bytes::new(scales[i], low[i]);
            of_groups[i].scaled_sum += low.scaled_sum;
            *rest = Bytes { group: i as u32, scaled_sum: 0.0, ..low };
        }
    }
}

/// Of the first and the second 16.
#[inline(always)]
fn sums(codes: &[i32; GROUP]) -> [i32; 2] {
    let halves: &[[i32; GROUP / 2]] = codes.as_chunks().0;
    [halves[0].iter().sum(), halves[1].iter().sum()]
}

/// The scale and the codes of `x`. NaN and infinity make the scale NaN.
#[inline(always)]
fn codes(x: &[f32; GROUP]) -> (f32, [i32; GROUP]) {
    // Without its sign a float orders like its bits, NaN above all.
    let largest = x.iter().fold(0, |max, v| max.max(v.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    let (scale, kept) = if largest < f32::INFINITY { (largest / LARGEST_CODE, !0) } else { (f32::NAN, 0) };
    // Below this, the reciprocal of a scale overflows; such a group is as good as zero.
    let inverse = if largest > 1e-30 { LARGEST_CODE / largest } else { 0.0 };
    // Loops of one kind of step each, which the compiler makes vectors of.
    let mut codes = [0i32; GROUP];
    for i in 0..GROUP {
        // The sum's last bit stands for 1.
        codes[i] = ((x[i] * inverse + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32) & kept;
    }
    for code in &mut codes {
        // Its low byte not -128, whose opposite is no i8, which kernels may need. The step that this loses is the finer one.
        let low = *code - ((*code + 128) >> 8 << 8);
        *code += i32::from(low == -128);
    }
    (scale, codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(x: &[f32; GROUP]) -> Vec<i32> {
        let groups: Vec<Group> = Level::available()
            .into_iter()
            .map(|level| {
                let mut group = [Group::NONE];
                Group::fill(level, x, &mut group);
                group[0]
            })
            .collect();
        let of = |g: &Group| -> Vec<i32> {
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
        let step = largest / (127.0 * 256.0);
        for (code, x) in codes(&x).iter().zip(x) {
            let allowed = if *code as u8 == 129 { 1.501 } else { 0.501 };
            assert!((*code as f32 * step - x).abs() <= step * allowed, "{code} for {x}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn bytes_are_within_half_their_step_and_the_largest_groups_with_their_rests_within_that_of_words() {
        for n_groups in [1, 2, 9, 16, 18, 33, 96] {
            let x: Vec<f32> =
                (0..n_groups * GROUP).map(|i| ((i * i) as f32 * 0.7).sin() * (1 + i / GROUP % 5) as f32).collect();
            let mut found = Vec::new();
            for level in Level::available() {
                let mut bytes = vec![Bytes::NONE; Bytes::len(n_groups)];
                Bytes::fill(level, &x, &mut bytes);
                found.push(bytes);
            }
            let bytes = &found[0];
            assert!(found.iter().all(|other| format!("{other:?}") == format!("{bytes:?}")), "levels agree");
            let n_runs = Bytes::n_runs(n_groups);
            for groups in (0..n_runs).map(|run| share(n_groups, run, n_runs)) {
                let of_run = &bytes[Bytes::place(n_groups, groups.start)];
                let (of_groups, rests) = of_run.split_at(groups.len());
                assert_eq!(rests.len(), groups.len().div_ceil(8));
                let least = rests.iter().map(|rest| of_groups[rest.group as usize].scale).fold(f32::INFINITY, f32::min);
                for (i, (x, group)) in x[groups.start * GROUP..].chunks(GROUP).zip(of_groups).enumerate() {
                    let rest = rests.iter().find(|rest| rest.group as usize == i);
                    assert!(rest.is_some() || group.scale <= least * 1.000_01, "no rest of a larger one");
                    let (mut sum, mut halves) = (0.0, [0, 0]);
                    for (c, x) in x.iter().enumerate() {
                        let low = rest.map_or(0.0, |rest| rest.scale * f32::from(rest.codes[c]));
                        let value = group.scale * f32::from(group.codes[c]) + low;
                        let step = if rest.is_some() { group.scale / 256.0 * 3.0 } else { group.scale };
                        assert!((value - x).abs() <= step * 0.51, "{value} for {x}, {step}");
                        sum += value;
                        halves[c / 16] += i32::from(group.codes[c]);
                    }
                    assert!((group.scaled_sum - sum).abs() <= group.scale * 0.01, "{} for {sum}", group.scaled_sum);
                    for (at, offset) in OFFSETS.into_iter().enumerate() {
                        let of =
                            [halves[0] + halves[1], halves[0] + halves[1], halves[0] + halves[1], halves[0], halves[1]];
                        assert_eq!(group.starts[at], ROUND.to_bits() as i32 - i32::from(offset) * of[at]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_none() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; GROUP];
            x[7] = bad;
            let mut group = [Group::NONE];
            Group::fill(Level::Scalar, &x, &mut group);
            assert!(!group[0].scale.is_finite() && group[0].scaled_sum.is_nan(), "{:?}", group[0]);
        }
    }

    #[test]
    fn nothing_and_next_to_nothing_are_zero() {
        for tiny in [0.0, -0.0, 1e-38, f32::MIN_POSITIVE] {
            assert_eq!(codes(&[tiny; GROUP]), [0; GROUP]);
        }
    }
}
