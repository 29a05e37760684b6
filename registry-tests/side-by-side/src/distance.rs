//! How far logits are from others of the same text.

use serde::Serialize;

/// Over every position of a text.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distance {
    /// The largest difference of any logit.
    pub largest: f64,
    pub root_mean_square: f64,
    /// Mean over the positions of Σ p ln(p ÷ q), in nats: p is the reference's distribution of the next token, q the other's.
    pub kl: f64,
    /// Share of the positions that have the same most likely token.
    pub same_token: f64,
}

/// A [`Distance`] that is not at its end.
#[derive(Debug, Default)]
pub struct Sums {
    largest: f64,
    squares: f64,
    n_logits: usize,
    kl: f64,
    n_same: usize,
    n_positions: usize,
}

impl Sums {
    /// Adds a position, of which both have as many logits.
    pub fn add(&mut self, reference: &[f32], found: &[f32]) {
        let (of_reference, of_found) = (log_sum_exp(reference), log_sum_exp(found));
        for (&reference, &found) in reference.iter().zip(found) {
            let (reference, found) = (f64::from(reference), f64::from(found));
            let difference = (reference - found).abs();
            // One that is no number is kept, where `max` would pass over it.
            if difference > self.largest || difference.is_nan() {
                self.largest = difference;
            }
            self.squares += difference * difference;
            let (p, q) = (reference - of_reference, found - of_found);
            self.kl += p.exp() * (p - q);
        }
        self.n_logits += reference.len();
        self.n_same += usize::from(most_likely(reference) == most_likely(found));
        self.n_positions += 1;
    }

    pub fn distance(&self) -> Distance {
        Distance {
            largest: self.largest,
            root_mean_square: (self.squares / self.n_logits as f64).sqrt(),
            kl: self.kl / self.n_positions as f64,
            same_token: self.n_same as f64 / self.n_positions as f64,
        }
    }
}

/// ln Σ exp.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    largest + logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum::<f64>().ln()
}

/// The first of the largest.
fn most_likely(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_logits_are_at_no_distance() {
        let mut sums = Sums::default();
        sums.add(&[0.5, -3.0, 2.0], &[0.5, -3.0, 2.0]);
        let Distance { largest, root_mean_square, kl, same_token } = sums.distance();
        assert_eq!((largest, root_mean_square, kl, same_token), (0.0, 0.0, 0.0, 1.0));
    }

    #[test]
    fn distances_are_those_of_a_case_done_by_hand() {
        let mut sums = Sums::default();
        // Distributions of ¼ and ¾, and of ½ and ½.
        sums.add(&[0.0, 3f32.ln()], &[1.0, 1.0]);
        sums.add(&[0.0, 1.0], &[0.0, 1.0]);
        let found = sums.distance();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, {expected}");
        near(found.largest, 1.0);
        near(found.root_mean_square, ((1.0 + (3f64.ln() - 1.0).powi(2)) / 4.0).sqrt());
        near(found.kl, (0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln()) / 2.0);
        near(found.same_token, 0.5);
    }

    #[test]
    fn a_logit_that_is_no_number_shows() {
        let mut sums = Sums::default();
        sums.add(&[0.0, 1.0], &[f32::NAN, 1.0]);
        sums.add(&[0.0, 1.0], &[0.0, 1.5]);
        let found = sums.distance();
        assert!(found.largest.is_nan() && found.root_mean_square.is_nan() && found.kl.is_nan());
    }
}
