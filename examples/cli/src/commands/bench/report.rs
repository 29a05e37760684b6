//! What was measured, as a table or as JSON.

use kinfolk::decoder::{Model, OpTime, PeakRate, Peaks};
use serde::Serialize;

use super::{measure::Measured, work::Work};
use crate::{args::BenchArgs, print};

#[derive(Serialize)]
pub struct Report {
    path: String,
    family: String,
    executor: &'static str,
    threads: usize,
    repetitions: usize,
    load_seconds: f64,
    weight_bytes: u64,
    /// Of the whole process, peaks aside. `None` where the system does not say.
    pub resident_peak_bytes: Option<u64>,
    /// Median of the prompt; `None` if none was run.
    prefill_tokens_per_s: Option<f64>,
    /// Median of the first way to decode.
    decode_tokens_per_s: Option<f64>,
    prefill: Option<Prefill>,
    decode: Vec<Decode>,
    /// What the machine reaches at most; `None` if the executor cannot tell.
    peaks: Option<MachinePeaks>,
}

#[derive(Serialize)]
struct Prefill {
    n_tokens: usize,
    #[serde(flatten)]
    speed: Speed,
    /// Multiplications with weights, in 10⁹ per second.
    gmac_per_s: f64,
    /// Of the vector registers' peak, and of the matrix unit's if there is one.
    share_of_int8_peak: Option<f64>,
    share_of_int8_matrix_peak: Option<f64>,
    share_of_f32_peak: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profile: Vec<OpShare>,
}

#[derive(Serialize)]
struct Decode {
    depth: usize,
    n_sequences: usize,
    n_tokens: usize,
    #[serde(flatten)]
    speed: Speed,
    /// Weights read, in 10⁹ bytes per second, as the checkpoint stores them.
    weights_gb_per_s: f64,
    /// The same with the keys and values that every token looks at.
    gb_per_s: f64,
    share_of_read_peak: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profile: Vec<OpShare>,
}

/// Tokens per second of all sequences together.
#[derive(Serialize)]
struct Speed {
    tokens_per_s: f64,
    least: f64,
    most: f64,
    by_repetition: Vec<f64>,
}

#[derive(Serialize)]
struct OpShare {
    op: &'static str,
    calls: u64,
    seconds: f64,
    share: f64,
}

#[derive(Serialize)]
struct MachinePeaks {
    read_gb_per_s: f64,
    int8: MacRate,
    int8_matrix: Option<MacRate>,
    f32: MacRate,
}

#[derive(Serialize)]
struct MacRate {
    unit: &'static str,
    gmac_per_s: f64,
}

impl Report {
    pub fn new(args: &BenchArgs, family: &str, model: &dyn Model, load_seconds: f64) -> Report {
        Report {
            path: args.load.model.display().to_string(),
            family: family.to_owned(),
            executor: model.executor(),
            threads: model.threads(),
            repetitions: args.repetitions,
            load_seconds,
            weight_bytes: model.weight_bytes(),
            resident_peak_bytes: None,
            prefill_tokens_per_s: None,
            decode_tokens_per_s: None,
            prefill: None,
            decode: Vec::new(),
            peaks: None,
        }
    }

    pub fn add_prefill(&mut self, measured: Measured, work: &Work) {
        let n_tokens = measured.n_tokens;
        let speed = Speed::of(measured.tokens_per_s);
        self.prefill_tokens_per_s = Some(speed.tokens_per_s);
        self.prefill = Some(Prefill {
            n_tokens,
            gmac_per_s: work.prompt_macs(n_tokens) * speed.tokens_per_s / n_tokens as f64 / 1e9,
            speed,
            share_of_int8_peak: None,
            share_of_int8_matrix_peak: None,
            share_of_f32_peak: None,
            profile: shares(&measured.profile),
        });
    }

    pub fn add_decode(&mut self, measured: Measured, work: &Work) {
        let Measured { depth, n_sequences, n_tokens, cache_bytes, .. } = measured;
        let speed = Speed::of(measured.tokens_per_s);
        let steps_per_s = speed.tokens_per_s / n_sequences as f64;
        let weight_bytes = work.step_bytes(n_sequences);
        // On average a token looks at what was there before and half of what was decoded.
        let held = depth as f64 + n_tokens as f64 / 2.0;
        let cache_bytes = cache_bytes as f64 * held / (depth + n_tokens) as f64;
        self.decode_tokens_per_s.get_or_insert(speed.tokens_per_s);
        self.decode.push(Decode {
            depth,
            n_sequences,
            n_tokens,
            weights_gb_per_s: weight_bytes * steps_per_s / 1e9,
            gb_per_s: (weight_bytes + cache_bytes) * steps_per_s / 1e9,
            speed,
            share_of_read_peak: None,
            profile: shares(&measured.profile),
        });
    }

    pub fn set_peaks(&mut self, peaks: Option<Peaks>) {
        let Some(peaks) = peaks else { return };
        if let Some(prefill) = &mut self.prefill {
            let share = |rate: PeakRate| prefill.gmac_per_s * 1e9 / rate.macs_per_s;
            prefill.share_of_int8_peak = Some(share(peaks.int8));
            prefill.share_of_int8_matrix_peak = peaks.int8_matrix.map(share);
            prefill.share_of_f32_peak = Some(share(peaks.f32));
        }
        for decode in &mut self.decode {
            decode.share_of_read_peak = Some(decode.gb_per_s * 1e9 / peaks.read_bytes_per_s);
        }
        self.peaks = Some(MachinePeaks::of(&peaks));
    }

    pub fn in_words(&self) -> String {
        let rows = self.rows().into_iter().map(|(name, value)| vec![name, value]).collect::<Vec<_>>();
        let profiles = self.prefill.iter().map(|prefill| ("prefill".to_owned(), &prefill.profile));
        let profiles = profiles.chain(self.decode.iter().map(|decode| (decode.name(), &decode.profile)));
        let profiles = profiles.filter(|(_, profile)| !profile.is_empty());
        let profiles = profiles.map(|(name, profile)| format!("\nTime of {name}\n{}", profile_in_words(profile)));
        print::table(&rows) + &profiles.collect::<String>()
    }

    fn rows(&self) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_owned(), value);
        let resident = self.resident_peak_bytes.map_or("unknown".to_owned(), print::bytes);
        let mut rows = vec![
            row("model", self.path.clone()),
            row("family", format!("{}, executor {}, {} threads", self.family, self.executor, self.threads)),
            row("load", format!("{:.3} s", self.load_seconds)),
            row("memory", format!("{resident} at most, weights {}", print::bytes(self.weight_bytes))),
        ];
        if let Some(prefill) = &self.prefill {
            let shares = [
                percent(prefill.share_of_int8_peak, "the int8 peak"),
                percent(prefill.share_of_int8_matrix_peak, "the matrix unit's"),
                percent(prefill.share_of_f32_peak, "the f32 peak"),
            ]
            .concat();
            let name = format!("prefill {}", prefill.n_tokens);
            rows.push((name, format!("{}, {:.1} GMAC/s{shares}", prefill.speed.in_words(), prefill.gmac_per_s)));
        }
        for decode in &self.decode {
            let share = percent(decode.share_of_read_peak, "the read peak");
            let (all, weights) = (decode.gb_per_s, decode.weights_gb_per_s);
            let read = format!("{all:.1} GB/s{share}, {weights:.1} of it weights");
            rows.push((decode.name(), format!("{}, {read}", decode.speed.in_words())));
        }
        if let Some(peaks) = &self.peaks {
            let rate = |rate: &MacRate, of: &str| format!(", {of} {:.0} GMAC/s ({})", rate.gmac_per_s, rate.unit);
            let matrix = peaks.int8_matrix.as_ref().map(|matrix| rate(matrix, "int8")).unwrap_or_default();
            let (int8, f32) = (rate(&peaks.int8, "int8"), rate(&peaks.f32, "f32"));
            rows.push(row("machine", format!("reads {:.1} GB/s{int8}{matrix}{f32}", peaks.read_gb_per_s)));
        }
        rows
    }
}

impl Decode {
    fn name(&self) -> String {
        let sequences = if self.n_sequences == 1 { String::new() } else { format!(", {} sequences", self.n_sequences) };
        format!("decode {} at {}{sequences}", self.n_tokens, self.depth)
    }
}

impl Speed {
    fn of(by_repetition: Vec<f64>) -> Speed {
        let mut sorted = by_repetition.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            n if n % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Speed { tokens_per_s: median, least: sorted[0], most: sorted[sorted.len() - 1], by_repetition }
    }

    fn in_words(&self) -> String {
        format!("{:.1} tokens/s ({:.1} to {:.1})", self.tokens_per_s, self.least, self.most)
    }
}

impl MachinePeaks {
    fn of(peaks: &Peaks) -> MachinePeaks {
        let rate = |rate: PeakRate| MacRate { unit: rate.unit, gmac_per_s: rate.macs_per_s / 1e9 };
        MachinePeaks {
            read_gb_per_s: peaks.read_bytes_per_s / 1e9,
            int8: rate(peaks.int8),
            int8_matrix: peaks.int8_matrix.map(rate),
            f32: rate(peaks.f32),
        }
    }
}

fn shares(profile: &[OpTime]) -> Vec<OpShare> {
    let all: f64 = profile.iter().map(|op| op.time.as_secs_f64()).sum();
    let share = |op: &OpTime| {
        let seconds = op.time.as_secs_f64();
        OpShare { op: op.op, calls: op.calls, seconds, share: seconds / all.max(f64::MIN_POSITIVE) }
    };
    profile.iter().map(share).collect()
}

fn profile_in_words(profile: &[OpShare]) -> String {
    let heading = ["operation", "calls", "ms", "share"].map(str::to_owned).to_vec();
    let row = |op: &OpShare| {
        let (calls, ms, share) = (op.calls, op.seconds * 1e3, op.share * 100.0);
        vec![op.op.to_owned(), calls.to_string(), format!("{ms:.1}"), format!("{share:.1} %")]
    };
    print::table(&std::iter::once(heading).chain(profile.iter().map(row)).collect::<Vec<_>>())
}

fn percent(share: Option<f64>, of: &str) -> String {
    share.map(|share| format!(", {:.0} % of {of}", share * 100.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_the_median_of_its_repetitions() {
        let speed = Speed::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((speed.tokens_per_s, speed.least, speed.most), (2.0, 1.0, 3.0));
        assert_eq!(speed.by_repetition, [3.0, 1.0, 2.0]);
        assert_eq!(Speed::of(vec![1.0, 4.0]).tokens_per_s, 2.5);
    }
}
