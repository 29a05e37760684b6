//! What a machine reaches at most, to compare what a model reaches with.

/// Measured peaks of the hardware that an executor uses.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Peaks {
    /// Bytes read from memory per second.
    pub read_bytes_per_s: f64,
    /// Products of bytes, summed as integers.
    pub int8: PeakRate,
    /// The same on a matrix unit, if there is one.
    pub int8_matrix: Option<PeakRate>,
    /// Products of f32.
    pub f32: PeakRate,
}

/// How fast one kind of multiplication is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PeakRate {
    /// The instructions that do it: `AVX-512 VNNI`.
    pub unit: &'static str,
    /// Multiplications with their addition, per second.
    pub macs_per_s: f64,
}

impl Peaks {
    /// Puts the peaks together.
    pub fn new(read_bytes_per_s: f64, int8: PeakRate, int8_matrix: Option<PeakRate>, f32: PeakRate) -> Peaks {
        Peaks { read_bytes_per_s, int8, int8_matrix, f32 }
    }
}

impl PeakRate {
    /// A rate with the name of what reaches it.
    pub fn new(unit: &'static str, macs_per_s: f64) -> PeakRate {
        PeakRate { unit, macs_per_s }
    }
}
