//! What would make a model fit. Everything offered was weighed by the reckoning that refused the model.

use kinfolk_decoder::{LoadRole, Source, Workload, stored_as};
use kinfolk_weights::{Dtype, TensorInfo};

use super::{Memory, Remedies, weigh::Candidate};

/// A shorter context than this serves nobody.
const MIN_CONTEXT: usize = 64;

/// Quantisations that people publish, by their bits per weight.
const SCHEMES: [Dtype; 9] = [
    Dtype::F16,
    Dtype::Q8_0,
    Dtype::Q6_K,
    Dtype::Q5_K,
    Dtype::Q4_K,
    Dtype::Q3_K,
    Dtype::Q2_K,
    Dtype::IQ2_XXS,
    Dtype::IQ1_S,
];

/// Looks for every single change after which `candidate`, which takes `memory`, fits into `available` bytes.
pub(super) fn remedies(
    candidate: &Candidate<'_>,
    memory: Memory,
    workload: &Workload,
    available: u64,
    alternatives: Vec<(String, Source, Option<u64>)>,
) -> Remedies {
    let fits = |candidate: &Candidate<'_>, workload: &Workload| {
        candidate.memory_for(workload).is_some_and(|memory| memory.total_bytes <= available)
    };
    let with = |change: &dyn Fn(&mut Workload)| {
        let mut changed = *workload;
        change(&mut changed);
        changed
    };
    let files = alternatives.into_iter().filter_map(|(file, source, file_bytes)| {
        let other = Candidate { source: &source, file_bytes, ..*candidate };
        (candidate.executor.supports(candidate.decoder, &source).is_ok() && fits(&other, workload)).then_some(file)
    });
    Remedies {
        context_length: most(MIN_CONTEXT..workload.context_length, candidate, available, |n| {
            with(&|w| w.context_length = n)
        }),
        n_sequences: most(1..workload.n_sequences, candidate, available, |n| with(&|w| w.n_sequences = n)),
        packed_weights: workload.packed_weights == Some(false)
            && fits(candidate, &with(&|w| w.packed_weights = Some(true))),
        files: files.collect(),
        bits_per_weight: bits_per_weight(candidate, workload.role, available, |quantised| fits(quantised, workload)),
        embedding: workload.role != LoadRole::Embedding && fits(candidate, &with(&|w| w.role = LoadRole::Embedding)),
        needed_bytes: memory.total_bytes,
    }
}

/// The largest number in `range` with which `candidate` fits; a larger one never takes less.
fn most(
    range: std::ops::Range<usize>,
    candidate: &Candidate<'_>,
    available: u64,
    workload: impl Fn(usize) -> Workload,
) -> Option<usize> {
    let weights = candidate.decoder.bind_for(candidate.source, workload(range.start).role).ok()?;
    let fits = |n: usize| candidate.memory(&weights, &workload(n)).total_bytes <= available;
    if range.is_empty() || !fits(range.start) {
        return None;
    }
    // `low` fits throughout, `high` does not or is beyond the range.
    let (mut low, mut high) = (range.start, range.end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// Bits per weight of the least lossy usual scheme with which the model fits, rounded down.
fn bits_per_weight(
    candidate: &Candidate<'_>,
    role: LoadRole,
    available: u64,
    fits: impl Fn(&Candidate<'_>) -> bool,
) -> Option<f64> {
    let sum = |of: &dyn Fn(&TensorInfo) -> Option<usize>| {
        let tensors = candidate.decoder.tensors(candidate.source, role);
        tensors.map(|info| of(info).unwrap_or(0) as u64).fold(0, u64::saturating_add)
    };
    let n_elements = sum(&|info| Some(info.n_elements()));
    let stored_bytes = candidate.file_bytes.unwrap_or(0).max(candidate.source.tensor_bytes());
    SCHEMES.iter().find_map(|&scheme| {
        let n_bytes = sum(&|info| stored_as(scheme, &info.shape).bytes_for(info.n_elements()));
        // Nothing is weighed that is no smaller, or too large by its weights alone.
        if n_bytes >= stored_bytes || n_bytes > available {
            return None;
        }
        let source = stored_in(candidate.source, scheme)?;
        candidate.executor.supports(candidate.decoder, &source).ok()?;
        let quantised = Candidate { source: &source, file_bytes: None, ..*candidate };
        let bits = 8.0 * n_bytes as f64 / n_elements.max(1) as f64;
        fits(&quantised).then_some((bits * 10.0).floor() / 10.0)
    })
}

/// The same tensors with every projection as `scheme`.
fn stored_in(source: &Source, scheme: Dtype) -> Option<Source> {
    let tensors = source.tensors().map(|info| TensorInfo { dtype: stored_as(scheme, &info.shape), ..info.clone() });
    Source::outline(source.path(), source.format(), source.config().clone(), tensors.collect()).ok()
}
