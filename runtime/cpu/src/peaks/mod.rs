//! What the processor reaches at most: reading memory, and multiplying in the registers.

mod read;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use kinfolk_decoder::{PeakRate, Peaks};

use crate::level::Level;

/// How long each multiplication is measured: long enough for the clock to settle under load.
const TIME: Duration = Duration::from_millis(40);

/// Runs between two looks at the clock.
const RUNS: usize = 50;

/// Multiplications that nothing holds up: as many sums in registers as it takes to wait for none of them.
#[derive(Clone, Copy)]
struct Kernel {
    /// The instructions it uses.
    unit: &'static str,
    /// Multiplications with their addition that one run does.
    macs: usize,
    run: fn(),
}

/// What one product of every kind takes here.
struct Kernels {
    int8: Kernel,
    int8_matrix: Option<Kernel>,
    f32: Kernel,
}

/// Measures every peak with `n_threads` threads at once.
pub(crate) fn measure(n_threads: usize) -> Peaks {
    let kernels = Kernels::of(&Level::available());
    Peaks::new(
        read::bytes_per_s(n_threads),
        rate(kernels.int8, n_threads),
        kernels.int8_matrix.map(|kernel| rate(kernel, n_threads)),
        rate(kernels.f32, n_threads),
    )
}

/// The rate of a kernel, all threads together.
fn rate(kernel: Kernel, n_threads: usize) -> PeakRate {
    let macs_per_s = together(n_threads, |barrier| {
        barrier.wait();
        let start = Instant::now();
        let mut n_runs = 0;
        while start.elapsed() < TIME {
            (0..RUNS).for_each(|_| (kernel.run)());
            n_runs += RUNS;
        }
        (n_runs * kernel.macs) as f64 / start.elapsed().as_secs_f64()
    });
    PeakRate::new(kernel.unit, macs_per_s)
}

/// Does `work` on several threads and adds up the rates that each found. Each waits for the others before it measures.
fn together(n_threads: usize, work: impl Fn(&Barrier) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(n_threads);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(|| work(&barrier))).collect();
        threads.into_iter().map(|thread| thread.join().expect("measuring does not panic")).sum()
    })
}

/// Steps of a kernel in one run.
const STEPS: usize = 1000;

impl Kernels {
    /// What every processor can do, as fast as the compiler makes it for the baseline of the target.
    const PORTABLE: Kernels = Kernels {
        int8: Kernel { unit: "portable", macs: STEPS * PORTABLE_SUMS, run: portable_int8 },
        int8_matrix: None,
        f32: Kernel { unit: "portable", macs: STEPS * PORTABLE_SUMS, run: portable_f32 },
    };
}

const PORTABLE_SUMS: usize = 32;

fn portable_int8() {
    let mut sums = [0i32; PORTABLE_SUMS];
    for _ in 0..STEPS {
        let &[x, y] = black_box(&[[3i8; PORTABLE_SUMS]; 2]);
        for i in 0..PORTABLE_SUMS {
            sums[i] += i32::from(i16::from(x[i]) * i16::from(y[i]));
        }
    }
    black_box(sums);
}

fn portable_f32() {
    let mut sums = [0f32; PORTABLE_SUMS];
    for _ in 0..STEPS {
        let &[x, y] = black_box(&[[0.5f32; PORTABLE_SUMS]; 2]);
        for i in 0..PORTABLE_SUMS {
            sums[i] += x[i] * y[i];
        }
    }
    black_box(sums);
}

#[cfg(not(target_arch = "x86_64"))]
impl Kernels {
    fn of(_: &[Level]) -> Kernels {
        Kernels::PORTABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peak_is_measured() {
        let peaks = measure(2);
        let rates = [Some(peaks.int8), peaks.int8_matrix, Some(peaks.f32)];
        for rate in rates.into_iter().flatten() {
            assert!(rate.macs_per_s.is_finite() && rate.macs_per_s > 0.0, "{rate:?}");
        }
        assert!(peaks.read_bytes_per_s.is_finite() && peaks.read_bytes_per_s > 0.0);
    }

    #[test]
    fn rates_of_all_threads_are_added() {
        assert_eq!(together(3, |_| 2.0), 6.0);
    }
}
