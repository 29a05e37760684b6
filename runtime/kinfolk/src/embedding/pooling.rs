//! From one hidden state per token to one vector per text.

use std::{fmt, str::FromStr};

/// How hidden states become one vector. The modes are those of sentence-transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolingMode {
    /// The first token's.
    Cls,
    /// The largest value of each dimension.
    Max,
    /// The mean.
    Mean,
    /// The sum over the square root of the number of tokens.
    MeanSqrtLen,
    /// The mean with the weights 1, 2, 3, … by position (Muennighoff 2022, arXiv:2202.08904).
    WeightedMean,
    /// The last token's.
    Last,
}

impl PoolingMode {
    /// Every mode, in the order in which sentence-transformers concatenates them.
    pub const ALL: [PoolingMode; 6] = [
        PoolingMode::Cls,
        PoolingMode::Max,
        PoolingMode::Mean,
        PoolingMode::MeanSqrtLen,
        PoolingMode::WeightedMean,
        PoolingMode::Last,
    ];

    /// Short name, such as `mean`.
    pub fn name(self) -> &'static str {
        match self {
            PoolingMode::Cls => "cls",
            PoolingMode::Max => "max",
            PoolingMode::Mean => "mean",
            PoolingMode::MeanSqrtLen => "mean_sqrt_len",
            PoolingMode::WeightedMean => "weightedmean",
            PoolingMode::Last => "last",
        }
    }

    /// Reads the short name, or the one sentence-transformers has.
    fn parse(name: &str) -> Option<PoolingMode> {
        match name {
            "lasttoken" => Some(PoolingMode::Last),
            "mean_sqrt_len_tokens" => Some(PoolingMode::MeanSqrtLen),
            _ => PoolingMode::ALL.into_iter().find(|mode| mode.name() == name),
        }
    }
}

/// One mode, or several whose vectors are put one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pooling(Vec<PoolingMode>);

/// Not a way to pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pooling: expected one of [{}], or several joined by `+`, found `{found}`", PoolingMode::ALL.map(PoolingMode::name).join(", "))]
pub struct UnknownPooling {
    /// What was asked for.
    pub found: String,
}

impl Pooling {
    /// Reads names of modes, each at most once.
    ///
    /// # Errors
    /// `UnknownPooling` for a name that no mode has, a mode that is there twice, or no name.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Pooling, UnknownPooling> {
        let mut modes = Vec::new();
        for name in names {
            match PoolingMode::parse(name) {
                Some(mode) if !modes.contains(&mode) => modes.push(mode),
                _ => return Err(UnknownPooling { found: name.to_owned() }),
            }
        }
        if modes.is_empty() { Err(UnknownPooling { found: String::new() }) } else { Ok(Pooling(modes)) }
    }

    /// The modes, in order.
    pub fn modes(&self) -> &[PoolingMode] {
        &self.0
    }
}

impl From<PoolingMode> for Pooling {
    fn from(mode: PoolingMode) -> Pooling {
        Pooling(vec![mode])
    }
}

/// `mean`, or `cls+mean` for both.
impl FromStr for Pooling {
    type Err = UnknownPooling;

    fn from_str(names: &str) -> Result<Pooling, UnknownPooling> {
        Pooling::of_names(names.split('+'))
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|mode| mode.name()).collect::<Vec<_>>().join("+"))
    }
}

/// Pools one text, a hidden state at a time.
pub(crate) struct Pooler {
    parts: Vec<Accumulator>,
    n_pooled: usize,
}

/// What one mode keeps of the hidden states so far.
enum Accumulator {
    First(Vec<f32>),
    Last(Vec<f32>),
    Max(Vec<f32>),
    Sum { mode: PoolingMode, sum: Vec<f64>, total_weight: f64 },
}

impl Pooler {
    pub fn new(pooling: &Pooling) -> Pooler {
        let accumulator = |&mode: &PoolingMode| match mode {
            PoolingMode::Cls => Accumulator::First(Vec::new()),
            PoolingMode::Last => Accumulator::Last(Vec::new()),
            PoolingMode::Max => Accumulator::Max(Vec::new()),
            PoolingMode::Mean | PoolingMode::MeanSqrtLen | PoolingMode::WeightedMean => {
                Accumulator::Sum { mode, sum: Vec::new(), total_weight: 0.0 }
            }
        };
        Pooler { parts: pooling.modes().iter().map(accumulator).collect(), n_pooled: 0 }
    }

    /// Takes in the hidden state at a position of the text. Positions come in order; those left out are not pooled.
    pub fn add(&mut self, position: usize, hidden: &[f32]) {
        self.n_pooled += 1;
        self.parts.iter_mut().for_each(|part| part.add(position, hidden));
    }

    /// The vector, `[modes × hidden]`; `None` if nothing was pooled.
    pub fn finish(self) -> Option<Vec<f32>> {
        (self.n_pooled > 0).then(|| self.parts.into_iter().flat_map(Accumulator::finish).collect())
    }
}

impl Accumulator {
    fn add(&mut self, position: usize, hidden: &[f32]) {
        match self {
            Accumulator::First(first) if first.is_empty() => first.extend_from_slice(hidden),
            Accumulator::First(_) => {}
            Accumulator::Last(last) => {
                last.clear();
                last.extend_from_slice(hidden);
            }
            Accumulator::Max(max) => {
                max.resize(hidden.len(), f32::NEG_INFINITY);
                max.iter_mut().zip(hidden).for_each(|(max, x)| *max = max.max(*x));
            }
            Accumulator::Sum { mode, sum, total_weight } => {
                let weight = if *mode == PoolingMode::WeightedMean { (position + 1) as f64 } else { 1.0 };
                *total_weight += weight;
                sum.resize(hidden.len(), 0.0);
                sum.iter_mut().zip(hidden).for_each(|(sum, x)| *sum += weight * f64::from(*x));
            }
        }
    }

    fn finish(self) -> Vec<f32> {
        match self {
            Accumulator::First(values) | Accumulator::Last(values) | Accumulator::Max(values) => values,
            Accumulator::Sum { mode, sum, total_weight } => {
                let divisor = if mode == PoolingMode::MeanSqrtLen { total_weight.sqrt() } else { total_weight };
                sum.into_iter().map(|x| (x / divisor) as f32).collect()
            }
        }
    }
}

/// Scales a vector to length 1. One of length 0 stays what it is.
pub(crate) fn normalize(vector: &mut [f32]) {
    // What the usual reference divides by at least, too.
    const MIN_LENGTH: f64 = 1e-12;
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(MIN_LENGTH);
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three tokens of two dimensions.
    const HIDDEN: [[f32; 2]; 3] = [[1.0, -4.0], [3.0, -2.0], [8.0, -9.0]];

    #[track_caller]
    fn check(pooling: &str, skipped: usize, expected: &[f32]) {
        let mut pooler = Pooler::new(&pooling.parse().unwrap());
        HIDDEN.iter().enumerate().skip(skipped).for_each(|(position, hidden)| pooler.add(position, hidden));
        let found = pooler.finish().unwrap();
        assert_eq!(found.len(), expected.len(), "{pooling}");
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{pooling}: {found:?}");
    }

    #[test]
    fn every_mode_of_known_states_is_the_vector_by_hand() {
        // N1, N2.
        check("cls", 0, &[1.0, -4.0]);
        check("last", 0, &[8.0, -9.0]);
        check("max", 0, &[8.0, -2.0]);
        check("mean", 0, &[4.0, -5.0]);
        check("mean_sqrt_len", 0, &[12.0 / 3f32.sqrt(), -15.0 / 3f32.sqrt()]);
        check("weightedmean", 0, &[(1.0 + 6.0 + 24.0) / 6.0, (-4.0 - 4.0 - 27.0) / 6.0]);
    }

    #[test]
    fn tokens_left_out_count_for_nothing_but_keep_their_positions() {
        check("cls", 1, &[3.0, -2.0]);
        check("last", 2, &[8.0, -9.0]);
        check("max", 1, &[8.0, -2.0]);
        check("mean", 1, &[5.5, -5.5]);
        check("mean_sqrt_len", 2, &[8.0, -9.0]);
        check("weightedmean", 1, &[(6.0 + 24.0) / 5.0, (-4.0 - 27.0) / 5.0]);
        assert_eq!(Pooler::new(&PoolingMode::Mean.into()).finish(), None);
    }

    #[test]
    fn several_modes_stand_one_after_the_other_in_the_order_given() {
        check("mean+cls", 0, &[4.0, -5.0, 1.0, -4.0]);
        check("cls+mean+lasttoken", 0, &[1.0, -4.0, 4.0, -5.0, 8.0, -9.0]);
    }

    #[test]
    fn names_are_read_back_and_others_refused() {
        for mode in PoolingMode::ALL {
            assert_eq!(mode.name().parse::<Pooling>().unwrap(), mode.into());
        }
        assert_eq!("mean+last".parse::<Pooling>().unwrap().to_string(), "mean+last");
        for (name, found) in [("median", "median"), ("", ""), ("mean+", ""), ("mean+mean", "mean"), ("Mean", "Mean")] {
            assert_eq!(name.parse::<Pooling>(), Err(UnknownPooling { found: found.to_owned() }));
        }
        let text = "median".parse::<Pooling>().unwrap_err().to_string();
        assert!(text.starts_with("pooling: expected one of [cls, max, mean, "), "{text}");
    }

    #[test]
    fn a_normalised_vector_has_length_one_and_its_direction_and_nothing_stays_nothing() {
        let mut vector = [3.0, -4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, -0.8]);
        let mut large = [f32::MAX, 0.0];
        normalize(&mut large);
        assert_eq!(large, [1.0, 0.0]);
        let mut nothing = [0.0, 0.0];
        normalize(&mut nothing);
        assert_eq!(nothing, [0.0, 0.0]);
    }
}
