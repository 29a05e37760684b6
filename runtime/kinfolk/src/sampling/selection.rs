//! Picking the best of many without sorting them.

use std::cmp::Ordering;

/// Scores looked at together: one comparison tells that none of them is wanted.
const BLOCK: usize = 32;

/// A slot and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pick {
    pub slot: u32,
    pub score: f32,
}

/// Best first, equals by lower slot.
fn best_first(a: &Pick, b: &Pick) -> Ordering {
    b.score.total_cmp(&a.score).then(a.slot.cmp(&b.slot))
}

/// Largest value; minus infinity if there is none. No value is NaN.
pub(super) fn max(values: &[f32]) -> f32 {
    largest(values, |value| value)
}

/// Largest of what `read` makes of the values, none of which is NaN; minus infinity if there is none.
#[inline(always)]
pub(super) fn largest(values: &[f32], read: impl Fn(f32) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            let value = read(block[lane]);
            lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
        }
    }
    let rest = rest.iter().map(|value| read(*value));
    lanes.into_iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

/// How many values are what `is` asks for.
#[inline(always)]
pub(super) fn count(values: &[f32], is: impl Fn(f32) -> bool) -> usize {
    // Counters as wide as the values are what vectorises.
    let counts = values.chunks(4096).map(|block| block.iter().map(|value| u32::from(is(*value))).sum::<u32>());
    counts.map(|count| count as usize).sum()
}

/// Where the largest finite value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Argmax {
    /// Slot of the first of the largest values.
    pub slot: Option<usize>,
    /// Whether a value was not finite.
    pub has_non_finite: bool,
}

/// Finds the largest finite value. NaN and infinities are not there.
///
/// # Cost
/// One vectorised pass in blocks that stay in the nearest cache, and a second look at one of them.
pub(super) fn argmax(values: &[f32]) -> Argmax {
    const BLOCK: usize = 1024;
    let finite = |value: f32| if value.abs() < f32::INFINITY { value } else { f32::NEG_INFINITY };
    let (mut best, mut start, mut n_finite) = (f32::NEG_INFINITY, 0, 0);
    for (index, block) in values.chunks(BLOCK).enumerate() {
        n_finite += count(block, |value| value.abs() < f32::INFINITY);
        let top = largest(block, finite);
        if top > best {
            (best, start) = (top, index * BLOCK);
        }
    }
    let within = values[start..].iter().position(|value| *value == best).filter(|_| best > f32::NEG_INFINITY);
    Argmax { slot: within.map(|offset| start + offset), has_non_finite: n_finite < values.len() }
}

/// Puts the `n` best scores into `picks`, in no order; lower slots of equals. Minus infinity is no score, and NaN neither.
///
/// # Cost
/// One pass that compares whole blocks with the worst score still wanted, plus about n log(scores / n) moves.
pub(super) fn select_best(scores: &[f32], n: usize, picks: &mut Vec<Pick>) {
    select(scores, n, picks, |score| score);
}

/// [`select_best`] of scores of which some may be plus infinity, which is no score either.
pub(super) fn select_best_finite(scores: &[f32], n: usize, picks: &mut Vec<Pick>) {
    select(scores, n, picks, |score| if score < f32::INFINITY { score } else { f32::NEG_INFINITY });
}

#[inline(always)]
fn select(scores: &[f32], n: usize, picks: &mut Vec<Pick>, read: impl Fn(f32) -> f32) {
    picks.clear();
    if n == 0 {
        return;
    }
    let room = n.saturating_mul(2).max(BLOCK);
    let mut worst = f32::NEG_INFINITY;
    for (index, block) in scores.chunks(BLOCK).enumerate() {
        // Without a branch inside, so that it is one comparison of vectors.
        if !block.iter().fold(false, |any, score| any | (read(*score) > worst)) {
            continue;
        }
        let start = index * BLOCK;
        for (offset, score) in block.iter().map(|score| read(*score)).enumerate() {
            if score > worst {
                // Zero has one sign here: equals must compare equal.
                picks.push(Pick { slot: (start + offset) as u32, score: score + 0.0 });
            }
        }
        if picks.len() >= room {
            worst = truncate_to_best(picks, n);
        }
    }
    truncate_to_best(picks, n);
}

/// Keeps the n best, in no order, and returns the score of the worst of them.
fn truncate_to_best(picks: &mut Vec<Pick>, n: usize) -> f32 {
    if picks.len() <= n {
        return f32::NEG_INFINITY;
    }
    let (_, worst, _) = picks.select_nth_unstable_by(n - 1, best_first);
    let worst = worst.score;
    picks.truncate(n);
    worst
}

/// Sorts picks, best first.
pub(super) fn sort(picks: &mut [Pick]) {
    picks.sort_unstable_by(best_first);
}

/// Puts the shortest run of best scores whose weights are `enough` into `picks`, in no order; all if they never are.
///
/// # Cost
/// Looks at few first, since few are enough as a rule; never sorts more than 64 of them.
pub(super) fn select_mass(scores: &[f32], weights: &[f32], picks: &mut Vec<Pick>, enough: impl Fn(f64) -> bool) {
    let mut n = 64;
    loop {
        select_best(scores, n, picks);
        let all = picks.len() < n || n >= scores.len();
        if all || enough(mass(picks, weights)) {
            let n = count_to_mass(picks, weights, enough);
            picks.truncate(n);
            return;
        }
        n = n.saturating_mul(16);
    }
}

fn mass(picks: &[Pick], weights: &[f32]) -> f64 {
    picks.iter().map(|pick| weight(pick, weights)).sum()
}

fn weight(pick: &Pick, weights: &[f32]) -> f64 {
    weights.get(pick.slot as usize).copied().map_or(0.0, f64::from)
}

/// How many of the best picks are enough. Moves those to the front: a selection by weight, halving what is left in question.
fn count_to_mass(picks: &mut [Pick], weights: &[f32], enough: impl Fn(f64) -> bool) -> usize {
    const SORTED: usize = 64;
    // The answer lies after `low` and at or before `high`; what lies before `low` weighs `before`.
    let (mut low, mut high, mut before) = (0, picks.len(), 0.0);
    while high - low > SORTED {
        let half = (high - low) / 2;
        picks[low..high].select_nth_unstable_by(half, best_first);
        let with_half = before + mass(&picks[low..low + half], weights);
        if enough(with_half) {
            high = low + half;
        } else {
            (low, before) = (low + half, with_half);
        }
    }
    sort(&mut picks[low..high]);
    for (index, pick) in picks[low..high].iter().enumerate() {
        before += weight(pick, weights);
        if enough(before) {
            return low + index + 1;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores with many equals and some that are out.
    fn scores(n: usize) -> Vec<f32> {
        let score = |i: usize| match (i * 7919) % 101 {
            0 => f32::NEG_INFINITY,
            x => (x % 40) as f32 - 20.0,
        };
        (0..n).map(score).collect()
    }

    fn sorted(scores: &[f32]) -> Vec<Pick> {
        let finite = scores.iter().enumerate().filter(|(_, s)| s.is_finite());
        let mut all: Vec<Pick> = finite.map(|(slot, &score)| Pick { slot: slot as u32, score }).collect();
        sort(&mut all);
        all
    }

    #[test]
    fn the_best_are_the_first_of_all_sorted() {
        for len in [0, 1, 31, 32, 33, 1000, 5000] {
            let scores = scores(len);
            let all = sorted(&scores);
            for n in [0, 1, 2, 40, 999, 5000, usize::MAX] {
                let mut picks = Vec::new();
                select_best(&scores, n, &mut picks);
                sort(&mut picks);
                assert_eq!(picks, all[..n.min(all.len())], "{n} of {len}");
            }
        }
    }

    #[test]
    fn mass_is_reached_by_the_shortest_run_of_the_best() {
        for len in [1, 40, 64, 65, 1000, 20_000] {
            let scores = scores(len);
            let weights: Vec<f32> = (0..len).map(|i| (i % 3) as f32).collect();
            let all = sorted(&scores);
            let total = mass(&all, &weights);
            for share in [0.0, 0.001, 0.3, 0.5, 0.999, 1.0, 2.0] {
                let enough = |mass: f64| mass >= share * total;
                let mut picks = Vec::new();
                select_mass(&scores, &weights, &mut picks, enough);
                let mut so_far = 0.0;
                let reached = all.iter().position(|pick| {
                    so_far += weight(pick, &weights);
                    enough(so_far)
                });
                let shortest = reached.map_or(all.len(), |last| last + 1);
                sort(&mut picks);
                assert_eq!(picks, all[..shortest], "{share} of {len}");
            }
        }
    }

    #[test]
    fn counts_are_exact() {
        for len in [0, 1, 4096, 4097, 10_000] {
            let values: Vec<f32> = (0..len).map(|i| (i % 3) as f32).collect();
            assert_eq!(count(&values, |value| value > 0.5), (0..len).filter(|i| i % 3 != 0).count());
        }
    }

    #[test]
    fn argmax_is_the_first_largest_finite_value() {
        let slot = |values: &[f32]| argmax(values).slot;
        assert_eq!(slot(&[]), None);
        assert_eq!(slot(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]), None);
        assert_eq!(slot(&[f32::NAN, f32::MIN, f32::INFINITY]), Some(1));
        assert_eq!(slot(&[-0.0, 0.0]), Some(0));
        for place in [0, 15, 16, 255, 256, 300, 511] {
            let mut values = vec![-1.0; 600];
            values[place] = 2.0;
            values[520] = 2.0;
            values[599] = f32::INFINITY;
            assert_eq!(argmax(&values), Argmax { slot: Some(place), has_non_finite: true });
            assert!(!argmax(&values[..599]).has_non_finite);
            assert_eq!(max(&values[..599]), 2.0);
        }
    }
}
